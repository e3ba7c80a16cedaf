"""Measure the rate of work beside one greedy process per core, by how long OpenMP's threads spin while they wait.

    python benchmarks/busy.py [--spins 300000 vitrail] [--works predict "training, ViT-Ti/16"] [--rounds 5] [--seconds 1]

Every number of turns (GOMP_SPINCOUNT) has a process of its own, since OpenMP reads it once: 300000 is what GNU's takes by itself,
"vitrail" what Vitrail chooses. They take turns, first all in quiet, then all beside the greedy processes. Needs the extra export.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

FILES, BATCH = 64, 16
GREEDY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    for i in range(10**5): i * i"
"""Ends by itself where its parent has been killed."""
OWN = "vitrail"
WORKS = (
    "training, 32 px", "training, ViT-Ti/16", "for_inference, 16", "for_inference, 1", "onnx, 16", "onnx, 1",
    "openvino, 16", "openvino, 1", "predict",
)  # fmt: skip
"""What is done, and to how many images at a time."""


def prepare(folder: Path) -> None:
    """A model, its graphs and photographs, for all processes."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    import vitrail
    from vitrail.api import export

    model, preparation = vitrail.create_model("ViT-Ti/16"), vitrail.Preparation.standard((224, 224))
    vitrail.TrainedModel(model, [str(i) for i in range(1000)], preparation).save_pretrained(folder / "model")
    export(folder / "model", folder / "onnx", to="onnx")
    export(folder / "model", folder / "openvino", to="openvino", precision=quickest())
    (folder / "photographs").mkdir()
    for number in range(FILES):
        pixels = load_sample_images().images[number % 2][:, number : number + 420]
        Image.fromarray(pixels).save(folder / "photographs" / f"{number}.jpg")


def quickest():
    """The precision in which this machine is quicker."""
    import torch

    from vitrail.models.inference import quickest_precision

    return quickest_precision(torch.device("cpu"))


def work_of(name: str, folder: Path):
    """Return a function to call repeatedly, and the number of images of a call."""
    import torch

    import vitrail
    from vitrail.deploy.predict import open_predictor
    from vitrail.deploy.predictor import predict_each

    what, _, size = name.partition(", ")
    if what == "training":
        from training_step import SHAPES, vitrail_step

        shape, batch = next(found for title, found in SHAPES.items() if title.startswith(size))
        return vitrail_step(shape, batch, quickest()), batch
    if what == "predict":
        predictor, files = open_predictor(folder / "model", quickest()), sorted((folder / "photographs").iterdir())
        return lambda: list(predict_each(predictor, files, batch_size=BATCH)), FILES
    if what == "for_inference":
        model = vitrail.for_inference(vitrail.open_model(folder / "model").model, quickest())
        return torch.inference_mode()(partial(model, torch.randn(int(size), 3, 224, 224))), int(size)
    predictor = open_predictor(folder / what, engine={"onnx": "onnxruntime"}.get(what, what))
    return partial(predictor.run, torch.randint(0, 256, (int(size), 3, 224, 224), dtype=torch.uint8)), int(size)


def answer(folder: Path) -> None:
    """To every line, which names some work and seconds: images per second, and what others took of the cores' time meanwhile."""
    from vitrail.runtime.memory import kept_memory
    from vitrail.runtime.processor import Others

    opened = cache(partial(work_of, folder=folder))
    for line in sys.stdin:
        name, seconds = line.split("\t")
        work, images = opened(name)
        with kept_memory():
            work()
            others, start, calls = Others(), time.perf_counter(), 0
            while not calls or time.perf_counter() - start < float(seconds):
                work()
                calls += 1
            took = time.perf_counter() - start
        print(calls * images / took, others.share(), flush=True)


@contextlib.contextmanager
def beside_greedy() -> Iterator[None]:
    """As many processes that never wait as there are cores."""
    greedy = [subprocess.Popen([sys.executable, "-S", "-c", GREEDY]) for _ in os.sched_getaffinity(0)]
    try:
        time.sleep(0.3)
        yield
    finally:
        for process in greedy:
            process.kill()
            process.wait()


class Contender:
    """A process whose waiting threads turn so often."""

    def __init__(self, spins: str, folder: Path):
        environment = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
        environment |= {} if spins == OWN else {"GOMP_SPINCOUNT": spins}
        command = [sys.executable, __file__, "--answer", str(folder)]
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def turn(self, work: str, seconds: float) -> tuple[float, float]:
        """Seconds per image, and what others took."""
        self.process.stdin.write(f"{work}\t{seconds}\n")
        self.process.stdin.flush()
        rate, others = map(float, self.process.stdout.readline().split())
        return 1 / rate, others


def rows(work: str, contenders: dict[str, Contender], rounds: int, seconds: float) -> tuple[list[list[str]], float]:
    """Return the rows of the table, and the largest share that other processes took in quiet."""
    import side_by_side

    for contender in contenders.values():
        contender.turn(work, 0)
    quiet, busy, others = {spins: [] for spins in contenders}, {spins: [] for spins in contenders}, []
    order = list(contenders)
    for _ in range(rounds):
        for times, beside in ((quiet, contextlib.nullcontext()), (busy, beside_greedy())):
            with beside:
                found = {spins: contenders[spins].turn(work, seconds) for spins in order}
            for spins, (took, share) in found.items():
                times[spins].append(took)
                others += [share] if times is quiet else []
        order.reverse()
    in_quiet, cells = side_by_side.Measured(quiet, max(others)), []
    for spins in contenders:
        kept = side_by_side.Measured({"quiet": quiet[spins], "busy": busy[spins]}, None).ratio("busy", "quiet")
        rate = f"{1 / in_quiet.seconds(spins):.1f}"
        cells.append([work, spins, rate, in_quiet.ratio(spins, next(iter(contenders))), kept])
    return cells, max(others)


def main() -> None:
    """Print the table, in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spins", nargs="+", default=["300000", OWN], help="the first is what the others are compared with")
    parser.add_argument("--works", nargs="+", choices=WORKS, default=WORKS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of every turn, at least")
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.answer:
        answer(given.answer)
        return
    import side_by_side

    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name))
        contenders = {spins: Contender(spins, Path(name)) for spins in given.spins}
        lines, others = [], []
        for work in given.works:
            found, share = rows(work, contenders, given.rounds, given.seconds)
            lines, others = [*lines, *found], [*others, share]
            sys.stderr.write("\n".join(" | ".join(row) for row in found) + "\n")
        for contender in contenders.values():
            contender.process.communicate()
    head = ["work", "turns", "images/s, quiet", f"× {given.spins[0]} turns", "kept beside greedy processes"]
    print(side_by_side.table(head, lines) + "\n" + side_by_side.note(*others))


if __name__ == "__main__":
    main()

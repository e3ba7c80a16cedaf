"""Check that a change made nothing slower: a commit and the working tree in turns, each with one thread on the same core.

    python benchmarks/commits.py COMMIT

Printed are, for a training step, an answer and a prediction from files, the median times and the median of the ratios of
neighbouring turns: above 1 the working tree is slower.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROUNDS = 40
WORKER = """
import json, sys, time
import torch, vitrail
from pathlib import Path
from PIL import Image

folder = Path(sys.argv[1])
torch.manual_seed(0)
model = vitrail.create_model("ViT-Ti/16", num_classes=10)
optimizer = torch.optim.AdamW(model.parameters())
images, labels = torch.randn(16, 3, 224, 224), torch.randint(0, 10, (16,))
model.eval().requires_grad_(False)
fast = vitrail.for_inference(model)
labelled = vitrail.TrainedModel(model, [str(i) for i in range(10)], vitrail.Preparation.standard((224, 224), 3), False)
files = sorted(folder.glob("*.jpg"))

def train():
    model.train().requires_grad_(True)
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)

def answer():
    with torch.inference_mode():
        fast(images)

def predict():
    vitrail.predict(labelled, files)

WORK = {"train": train, "answer": answer, "predict": predict}
for line in sys.stdin:
    start = time.perf_counter()
    WORK[line.strip()]()
    print(json.dumps(time.perf_counter() - start), flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", metavar="COMMIT")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        before, pictures = Path(place, "before"), Path(place, "pictures")
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(before), options.before], cwd=ROOT, check=True)
        try:
            _write_pictures(pictures)
            workers = [_worker(source, pictures) for source in (before, ROOT)]
            for what in ("train", "answer", "predict"):
                for worker in workers * 3:  # to warm up
                    _turn(worker, what)
                turns = [_both(workers, what, first=number % 2) for number in range(ROUNDS)]
                ratios = [now / then for then, now in turns]
                then, now = (statistics.median(times) for times in zip(*turns, strict=True))
                print(f"{what:<8} {1000 * then:8.1f} ms before, {1000 * now:8.1f} ms now, ratio {statistics.median(ratios):.3f}")
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(before)], cwd=ROOT, check=True)


def _both(workers: list[subprocess.Popen], what: str, *, first: int) -> tuple[float, float]:
    """Seconds of the commit and of the working tree, of which ``first`` goes first."""
    seconds = {number: _turn(workers[number], what) for number in (first, 1 - first)}
    return seconds[0], seconds[1]


def _write_pictures(folder: Path) -> None:
    import numpy as np
    from PIL import Image

    folder.mkdir()
    random = np.random.default_rng(0)
    for number in range(16):
        pixels = random.integers(0, 256, (20, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((600, 400)).save(folder / f"{number}.jpg")


def _worker(source: Path, pictures: Path) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(source / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", WORKER, str(pictures)]
    worker = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(worker.pid, {min(os.sched_getaffinity(0))})  # for both the same, since they never work at once
    return worker


def _turn(worker: subprocess.Popen, what: str) -> float:
    worker.stdin.write(f"{what}\n")
    worker.stdin.flush()
    return json.loads(worker.stdout.readline())


if __name__ == "__main__":
    main()

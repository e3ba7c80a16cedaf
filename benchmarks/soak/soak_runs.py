"""Kills, damages and starves runs, checkpoints and images to see whether anything is lost.

    python benchmarks/soak/soak_runs.py

The tests make a few of these trials, ``make soak`` hundreds.

Every trial returns how many of how many ended well, and what went wrong in the others. Chance has a seed.
"""

import csv
import hashlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import soak_texts
from PIL import Image

HELPERS = Path(__file__).parents[2] / "tests/training"
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["vitrail.api", "vitrail.cli.app", "vitrail.study.page.report", "torch._dynamo"])
SETTINGS = {
    "model.name": "ViT-Ti/4", "model.image_size": 8, "model.dim": 32, "model.depth": 2, "model.heads": 2, "model.mlp_dim": 64,
    "model.dropout": 0.1, "model.stochastic_depth": 0.1, "model.patch_dropout": 0.2, "training.ema": 0.9, "training.epochs": 4,
    "training.batch_size": 6, "training.checkpoint_every_steps": 3, "augmentation.crop": "resized", "optimizer.lr": 0.003,
}  # fmt: skip
"""A run of 16 steps and as much chance as there is."""
CLOCK = ("seconds", "images_per_second", "tokens_per_second")


@dataclass
class Trial:
    """How many of how many ended well."""

    good: int = 0
    of: int = 0
    failures: list[str] = field(default_factory=list)

    def note(self, failure: str | None) -> None:
        self.of += 1
        self.good += failure is None
        if failure is not None:
            self.failures.append(failure)

    def __str__(self) -> str:
        return f"{self.good:,}/{self.of:,}" + (f"; first: {self.failures[0]}" if self.failures else "")


def write_pictures(folder: Path) -> Path:
    """Three classes of twelve noisy images of 10×10 pixels."""
    chance = np.random.default_rng(0)
    for channel, name in enumerate(("red", "green", "blue")):
        (folder / name).mkdir(parents=True)
        for number in range(12):
            pixels = chance.integers(0, 120, (10, 10, 3), dtype=np.uint8)
            pixels[..., channel] += 100
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


@dataclass(frozen=True)
class Learned:
    """What the runs of a trial learn: settings, and the data, which a function writes into a folder that is not there yet."""

    settings: dict[str, Any]
    write: Callable[[Path], Path]


IMAGES = Learned(SETTINGS, write_pictures)
TEXTS = Learned(soak_texts.SETTINGS, soak_texts.write_sentences)


# runs that are killed


def train_or_resume(data: Path, folder: Path, settings: dict[str, Any], death: Callable[[], None] | None = None) -> None:
    """The run in this process, from wherever it stands; run in processes of its own."""
    import torch

    from vitrail import api

    torch.set_num_threads(1)
    _silence(folder.with_suffix(".log"))
    if death is not None:
        death()
    if (folder / "status.json").exists():
        api.resume(folder)
    else:
        api.train(data, folder, **settings)


def _silence(log: Path) -> None:
    """Everything that is printed, into a file."""
    file = log.open("a")
    os.dup2(file.fileno(), 1)
    os.dup2(file.fileno(), 2)


@dataclass
class DeathAfter:
    """SIGKILL after so many seconds, in the middle of whatever is going on."""

    seconds: float

    def __call__(self) -> None:
        threading.Timer(self.seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()


@dataclass
class DeathInCheckpoint:
    """SIGKILL so many seconds into the writing of a checkpoint, the first or a later one."""

    which: int
    seconds: float

    def __call__(self) -> None:
        from vitrail.training.runs import state as loop

        save, left = loop.save_checkpoint, [self.which]

        def dying(*arguments: Any, **options: Any) -> None:
            left[0] -= 1
            if left[0] < 0:
                threading.Thread(target=self._die).start()
            save(*arguments, **options)
            if left[0] < 0:
                time.sleep(1)  # written before death came; the moment after counts as well

        loop.save_checkpoint = dying

    def _die(self) -> None:
        time.sleep(self.seconds)
        os.kill(os.getpid(), signal.SIGKILL)


def outcome(folder: Path) -> dict[str, Any]:
    """Everything a finished run leaves that no clock has a part in, by its digest."""
    newest = max((folder / "checkpoints").glob("step-*"))
    files = [folder / name / "model.safetensors" for name in ("best", "last")] + sorted(newest.glob("*.safetensors"))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    table = [row["epoch"] for row in csv.DictReader((folder / "metrics.csv").open())]
    kept = [{name: value for name, value in row.items() if name not in CLOCK} for row in rows]
    digests = {str(f.relative_to(folder)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
    return {**digests, "metrics": kept, "epochs in the table": table}


def left_over(folder: Path) -> list[str]:
    """Whatever is half written in a run folder."""
    return [str(p.relative_to(folder)) for p in folder.rglob(".*")]


def finished(data: Path, folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """The outcome of a run that nothing happens to."""
    process = PROCESSES.Process(target=train_or_resume, args=(data, folder, settings))
    process.start()
    process.join()
    assert process.exitcode == 0, folder.with_suffix(".log").read_text()
    return outcome(folder)


def killed_at_random(count: int, root: Path, *, learned: Learned = IMAGES, seed: int = 0) -> Trial:
    """``kill -9`` at so many moments, half of them within the writing of a checkpoint; every run must end as the unbroken one."""
    chance, trial, data = random.Random(seed), Trial(), learned.write(root / "data")
    begin = time.monotonic()
    expected = finished(data, root / "unbroken", learned.settings)
    length, kills, run = time.monotonic() - begin, 0, 0
    while kills < count:
        folder, died = root / f"run-{run}", 0
        run += 1
        while True:
            inside = kills % 2 == 0
            death: Any = DeathAfter(chance.uniform(0, length))
            if inside:
                death = DeathInCheckpoint(chance.randrange(3), chance.uniform(0, 0.02))
            arguments = (data, folder, learned.settings, death if kills < count else None)
            process = PROCESSES.Process(target=train_or_resume, args=arguments)
            process.start()
            process.join()
            if process.exitcode != -signal.SIGKILL:
                break
            kills, died = kills + 1, died + 1
        failure = None
        if process.exitcode:
            trial.note(f"exit {process.exitcode}: {folder.with_suffix('.log').read_text()[-300:]}")
            return trial  # nothing kills a run that fails by itself
        if outcome(folder) != expected:
            failure = f"{folder.name} ended otherwise after {died} kills"
        elif left_over(folder):
            failure = f"half written: {left_over(folder)}"
        for _ in range(died):
            trial.note(failure)
        shutil.rmtree(folder, ignore_errors=True)
    return trial


def other_numbers_of_workers(root: Path, counts: tuple[int, ...] = (0, 1, 2, 4), *, learned: Learned = IMAGES) -> Trial:
    """The same run with other numbers of processes that prepare images, or sentences."""
    trial, data = Trial(), learned.write(root / "data")
    expected = finished(data, root / "none", learned.settings)
    for count in counts:
        found = finished(data, root / f"workers-{count}", {**learned.settings, "data.workers": count})
        trial.note(None if found == expected else f"{count} workers ended otherwise")
    return trial


# runs that are asked to stop


def command(words: list[str], log: Path, place: dict[str, str]) -> None:
    """The command line in this process, as one of several; run in processes of its own."""
    import torch

    from vitrail.cli.app import main

    torch.set_num_threads(1)
    os.environ.update(place)
    _silence(log)
    main(words)


def terminated_at_random(count: int, root: Path, *, processes: int = 1, learned: Learned = IMAGES, seed: int = 0) -> Trial:
    """SIGTERM at so many moments of a run: each must leave with 143, everything saved, and the run end as the unbroken one."""
    chance, trial, data = random.Random(seed), Trial(), learned.write(root / "data")
    longer = {**learned.settings, "training.epochs": 12}
    flags = [word for name, value in longer.items() for word in (f"--{name}", str(value))]
    reference = root / "unbroken"
    begin = time.monotonic()
    _command_in_several(["train", "--data", str(data), "--out", str(reference), *flags], reference, processes)
    expected, length, folder = outcome(reference), time.monotonic() - begin, root / "run-0"
    for number in range(count):
        share = 0.4
        begun = (folder / "status.json").exists()
        words = ["resume", str(folder)] if begun else ["train", "--data", str(data), "--out", str(folder), *flags]
        codes = _command_in_several(words, folder, processes, stop_after=chance.uniform(0, 0.6 * length))
        while 0 in codes and set(codes) <= {0, 143}:  # one had ended before the signal came: compare, and stop another sooner
            failure = None if outcome(folder) == expected else "ended otherwise"
            if failure:
                trial.note(failure)
            folder = root / f"run-{number + 1}-within-{share:g}"
            words = ["train", "--data", str(data), "--out", str(folder), *flags]
            codes = _command_in_several(words, folder, processes, stop_after=chance.uniform(0, share * length))
            share /= 2
        trial.note(_failure_of_stopping(codes, folder, processes))
    return trial


def _failure_of_stopping(codes: list[int], folder: Path, processes: int) -> str | None:
    from vitrail.errors import ModelFileError
    from vitrail.training.runs.checkpoint import checkpoints, require_complete

    log = folder.with_suffix(".log").read_text()[-500:]
    if codes != [143] * processes:
        return f"exit {codes}: {log}"
    if not folder.exists():
        return None  # nothing was begun, and nothing is left
    status = json.loads((folder / "status.json").read_text())
    if status["state"] == "finished":
        return None
    try:
        require_complete(checkpoints(folder)[0])
    except (ModelFileError, IndexError) as error:
        return f"{error}: {log}"
    saved = json.loads((checkpoints(folder)[0] / "state.json").read_text())["done"]
    if (status["state"], status["step"]) != ("interrupted", saved):
        return f"{status}, and step {saved} is saved"
    return None if f"resume {folder}" in log else f"no command to resume: {log}"


def _command_in_several(words: list[str], folder: Path, count: int, *, stop_after: float | None = None) -> list[int]:
    """Exit codes of a command in so many processes, which all get SIGTERM some seconds after the run's folder is there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for rank in range(count):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        where = {name: str(value) for name, value in place.items()} if count > 1 else {}
        started.append(PROCESSES.Process(target=command, args=(words, folder.with_suffix(".log"), where)))
        started[-1].start()
    if stop_after is not None:
        while not (folder / "status.json").exists() and all(process.is_alive() for process in started):
            time.sleep(0.001)
        time.sleep(stop_after)
        for process in started:
            process.terminate()
    for process in started:
        process.join()
    return [143 if process.exitcode == -signal.SIGTERM else process.exitcode for process in started]  # as a shell tells it


# lines to be translated


def translated_lines(count: int, root: Path) -> Trial:
    """So many lines of anything to ``vitrail translate``, a thousand at a time, and each time once a line that is no text."""
    trial, data = Trial(), soak_texts.write_sentences(root / "data")
    finished(data, root / "run", soak_texts.SETTINGS)
    for seed in range(max(1, count // 1000)):
        lines = soak_texts.random_lines(min(count, 1000), seed=seed)
        failure = soak_texts.failure_of_translating(lines, root / "run")
        for _ in lines:
            trial.note(failure)
        trial.note(soak_texts.failure_of_refusing(lines[:20], root / "run", 1 + seed % 20))
    return trial


# checkpoints that are damaged, and disks that are full


def mutated_checkpoints(count: int, folder: Path, *, seed: int = 0) -> Trial:
    """So many changes to a checkpoint: bits, bytes and blocks in every file, files renamed, added and removed."""
    from vitrail.errors import ModelFileError
    from vitrail.training.runs.checkpoint import load_checkpoint

    chance, trial = random.Random(seed), Trial()
    for number in range(count):
        file = chance.choice(sorted(folder.iterdir()))
        content = file.read_bytes()
        at, kind = chance.randrange(len(content)), number % 8
        changed: bytes | None = {
            0: content[:at] + bytes([content[at] ^ (1 << chance.randrange(8))]) + content[at + 1 :],
            1: content[:at],
            2: content + chance.randbytes(1 + chance.randrange(9)),
            3: content[:at] + content[at + chance.randrange(1, 50) :],
            4: content[:at] + chance.randbytes(3) + content[at:],
            5: content[:at] + bytes(1 + b for b in content[at : at + 9] if b < 255) + content[at + 9 :],
        }.get(kind)
        if changed is not None:
            changed = changed if changed != content else content[:-1]
            file.write_bytes(changed)
        elif kind == 6:
            file.rename(folder / "other")
        else:
            (folder / "more").write_bytes(content)
        try:
            load_checkpoint(folder)
            trial.note(f"{file.name} changed in way {kind} at byte {at} was taken")
        except ModelFileError:
            trial.note(None)
        for name in ("other", "more"):
            (folder / name).unlink(missing_ok=True)
        file.write_bytes(content)
    load_checkpoint(folder)
    return trial


@contextmanager
def small_disk(folder: Path, size: int, *, wanted: bool) -> Iterator[bool]:
    """A file system of so many bytes at a folder, where one is wanted and this process may make one."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ["-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    made = wanted and subprocess.run(["mount", *options], capture_output=True).returncode == 0
    try:
        yield made
    finally:
        if made:
            subprocess.run(["umount", str(folder)], check=True)


def save_step(run: Path, step: int, size: int) -> None:
    """A checkpoint of a model of so many numbers."""
    import torch

    from vitrail.training.runs.checkpoint import save_checkpoint

    tensors = {name: {"a": torch.full((size,), float(step))} for name in ("model", "optimizer")}
    folder = run / "checkpoints" / f"step-{step:09d}"
    save_checkpoint(folder, tensors, {"done": step}, resume="vitrail resume run")


def disk_full_at(share: float, run: Path, size: int = 30_000, *, mount: bool = False) -> str | None:
    """What goes wrong where the disk is full after a share of a second checkpoint's bytes, and nobody said so before.

    A small file system where one may be mounted; else a limit on the size of files, so that the system itself stops the write.
    """
    whole = 8 * size
    with small_disk(run, 4 * whole + 2**21, wanted=mount) as small:
        save_step(run, 1, size)
        told, theirs = PROCESSES.Pipe(duplex=False)
        process = PROCESSES.Process(target=_save_on_full_disk, args=(share, run, size, small, theirs))
        process.start()
        theirs.close()
        said = ""
        with suppress(EOFError):
            said = told.recv()
        process.join()
        expected = ("bytes are needed", "are free") if small else ("exceed the system's limit on file size",)
        if process.exitcode != 0 or not all(words in said for words in expected):
            return f"exit {process.exitcode}: {said}"
        return _failure_of_first(run)


def _save_on_full_disk(share: float, run: Path, size: int, small: bool, answers: Any) -> None:
    """A second checkpoint; what is said of the disk goes into a pipe, as no file may grow. Run in a process of its own."""
    from vitrail.errors import DiskFullError

    if small:
        free = shutil.disk_usage(run).free - int(share * 8 * size) // 4096 * 4096
        (run / "other").write_bytes(bytes(max(0, free)))
    else:
        tempfile.gettempdir()  # it tries by writing, and something imported later may ask
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(share * 8 * size / 2), resource.RLIM_INFINITY))
    usage = shutil.disk_usage
    shutil.disk_usage = lambda path: usage("/")
    try:
        save_step(run, 2, size)
    except DiskFullError as error:
        answers.send(error.what)


def _failure_of_first(run: Path) -> str | None:
    from vitrail.errors import ModelFileError
    from vitrail.training.runs.checkpoint import checkpoints, load_checkpoint

    try:
        tensors, state = load_checkpoint(checkpoints(run)[-1])
    except (ModelFileError, IndexError) as error:
        return f"the checkpoint before is gone: {error}"
    good = state == {"done": 1} and tensors["model"]["a"].eq(1).all()
    drafts = left_over(run)
    return None if good and not drafts else f"left {drafts}"


def full_disks(count: int, root: Path, *, seed: int = 0) -> Trial:
    """A disk that fills up at so many bytes of a write."""
    chance, trial = random.Random(seed), Trial()
    for number in range(count):
        trial.note(disk_full_at(chance.random() * 0.98, root / f"disk-{number}", mount=True))
    return trial


# images that lie


def picture_files() -> list[bytes]:
    """Files of every format and of many colour modes, to be spoilt."""
    chance = np.random.default_rng(0)
    colours = Image.fromarray(chance.integers(0, 256, (48, 64, 3), dtype=np.uint8))
    kinds: list[tuple[Image.Image, str, dict[str, Any]]] = [
        (colours, "JPEG", {}), (colours, "JPEG", {"progressive": True}), (colours.convert("CMYK"), "JPEG", {}),
        (colours.convert("L"), "JPEG", {}), (colours, "PNG", {}), (colours.convert("P"), "PNG", {}),
        (colours.convert("RGBA"), "PNG", {}), (colours.convert("1"), "PNG", {}), (colours, "BMP", {}),
        (Image.fromarray(chance.integers(0, 65536, (48, 64), dtype=np.uint16)), "PNG", {}),
        (colours.convert("P"), "GIF", {"save_all": True, "append_images": [colours.convert("P").rotate(90)]}),
        (colours, "WEBP", {}), (colours, "WEBP", {"lossless": True}), (colours.convert("P"), "BMP", {}),
        (colours, "WEBP", {"save_all": True, "append_images": [colours.rotate(180)]}),
    ]  # fmt: skip
    files = []
    for image, kind, options in kinds:
        content = BytesIO()
        image.save(content, kind, **options)
        files.append(content.getvalue())
    exif = Image.Exif()
    exif[274] = 6
    content = BytesIO()
    colours.save(content, "JPEG", exif=exif)
    return [*files, content.getvalue()]


def spoilt(content: bytes, chance: random.Random) -> bytes:
    """A file with a few bits, bytes or blocks changed; most often near its head, where the sizes stand."""
    for _ in range(chance.choice((1, 1, 2, 5, 20))):
        end = len(content) if chance.random() < 0.5 else min(len(content), 120)
        at = chance.randrange(max(1, end))
        kind = chance.randrange(6)
        if kind == 0:
            content = content[:at] + bytes([chance.randrange(256)]) + content[at + 1 :]
        elif kind == 1:
            content = content[:at] + chance.choice((b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff")) + content[at + 4 :]
        elif kind == 2:
            content = content[: max(1, at)]
        elif kind == 3:
            content = content[:at] + chance.randbytes(chance.randrange(1, 30)) + content[at:]
        elif kind == 4:
            content = content[:at] + content[at + chance.randrange(1, 60) :]
        else:
            block = content[at : at + chance.randrange(1, 40)]
            content = content[:at] + block * chance.randrange(2, 5) + content[at:]
        content = content or b"\0"
    return content


def _decode_all(count: int, seed: int, answers: Any) -> None:
    from vitrail.data.images.preparation import Preparation
    from vitrail.errors import DataError

    preparation, files, chance = Preparation.standard((32, 32), 3), picture_files(), random.Random(seed)
    preparation.pixels(files[0])  # whatever is imported late is there before memory is short
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + 2**30, held + 2**30))
    for number in range(count):
        content = spoilt(chance.choice(files), chance)
        answers.send(number)
        begin, failure = time.monotonic(), None
        try:
            assert preparation.pixels(content).shape == (3, 32, 32)
        except DataError:
            pass
        except BaseException as error:
            failure = f"image {number}: {type(error).__name__}: {error}"
        seconds = time.monotonic() - begin
        answers.send((failure or (f"image {number} took {seconds:.1f} s" if seconds > 2 else None), seconds))
    answers.send(None)


def spoilt_images(count: int, *, seed: int = 0) -> tuple[Trial, float]:
    """So many spoilt images through the decoder, with 1 GiB to spare; also says how long the slowest took."""
    trial, slowest = Trial(), 0.0
    answers, theirs = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=_decode_all, args=(count, seed, theirs))
    process.start()
    theirs.close()
    number: Any = -1
    with suppress(EOFError):
        while True:
            if not answers.poll(30):
                process.kill()
                trial.note(f"image {number} hangs")
                return trial, float("inf")
            said = answers.recv()
            if said is None:
                break
            if isinstance(said, tuple):
                trial.note(said[0])
                slowest = max(slowest, said[1])
            else:
                number = said
    process.join()
    if process.exitcode:
        trial.note(f"image {number} crashed the decoder: exit {process.exitcode}")
    return trial, slowest


# at length


def two_beside_one(root: Path) -> tuple[Trial, float]:
    """Runs of two processes, DDP and FSDP2, beside runs of one process, and the largest difference of a parameter."""
    sys.path.append(str(HELPERS))
    from together import cases

    trial, largest = Trial(), 0.0
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*torchrun, str(HELPERS / "together.py"), str(root), "all"], check=True, capture_output=True)
    results = json.loads((root / "results.json").read_text())
    for name in (f"{kind} {case}" for kind in ("ddp", "fsdp") for case in (*cases(kind), "adamw", "texts")):
        difference = results[name]["weights"]
        largest = max(largest, difference)
        trial.note(None if difference <= 1e-6 else f"{name}: {difference}")
    return trial, largest


def _table(root: Path) -> Iterator[tuple[str, str]]:
    yield (
        "`kill -9` at random moments, half of them inside the writing of a checkpoint",
        str(killed_at_random(200, root / "kill")),
    )
    yield "the same weights with 0, 1, 2, 4 workers", str(other_numbers_of_workers(root / "workers"))
    yield "the same of runs that learn to translate", str(killed_at_random(100, root / "kill-texts", learned=TEXTS))
    workers = other_numbers_of_workers(root / "workers-texts", learned=TEXTS)
    yield "the same translator with 0, 1, 2, 4 workers", str(workers)
    newest = max((root / "kill/unbroken/checkpoints").glob("step-*"))
    yield "mutations of a checkpoint that were refused", str(mutated_checkpoints(1000, newest))
    yield "disk full at random bytes, the checkpoint before stands", str(full_disks(50, root / "disk"))
    yield "SIGTERM at random moments, one process", str(terminated_at_random(100, root / "term"))
    yield "SIGTERM at random moments, two processes", str(terminated_at_random(100, root / "term-2", processes=2))
    for count in (1, 2):
        trial = terminated_at_random(50, root / f"term-texts-{count}", processes=count, learned=TEXTS)
        yield f"SIGTERM at random moments of a translator's run, {count} process{'es' * (count > 1)}", str(trial)
    yield "lines of anything to `vitrail translate`", str(translated_lines(10_000, root / "lines"))
    (root / "together").mkdir()
    trial, largest = two_beside_one(root / "together")
    yield "one process beside two, 20 steps, difference of a parameter at most 1e-6", f"{trial}; largest {largest:.1e}"
    trial, slowest = spoilt_images(10_000)
    yield "spoilt images through the decoder, 1 GiB to spare", f"{trial}; slowest {slowest:.3f} s"


def main() -> None:
    """Everything at length, as a table in Markdown."""
    with tempfile.TemporaryDirectory() as folder:
        print("| what | good of all | minutes |\n|---|---|---|", flush=True)
        rows = _table(Path(folder))
        while True:
            begin = time.monotonic()
            row = next(rows, None)
            if row is None:
                return
            print(f"| {row[0]} | {row[1]} | {(time.monotonic() - begin) / 60:.1f} |", flush=True)


if __name__ == "__main__":
    main()

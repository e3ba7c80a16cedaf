"""Spoilt files opened by a process that is watched: what came of each, and whether the process came to harm."""

import multiprocessing
import os
import random
import re
import resource
import shutil
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGE = Path(find_spec("vitrail").origin).parent
"""Folder of the package: a fault outside it is not ours, whatever the folders above are called."""
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["file_openers", "vitrail.study.compare.comparison", "onnxruntime", "openvino", "ctranslate2", "tokenizers", "sentencepiece"]
)
SECONDS, SPARE, TIMES = 5.0, 300 * 2**20, 1.5
"""What a case may take: seconds, and bytes of memory beside so many times the size of its files."""
ROOM = 6 * 2**30
"""Addresses that a process may take above its own, so that a case of gigabytes does no harm to the machine."""
RENEWED = 1000
"""Cases after which a process is replaced, as libraries keep some memory of each."""
COMMANDS = 0.03
"""Share of the cases that are opened by the command, too."""


@dataclass
class Result:
    """What came of the cases of a kind."""

    cases: int = 0
    good: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    violations: dict[str, list[str]] = field(default_factory=dict)
    """What went wrong, to the cases in which it did: the seed and the file that was spoilt."""
    slowest: float = 0.0
    largest: int = 0

    def note(self, case: str, outcome: str, seconds: float, memory: int) -> None:
        """Count a case by its outcome: nothing of one that is still good, the kind of an error, or what went wrong."""
        self.cases += 1
        self.slowest, self.largest = max(self.slowest, seconds), max(self.largest, memory)
        if not outcome:
            self.good += 1
        elif outcome.isidentifier():
            self.refused[outcome] += 1
        else:
            self.violations.setdefault(outcome, []).append(case)

    @property
    def wrong(self) -> int:
        return sum(map(len, self.violations.values()))


def _memory(name: str) -> int:
    """Bytes of this process: VmRSS, those in memory, or VmHWM, the most since `_forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def outcome_of(kind: str, folder: Path, chance: random.Random) -> str:
    """What comes of opening files: nothing, the kind of our error, or where another exception comes from."""
    from file_openers import KINDS, run_command

    from vitrail.errors import VitrailError

    row = KINDS[kind]
    try:
        if row.command and chance.random() < COMMANDS:
            return run_command(row.command, folder) or ""
        row.ask(folder, chance)
    except VitrailError as error:
        return type(error).__name__
    except BaseException as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(PACKAGE)]
        place = f"{Path(frames[-1].filename).relative_to(PACKAGE)}:{frames[-1].lineno}" if frames else "elsewhere"
        if os.environ.get("SOAK_TRACEBACK"):
            traceback.print_exc()
        return f"{type(error).__name__} from {place}: {re.sub(r'[0-9.]+', '#', ' '.join(str(error).split()))[:100]}"
    return ""


def prepare(kind: str, seed: int, seeds: Path, place: Path) -> tuple[Path, str, random.Random]:
    """Copy good files of a kind and spoil one of them, all by the seed; gives the folder, what was spoilt, and chance."""
    from file_openers import KINDS, spoil

    chance = random.Random(f"{kind} {seed}")
    folders = sorted((seeds / kind).iterdir())
    chosen = chance.choice(folders)
    folder = place / "case"
    for name in (folder, place / "out"):
        shutil.rmtree(name, ignore_errors=True)
    shutil.copytree(chosen, folder)
    others = [chance.choice(folders) for _ in range(2)]
    return folder, f"{chosen.name}/{spoil(folder, others, KINDS[kind].files, chance)}", chance


def work(kind: str, numbers: list[int], seeds: Path, place: Path, answers: Any, *, loud: bool = False) -> None:
    """Run in a process of its own: the cases of these seeds, one after the other, each announced before it is opened."""
    import warnings

    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.environ["HF_HUB_OFFLINE"] = "1"
    if not loud:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + ROOM, held + ROOM))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(Exception):  # what is imported late or kept from the first time on counts for no case
        from file_openers import KINDS

        for good in sorted((seeds / kind).iterdir())[:2]:
            shutil.rmtree(place / "case", ignore_errors=True)
            shutil.copytree(good, place / "case")
            KINDS[kind].ask(place / "case", random.Random(0))
    for seed in numbers:
        folder, spoilt, chance = prepare(kind, seed, seeds, place)
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        answers.send((seed, spoilt))
        _forget_peak()
        before, begin = _memory("VmRSS"), time.monotonic()
        outcome = outcome_of(kind, folder, chance)
        seconds, memory = time.monotonic() - begin, _memory("VmHWM") - before
        if memory > TIMES * size + SPARE:
            outcome = f"memory of {memory / 2**20:,.0f} MiB above the idle process, then {outcome or 'good'}"
        if seconds > SECONDS:
            outcome = f"took {seconds:.1f} s, then {outcome or 'good'}"
        answers.send((outcome, seconds, memory))
    answers.send(None)


def trial(
    kind: str, first: int, count: int, seeds: Path, place: Path, *, loud: bool = False, work: Callable[..., None] = work
) -> Result:
    """So many cases of a kind from a seed on, by processes that are replaced where they crash or hang; gives the result."""
    result, numbers = Result(), list(range(first, first + count))
    place.mkdir(parents=True, exist_ok=True)
    while numbers:
        for seed in _watched(work, kind, numbers[:RENEWED], seeds, place, result, loud):
            numbers.remove(seed)
    return result


def _watched(
    work: Callable[..., None], kind: str, numbers: list[int], seeds: Path, place: Path, result: Result, loud: bool
) -> list[int]:
    """Let a process do these cases; gives those that are done, with the one at which it crashed or hung."""
    answers, theirs = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=work, args=(kind, numbers, seeds, place, theirs), kwargs={"loud": loud})
    process.start()
    theirs.close()
    done: list[int] = []
    case: tuple[int, str] | None = None
    with suppress(EOFError):
        while True:
            if not answers.poll(2 * SECONDS if case else 60):
                break
            if (said := answers.recv()) is None:
                process.join()
                return done
            if case is None:
                case = said
                continue
            result.note(f"{case[0]} ({case[1]})", *said)
            done.append(case[0])
            case = None
    alive = process.is_alive() and not answers.poll()
    if alive:
        process.kill()
    process.join()
    if case is None:
        raise RuntimeError(f"the process of {kind} ended before a case: exit code {process.exitcode}, after {done[-1:]}")
    end = "hangs for ever" if alive else f"crashed with signal {-(process.exitcode or 0)}"
    result.note(f"{case[0]} ({case[1]})", end, 0.0, 0)
    return [*done, case[0]]

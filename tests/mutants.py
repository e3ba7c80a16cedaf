"""Faults put into the sources on purpose, one at a time: the tests must notice each (`make mutants`).

``mutants.toml`` lists them. Each is tried in a copy of the project of its own, so the checkout is never touched, by the tests
that are named beside it. A process that has already imported the large libraries, and nothing of the project, forks for each.
"""

import argparse
import gc
import importlib
import os
import shutil
import signal
import sys
import tempfile
import tomllib
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_suffix(".toml")
SOURCES = Path("src/vitrail")
COPIED = ("src", "tests", "docs", "benchmarks", "README.md", "Makefile", "pyproject.toml")
"""What of the project the tests read. The virtual environment is linked."""
LIBRARIES = (
    "hypothesis", "matplotlib.figure", "onnxruntime", "pydantic", "rich", "schemathesis.pytest.plugin", "sklearn.linear_model",
    "sklearn.metrics", "sklearn.neighbors", "timm", "torch.distributed.fsdp", "torch.utils.data", "transformers.modeling_utils",
)  # fmt: skip
"""Imported once for all mutants."""
TIMEOUT = 600
"""Seconds after which the tests of a mutant are stopped."""


@dataclass(frozen=True)
class Mutant:
    """A file of `SOURCES` in which ``old``, found exactly once, becomes ``new``, and the tests that must fail then."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        line = self.source().partition(self.old)[0].count("\n") + 1
        return f"{self.file}:{line}: {' '.join(self.old.split())} → {' '.join(self.new.split())}"

    def source(self) -> str:
        """The text of the file as it should be."""
        return (ROOT / SOURCES / self.file).read_text(encoding="utf-8")

    def faults(self) -> Iterator[str]:
        """What is wrong with the entry itself."""
        found = self.source().count(self.old)
        if found != 1:
            yield f"{self.file}: “{self.old}” is found {found} times, not once"
        if self.old == self.new:
            yield f"{self.file}: “{self.old}” stays as it is"
        for test in self.tests:
            file, _, name = test.partition("::")
            path = ROOT / "tests" / file
            if not path.is_file() or f"def {name.partition('[')[0]}" not in path.read_text(encoding="utf-8"):
                yield f"{self.file}: there is no test {test}"


def mutants() -> list[Mutant]:
    """The list."""
    groups = tomllib.loads(LIST.read_text(encoding="utf-8"))["mutants"]
    return [Mutant(group["file"], old, new, tuple(group["tests"])) for group in groups for old, new in group["faults"]]


def main() -> int:
    parser = argparse.ArgumentParser(description="Put faults into the sources, one at a time, and see whether the tests notice.")
    parser.add_argument("--only", metavar="TEXT", default="", help="only mutants whose line, as it is printed, contains this")
    parser.add_argument("--jobs", metavar="N", type=int, default=os.cpu_count() or 1, help="tried side by side (all cores)")
    options = parser.parse_args()
    wanted = mutants()
    faults = [fault for mutant in wanted for fault in mutant.faults()]
    if faults:
        print(*faults, sep="\n")
        return 1
    wanted = [mutant for mutant in wanted if options.only in str(mutant)]
    if not wanted:
        parser.error(f"no mutant's line contains “{options.only}”")
    _import_libraries()
    with tempfile.TemporaryDirectory(prefix="vitrail-mutants-") as place:
        clean = Path(place, "clean")
        _copy_project(clean)
        suites = _by_file({test for mutant in wanted for test in mutant.tests})
        broken = [
            f"without any mutant the tests fail: {' '.join(suites[number])}\n{output}"
            for number, code, output in _tried(clean, [(None, suite) for suite in suites], options.jobs)
            if code != pytest.ExitCode.OK
        ]
        if broken:
            print(*broken, sep="\n")
            return 1
        lived = 0
        for number, code, output in _tried(clean, [(mutant, mutant.tests) for mutant in wanted], options.jobs):
            if code != pytest.ExitCode.TESTS_FAILED:
                lived += 1
                print(f"lived: {wanted[number]}", flush=True)
                if code != pytest.ExitCode.OK:
                    print(f"its tests neither passed nor failed ({code}):\n{output}", flush=True)
    print(f"{len(wanted) - lived} killed, {lived} lived")
    return int(lived > 0)


def _by_file(tests: Iterable[str]) -> list[tuple[str, ...]]:
    """The tests of each file, or the file itself where all of it is asked for."""
    files: dict[str, list[str]] = {}
    for test in sorted(tests):
        files.setdefault(test.partition("::")[0], []).append(test)
    return [(file,) if file in own else tuple(own) for file, own in files.items()]


def _import_libraries() -> None:
    importlib.import_module("peers").declare_operators()
    for library in LIBRARIES:
        importlib.import_module(library)
    gc.freeze()  # or every collection in a fork would go through all of it, and copy it


def _copy_project(target: Path) -> None:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target / name)
    target.joinpath(".venv").symlink_to((ROOT / ".venv").resolve())


def _tried(clean: Path, trials: Sequence[tuple[Mutant | None, tuple[str, ...]]], jobs: int) -> Iterator[tuple[int, int, str]]:
    """The number of each trial as it ends, the exit status of its tests (below 0 their signal), and their output."""
    waiting, running = list(enumerate(trials))[::-1], {}
    ended = 0
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                number, (mutant, tests) = waiting.pop()
                place = clean if mutant is None else _mutated(clean, clean.with_name(f"mutant-{number}"), mutant)
                output = clean.with_name(f"output-{number}")
                running[_started(place, tests, output)] = number, place, output
            process, status = os.wait()
            _end(process)
            number, place, output = running.pop(process)
            if place != clean:
                shutil.rmtree(place, ignore_errors=True)
            ended += 1
            mutant, tests = trials[number]
            print(f"{ended}/{len(trials)}  {mutant or ' '.join(tests)}", file=sys.stderr, flush=True)
            yield number, os.waitstatus_to_exitcode(status), output.read_text(errors="replace")
    finally:
        for process in running:
            _end(process)


def _end(process: int) -> None:
    """End a process, if it has not ended, and what its tests have left running."""
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


def _mutated(clean: Path, place: Path, mutant: Mutant) -> Path:
    """A copy of the project, what Python has compiled of it included, with a mutant in it."""
    shutil.copytree(clean, place, symlinks=True, copy_function=os.link)
    file = place / SOURCES / mutant.file
    source = file.read_text(encoding="utf-8")
    file.unlink()  # the same file as the clean one, until now
    file.write_text(source.replace(mutant.old, mutant.new), encoding="utf-8")
    return place


def _started(place: Path, tests: Sequence[str], output: Path) -> int:
    """A process that runs the tests of a copy: its number, which is its group's number, too."""
    process = os.fork()
    if process:
        return process
    code = 70
    try:
        os.setsid()
        signal.alarm(TIMEOUT)
        code = _run(place, tests, output)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _run(place: Path, tests: Sequence[str], output: Path) -> int:
    """The exit status of the tests of a copy, in this process."""
    with output.open("w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    os.chdir(place)
    sys.path.insert(0, str(place / "src"))
    os.environ["PYTHONPATH"] = sys.path[0]
    import vitrail

    if not Path(vitrail.__file__).is_relative_to(place):
        raise ImportError(f"the tests would try {vitrail.__file__}")
    files = [str(place / "tests" / test) for test in tests]
    code = pytest.main(["-x", "-q", "--tb=short", "-p", "no:cacheprovider", f"--rootdir={place}", *files])
    sys.stdout.flush()
    return int(code)


if __name__ == "__main__":
    sys.exit(main())

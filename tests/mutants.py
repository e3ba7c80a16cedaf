"""Put faults into the sources, one at a time, and report those that no test notices: ``make mutants BEFORE=COMMIT``.

Faults come from `mutation_rules`. They are drawn from the lines that differ from a commit, or from all sources. The tests that
mirror the file run first, then those that import it. Each fault is tried in a copy of the project, in a process that is forked
from one with the large libraries. A test that fails must pass without the fault, or nothing is decided.
"""

import argparse
import ast
import compileall
import gc
import importlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from mutation_rules import Fault, faults

ROOT = Path(__file__).parents[1]
SOURCES = Path("src/vitrail")
COPIED = ("src", "tests", "docs", "benchmarks", "requirements", "README.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml")
LIBRARIES = (
    "hypothesis", "matplotlib.figure", "onnxruntime", "pydantic", "rich", "sklearn.linear_model", "sklearn.metrics",
    "sklearn.neighbors", "timm", "torch.distributed.fsdp", "torch.utils.data", "transformers.modeling_utils",
)  # fmt: skip
"""Libraries that are imported once for all mutants."""
LIMIT = 60
"""Seconds for the tests of one mutant."""
MOST_FILES = 4
"""Number of test files that try one mutant."""
LIVED, KILLED, UNDECIDED = 0, 1, 2


@dataclass(frozen=True)
class Mutant:
    """A fault in a file, whose path is relative to the project."""

    file: Path
    fault: Fault

    def __str__(self) -> str:
        return f"{self.file}:{self.fault.line}: {self.fault.describe(self.source)}"

    @property
    def source(self) -> str:
        return (ROOT / self.file).read_text(encoding="utf-8")


def changed_lines(commit: str) -> dict[Path, set[int]]:
    """Return the numbers of the lines of every source file that differ from a commit."""
    command = ["git", "diff", "--unified=0", "--no-color", "--no-ext-diff", "--no-prefix", commit, "--", str(SOURCES)]
    diff = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    lines: dict[Path, set[int]] = {}
    for line in diff.splitlines():
        if line.startswith("+++ "):
            file = Path(line[4:])
        elif found := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            start, count = int(found[1]), int(found[2] or 1)
            lines.setdefault(file, set()).update(range(start, start + count))
    return {file: numbers for file, numbers in lines.items() if file.suffix == ".py"}


def draw(lines: dict[Path, set[int]] | None, only: str, seed: int) -> list[Mutant]:
    """Return mutants in random order: first one of every line, then a second one of every line, and so on."""
    files = sorted(lines) if lines is not None else sorted(file.relative_to(ROOT) for file in (ROOT / SOURCES).rglob("*.py"))
    mutants = [
        Mutant(file, fault)
        for file in files
        if only in str(file)
        for fault in faults((ROOT / file).read_text(encoding="utf-8"))
        if lines is None or fault.line in lines[file]
    ]
    random.Random(seed).shuffle(mutants)
    seen: Counter[tuple[Path, int]] = Counter()
    rounds = []
    for mutant in mutants:
        seen[mutant.file, mutant.fault.line] += 1
        rounds.append(seen[mutant.file, mutant.fault.line])
    return [mutant for _, mutant in sorted(zip(rounds, mutants, strict=True), key=lambda pair: pair[0])]


@cache
def imports(file: Path) -> frozenset[str]:
    """Return the names of the modules of the library that a file imports."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vitrail"):
            names |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
        elif isinstance(node, ast.Import):
            names |= {name.name for name in node.names if name.name.startswith("vitrail")}
    return frozenset(names)


def find_tests(file: Path) -> list[str]:
    """Return the test files for a source file: its mirror, then the nearest ones that import it, or a module that imports it."""
    inner = file.relative_to(SOURCES)
    mirror = ROOT / "tests" / inner.with_name(f"test_{inner.name}")
    modules = {_module(SOURCES / inner)}
    found = [mirror] if mirror.is_file() else []
    for _ in range(3):
        tests = [test for test in (ROOT / "tests").rglob("test_*.py") if test != mirror and imports(test) & modules]
        near = {test: len(os.path.commonpath([test, mirror])) for test in tests}
        found += sorted(tests, key=lambda test: (-near[test], test.stat().st_size))
        if found:
            break
        sources = [path for path in (ROOT / SOURCES).rglob("*.py") if imports(path) & modules]
        modules |= {_module(path.relative_to(ROOT)) for path in sources}
    return [str(test.relative_to(ROOT)) for test in found[:MOST_FILES]]


def _module(file: Path) -> str:
    return ".".join(file.relative_to("src").with_suffix("").parts).removesuffix(".__init__")


def judge(mutant: Mutant, clean: Path, place: Path) -> int:
    """Return whether the tests notice a mutant: `LIVED`, `KILLED` or `UNDECIDED`."""
    shutil.copytree(clean, place, symlinks=True, copy_function=os.link)
    file, tests = place / mutant.file, find_tests(mutant.file)
    file.unlink()  # a link to the clean file
    file.write_text(mutant.fault.apply(mutant.source), encoding="utf-8")
    if not tests or run_tests(place, tests) == pytest.ExitCode.OK:
        return LIVED
    failed = place / "failed"
    suspects = failed.read_text().splitlines()[:1] if failed.is_file() else tests
    return KILLED if run_tests(clean, suspects) == pytest.ExitCode.OK else UNDECIDED


def run_tests(place: Path, tests: Sequence[str]) -> int:
    """Return the exit status of tests in a copy of the project, in a process that ends after `LIMIT` seconds."""
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    code = 70
    try:
        signal.alarm(LIMIT)
        silent = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(silent, stream)
        os.chdir(place)
        os.environ["PYTHONPATH"] = str(place / "src")
        sys.path.insert(0, os.environ["PYTHONPATH"])
        if Path(importlib.import_module("vitrail").__file__ or "").is_relative_to(place):
            code = int(
                pytest.main(["-x", "-q", "--tb=no", "-p", "no:cacheprovider", f"--rootdir={place}", *tests], [Failures(place)])
            )
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


class Failures:
    """A plugin that writes the names of failed tests into a file."""

    def __init__(self, place: Path) -> None:
        self.file = place / "failed"

    def pytest_runtest_logreport(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        """Write the name of a test, or of a file that cannot be collected."""
        if report.failed:
            with self.file.open("a") as file:
                file.write(f"{report.nodeid}\n")

    pytest_collectreport = pytest_runtest_logreport


def try_all(mutants: Iterable[Mutant], clean: Path, jobs: int, deadline: float) -> Counter[int]:
    """Try mutants side by side until the deadline, print those that live, and return the number of each verdict."""
    waiting, running, verdicts = iter(mutants), {}, Counter[int]()
    while True:
        while len(running) < jobs and time.monotonic() < deadline and (mutant := next(waiting, None)):
            place = clean.with_name(f"mutant-{verdicts.total() + len(running)}-{mutant.fault.start}")
            running[_fork(mutant, clean, place)] = mutant, place
        if not running:
            return verdicts
        process, status = os.waitpid(-1, os.WNOHANG)
        if process:
            mutant, place = running.pop(process)
            verdict = os.waitstatus_to_exitcode(status)
            verdicts[verdict if verdict in (LIVED, KILLED) else UNDECIDED] += 1
            if verdict == LIVED:
                print(f"lived: {mutant}", flush=True)
            _end(process, place)
        elif time.monotonic() >= deadline:
            for process, (_, place) in running.items():
                _end(process, place)
            return verdicts
        else:
            time.sleep(0.05)


def _fork(mutant: Mutant, clean: Path, place: Path) -> int:
    process = os.fork()
    if not process:
        code = UNDECIDED
        try:
            os.setsid()
            code = judge(mutant, clean, place)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return process


def _end(process: int, place: Path) -> None:
    """End a process with all that its tests have left running, and remove its folder."""
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    shutil.rmtree(place, ignore_errors=True)


def main() -> int:
    """Try the mutants that the command line describes; 1 if one lives."""
    parser = argparse.ArgumentParser(description="Put faults into the sources, one at a time, and see whether the tests notice.")
    parser.add_argument("--before", metavar="COMMIT", help="only lines that differ from this commit")
    parser.add_argument("--only", metavar="TEXT", default="", help="only files whose path contains this")
    parser.add_argument("--count", metavar="N", type=int, help="number of mutants (as many as there is time for)")
    parser.add_argument("--seconds", metavar="N", type=float, default=120, help="time to stop after (120)")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="seed of the order (0)")
    parser.add_argument("--jobs", metavar="N", type=int, default=os.cpu_count() or 1, help="tried side by side (all cores)")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    mutants = draw(changed_lines(options.before) if options.before else None, options.only, options.seed)
    importlib.import_module("peers").declare_operators()
    for library in LIBRARIES:
        importlib.import_module(library)
    gc.freeze()  # a collection in a fork would copy all of it
    with tempfile.TemporaryDirectory(prefix="vitrail-mutants-", ignore_cleanup_errors=True) as folder:
        clean = Path(folder, "clean")
        clean.mkdir()
        for name in COPIED:
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy2)(ROOT / name, clean / name)
        clean.joinpath(".venv").symlink_to((ROOT / ".venv").resolve())
        compileall.compile_dir(clean / "src", quiet=2, workers=options.jobs)
        verdicts = try_all(mutants[: options.count], clean, options.jobs, deadline)
    print(f"{verdicts[KILLED]} killed, {verdicts[LIVED]} lived, {verdicts[UNDECIDED]} undecided", end="")
    print(f"; {verdicts.total()} of {len(mutants)} possible mutants, seed {options.seed}")
    return int(verdicts[LIVED] > 0)


if __name__ == "__main__":
    sys.exit(main())

"""Threads wait for each other only briefly, unless the user has said how they wait."""

import os
import subprocess
import sys

import pytest

from vitrail.runtime.waiting import BRIEFLY, WAITING


def waiting_after(program: str, **environment: str) -> str:
    """What a program that ends with a word about GOMP_SPINCOUNT says in an environment where nothing else says how to wait."""
    rest = {name: value for name, value in os.environ.items() if name not in WAITING}
    command = [sys.executable, "-c", f"{program}; import os; print(os.environ.get('GOMP_SPINCOUNT'))"]
    return subprocess.run(command, env=rest | environment, capture_output=True, text=True, check=True).stdout.strip()


def test_threads_wait_briefly_where_torch_is_not_there_yet():
    assert waiting_after("import vitrail") == BRIEFLY
    assert waiting_after("import vitrail.__main__") == BRIEFLY


def test_what_has_been_said_of_waiting_stands_and_nothing_is_said_too_late():
    assert waiting_after("import vitrail", GOMP_SPINCOUNT="7") == "7"
    assert waiting_after("import vitrail", OMP_WAIT_POLICY="active") == "None"
    assert waiting_after("import sys; sys.modules['torch'] = None; import vitrail") == "None"


@pytest.mark.skipif(sys.platform != "linux", reason="torch's OpenMP is GNU's on Linux alone")
def test_the_openmp_of_torch_reads_it():
    program = "import vitrail, torch; torch.ones(10**6).add(1)"
    rest = {name: value for name, value in os.environ.items() if name not in WAITING}
    shown = subprocess.run(
        [sys.executable, "-c", program], env=rest | {"OMP_DISPLAY_ENV": "verbose"}, capture_output=True, text=True, check=True
    ).stderr
    assert f"GOMP_SPINCOUNT = '{BRIEFLY}'" in shown

"""Threads wait for each other only briefly, unless the user has said how they wait; what other programs take is seen."""

import os
import platform
import re
import subprocess
import sys
import time

import pytest

from vitrail.runtime.processor import BRIEFLY, SCHED_SETATTR, SLICE, WAITING, Others

LINUX = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux tells what a core does")
GREEDY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"


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


TURNS = """
import os, struct, ctypes, platform, threading
from vitrail.runtime.processor import take_short_turns
BEFORE
take_short_turns()
def told():
    room = ctypes.create_string_buffer(56)
    ctypes.CDLL(None).syscall({"x86_64": 315, "aarch64": 275}[platform.machine()], 0, room, 56, 0)
    _, policy, _, nice, _, turn, *_ = struct.unpack("=IIQiIQQQII", room.raw)
    print(policy, nice, turn, os.sched_getaffinity(0) == cores)
cores = os.sched_getaffinity(0)
told()
thread = threading.Thread(target=told)
thread.start()
thread.join()
"""


@pytest.mark.skipif(platform.machine() not in SCHED_SETATTR or sys.platform != "linux", reason="only Linux has such turns")
@pytest.mark.parametrize("nice", [0, 5])
def test_turns_are_short_in_all_threads_and_nothing_else_changes(nice):
    run = subprocess.run(
        [sys.executable, "-c", TURNS.replace("BEFORE", f"os.nice({nice})")], capture_output=True, text=True, check=True
    )
    released = tuple(int(number) for number in re.findall(r"\d+", platform.release())[:2])
    turn = SLICE if released >= (6, 12) else 0
    assert run.stdout.splitlines() == 2 * [f"{os.SCHED_OTHER} {os.nice(0) + nice} {turn} True"]


@pytest.mark.skipif(platform.machine() not in SCHED_SETATTR or sys.platform != "linux", reason="only Linux has such turns")
def test_a_policy_that_was_chosen_stands():
    program = TURNS.replace("BEFORE", "os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))")
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {line.split()[0] for line in run.stdout.splitlines()} == {str(os.SCHED_BATCH)}


@pytest.fixture
def one_core():
    """This process on one core, where all time is its own, others' or nobody's."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


@LINUX
def test_a_greedy_program_beside_is_seen(one_core):
    with subprocess.Popen([sys.executable, "-S", "-c", GREEDY]) as greedy:
        time.sleep(0.2)
        others = Others()
        time.sleep(0.4)
        share = others.share()
        greedy.kill()
    assert share is not None
    assert share > 0.8


@LINUX
def test_what_this_process_computes_is_not_taken_by_others(one_core):
    others, began, own = Others(), time.perf_counter(), time.process_time()
    while time.process_time() - own < 0.4:
        pass
    share, whole = others.share(), time.perf_counter() - began
    assert share is not None
    assert share < 1 - 0.4 / whole + 0.1

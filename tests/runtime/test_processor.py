"""A core that others want as well is taken in short turns; what other programs take of it is seen."""

import os
import platform
import re
import subprocess
import sys
import time

import pytest

from vitrail.runtime import processor
from vitrail.runtime.processor import SCHED_SETATTR, SLICE, Others, take_short_turns

LINUX = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux tells what a core does")
SHORT_TURNS = pytest.mark.skipif(
    platform.machine() not in SCHED_SETATTR or sys.platform != "linux", reason="only Linux has such turns"
)
GREEDY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"


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


@SHORT_TURNS
@pytest.mark.parametrize("nice", [0, 5])
def test_turns_are_short_in_all_threads_and_nothing_else_changes(nice):
    run = subprocess.run(
        [sys.executable, "-c", TURNS.replace("BEFORE", f"os.nice({nice})")], capture_output=True, text=True, check=True
    )
    released = tuple(int(number) for number in re.findall(r"\d+", platform.release())[:2])
    turn = SLICE if released >= (6, 12) else 0
    assert run.stdout.splitlines() == 2 * [f"{os.SCHED_OTHER} {min(19, os.nice(0) + nice)} {turn} True"]


@SHORT_TURNS
def test_a_policy_that_was_chosen_stands():
    program = TURNS.replace("BEFORE", "os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))")
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {line.split()[0] for line in run.stdout.splitlines()} == {str(os.SCHED_BATCH)}


@SHORT_TURNS
def test_a_system_that_does_not_tell_the_policy_is_left_alone(monkeypatch):
    def refused(process):
        raise OSError("not permitted")

    monkeypatch.setattr(os, "sched_getscheduler", refused)
    take_short_turns()


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


@pytest.mark.parametrize(
    ("limit", "cores"), [("max 100000", 8), ("400000 100000", 4), ("50000 100000", 1), ("9900000 100000", 8), ("", 8)]
)
def test_a_container_limits_the_cores(limit, cores, monkeypatch, tmp_path):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(processor, "CONTAINER", tmp_path / "cpu.max")
    assert processor.usable_cores() == 8
    (tmp_path / "cpu.max").write_text(limit)
    assert processor.usable_cores() == cores

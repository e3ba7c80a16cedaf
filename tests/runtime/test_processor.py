"""What other programs take of the cores is seen, and what a container grants."""

import os
import subprocess
import sys
import time

import pytest

from vitrail.runtime import processor
from vitrail.runtime.processor import Others

LINUX = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux tells what a core does")
GREEDY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"


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

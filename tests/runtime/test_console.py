"""Progress that nobody reads any more."""

import contextlib
import os
import pty
import subprocess
import sys

import pytest

DRAWN = """
import time
from rich.progress import Progress
from vitrail.runtime.console import stderr_console
from vitrail.runtime.terminal import note

with Progress(console=stderr_console()) as bar:
    task = bar.add_task("", total=20)
    for _ in range(20):
        bar.advance(task)
        bar.console.print("printed")
        note("noted")
        time.sleep(0.02)
print("done")
"""


def start(stderr: int) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", DRAWN], stdout=subprocess.PIPE, stderr=stderr, text=True)


def test_a_terminal_that_is_closed_ends_nothing():
    ours, theirs = pty.openpty()
    process = start(theirs)
    os.close(theirs)
    shown = os.read(ours, 4096)
    os.close(ours)
    assert shown and process.communicate(timeout=30) == ("done\n", None) and process.returncode == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no such device here")
def test_a_log_on_a_full_disk_ends_nothing():
    full = os.open("/dev/full", os.O_WRONLY)
    process = start(full)
    os.close(full)
    assert process.communicate(timeout=30) == ("done\n", None) and process.returncode in (0, 120)  # of Python's last flush


def test_lines_are_shown_above_a_bar_on_a_terminal():
    ours, theirs = pty.openpty()
    process, shown = start(theirs), b""
    os.close(theirs)
    with contextlib.suppress(OSError):  # how a terminal says that nobody writes to it any more
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    assert process.wait(timeout=30) == 0
    assert shown.count(b"printed") == shown.count(b"noted") == 20

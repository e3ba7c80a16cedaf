"""Signals that come before a run has begun to hear them."""

import signal
import subprocess
import sys

import pytest

from vitrail.runtime import signals
from vitrail.runtime.signals import remember_early, remembered_signals

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no such signal")


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGXCPU"])
def test_a_signal_before_a_run_begins_is_heard_when_it_does(name, monkeypatch):
    number = getattr(signal, name)
    before = signal.signal(number, signal.SIG_DFL)
    monkeypatch.setattr(signals, "_EARLY", [])
    told = []
    try:
        remember_early()
        signal.raise_signal(number)
        with remembered_signals(lambda: told.append(True)) as heard:
            assert heard.received == number and told == [True]
        with remembered_signals() as again:
            assert again.received == 0
    finally:
        signal.signal(number, before)


def test_what_a_process_was_told_to_ignore_stays_ignored():
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        remember_early()
        assert signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(
    ("words", "code"),
    [(["train"], 2), (["--debug", "train"], 2), (["predict"], -signal.SIGUSR1), (["predict", "train"], -signal.SIGUSR1)],
)
def test_the_commands_that_later_hear_a_signal_do_not_die_of_it_in_their_first_moment(words, code):
    """The signal comes as soon as the first module of the command line is there; without data the command then ends by itself."""
    script = (
        f"import os, signal, sys; sys.argv = ['vitrail', *{words!r}, '--nonsense']; import vitrail.cli; "
        "os.kill(os.getpid(), signal.SIGUSR1); from vitrail.cli.app import main; main()"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).returncode == code

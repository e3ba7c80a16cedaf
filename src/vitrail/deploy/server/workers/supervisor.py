"""The process that looks after workers: starts them, puts others in the place of those that die, and ends them all."""

import contextlib
import json
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

from vitrail import errors
from vitrail.deploy.server.workers.shared_state import AT_ONCE, DRAIN, SUPERVISOR, Board, Place
from vitrail.errors import VitrailError
from vitrail.runtime.signals import not_ignored
from vitrail.runtime.terminal import exit_at_once

TICK = 0.05
"""Seconds between two looks at the workers."""
STUCK = 15.0
"""Seconds without a sign of life after which a worker is killed: its event loop hangs."""
UNREADY = 300.0
"""Seconds without one after which a worker is killed that is not ready yet: its start hangs."""
GRACE = 3.0
"""Seconds in which workers have ended that were told to end at once."""
LONGEST_PAUSE = 10.0
"""Seconds, at most, until one more worker is tried where they die before they are ready."""
ORDERLY = (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()))
SIGNALS = (*ORDERLY, *((signal.SIGQUIT,) if hasattr(signal, "SIGQUIT") else ()))

log = logging.getLogger(__name__)


class Supervisor:
    """Keeps workers alive, and a second supervisor that takes its place if it is killed itself.

    All are forks of this process, which must have no threads: a new one has the libraries and the model at once, in memory
    that it shares with the others until somebody writes to it. Once the first is ready nothing is said through pipes or by
    signals: whoever is killed at whatever moment leaves no other waiting.

    Args:
        board: where the processes meet.
        work: what a worker does in its place until it is told to end.
        door: the listening socket; it is closed here when workers are told to end, so that the last of them closes it for all.
        patience: seconds in which workers have ended after they were told to.
    """

    def __init__(self, board: Board, work: Callable[[Place], object], door: socket.socket, patience: float):
        self._board, self._work, self._door, self._patience = board, work, door, patience
        self._workers = [_Watched() for _ in board.slots]
        self._second = 0
        self._signal, self._told, self._hurried = 0, 0.0, 0.0
        self._obeyed = not_ignored(SIGNALS)
        self._failed = False

    def run(self, on_start: Callable[[], None]) -> int:
        """Until a signal comes and the workers have ended. Gives the signal's number.

        Args:
            on_start: called when the first worker is ready.

        Raises:
            VitrailError: the first worker could not start, or requests were given up at the end.
        """
        before = {number: signal.getsignal(number) for number in SIGNALS}
        try:
            self._take_charge()
            if self._start_first():
                on_start()
                self._supervise()
            return self._signal
        finally:
            self._board.head.over = 1
            self._kill()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _start_first(self) -> bool:
        """Before the others, so that what it finds is told once, and measured alone. False if a signal came meanwhile."""
        read, write = os.pipe()
        self._start(0, write)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            while not select.select([pipe], [], [], TICK)[0]:  # it is ready, which closes its end, or has died
                if self._signal:
                    return False
                if self._workers[0].hangs(self._board.slots[0].beats, UNREADY):
                    hint = "in Python: start the server before torch has computed anything"
                    raise VitrailError("the server's first worker does not get ready", where="--workers", hint=hint)
            said = pipe.read()
        if said:
            raise _error(said)
        if not self._board.slots[0].ready:
            raise VitrailError("the server's first worker died at its start", where="--workers", hint="see what was said before")
        return True

    def _take_charge(self) -> None:
        self._board.hold(SUPERVISOR)
        for number in self._obeyed:
            signal.signal(number, self._hear)

    def _supervise(self) -> None:
        while not self._ended():
            self._look()
            time.sleep(TICK)
        if self._failed:
            raise VitrailError("requests were given up", where="shutting down", hint="see what was said before")

    def _hear(self, number: int, frame: FrameType | None) -> None:
        """The first signal is for an orderly end, the next one for an end at once."""
        self._board.head.order = AT_ONCE if self._signal or number not in ORDERLY else DRAIN
        self._signal = self._signal or number

    def _ended(self) -> bool:
        return bool(self._board.head.order) and not any(slot.pid for slot in self._board.slots)

    def _look(self) -> None:
        board = self._board
        for number, (slot, watched) in enumerate(zip(board.slots, self._workers, strict=True)):
            if slot.pid and not self._lives(slot.pid, number):
                slot.pid = slot.ready = slot.connections = slot.troubled = 0
            if slot.pid and board.head.order and not slot.ready:  # it has let nothing in
                os.kill(slot.pid, signal.SIGKILL)
            elif slot.pid and watched.hangs(slot.beats, STUCK if slot.ready else UNREADY):
                log.error("worker %d, process %d, hangs and is killed", number + 1, slot.pid)
                os.kill(slot.pid, signal.SIGKILL)
            elif not slot.pid and not board.head.order and watched.may_start():
                self._start_another(number)
        if board.head.order:
            self._end()
        elif not self._second or _exit_code(self._second) is not None:
            self._second = 0
            with contextlib.suppress(OSError):  # it is tried again at the next look
                self._second = self._fork(self._stand_by, os.getpid())

    def _end(self) -> None:
        """Wait for workers that were told to end, and no longer than they may take."""
        self._door.close()
        self._told += TICK
        self._hurried += TICK * (self._board.head.order == AT_ONCE)
        if self._told > self._patience or self._hurried > GRACE:
            self._failed = True
            self._kill()

    def _lives(self, pid: int, number: int) -> bool:
        """Whether a worker does; if not, it is said why."""
        status = self._status(number, pid)
        if status is None:
            return True
        ready = bool(self._board.slots[number].ready)
        if self._board.head.order:
            self._failed |= ready and status != 0
            return False
        how = f"was killed by signal {-status}" if status < 0 else "is gone"
        log.error("worker %d, process %d, %s: another takes its place", number + 1, pid, how)
        self._workers[number].died(ready=ready)
        return False

    def _start_another(self, number: int) -> None:
        try:
            self._start(number)
        except OSError as error:  # no memory, or no process may be added; the others go on
            log.error("worker %d cannot be started now: %s", number + 1, error)
            self._workers[number].died(ready=False)

    def _start(self, number: int, pipe: int | None = None) -> None:
        self._board.slots[number].ready = 0
        self._board.slots[number].pid = self._fork(self._be_worker, number, pipe)

    def _fork(self, become: Callable[..., object], *given: Any) -> int:
        """The number of a new process that becomes something, in a session of its own: no terminal sends it signals."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
                stream.flush()  # or each process would write what is left
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            os.setsid()
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            become(*given)
            code = 0
        except VitrailError as error:
            log.error("%s", error)
        except Exception:
            log.exception("an unforeseen error")
        finally:
            exit_at_once(code)

    def _be_worker(self, number: int, pipe: int | None) -> None:
        """Args: its number; and where it says why it cannot start, which is closed when it has."""
        if not self._board.hold(number):  # a supervisor that was killed in the middle has had two made
            return
        place = Place(self._board, number, (lambda: None) if pipe is None else lambda: os.close(pipe))
        place.own.pid = os.getpid()  # a supervisor that is killed now has not written it
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            self._work(place)
        except VitrailError as error:
            if pipe is None or place.own.ready:
                raise
            os.write(pipe, json.dumps([type(error).__name__, error.what, error.where and str(error.where), error.hint]).encode())

    def _stand_by(self, first: int) -> NoReturn:
        """Wait until the supervisor is killed, and be it."""
        while os.getppid() == first and not self._board.head.over:
            if self._board.head.order:
                self._door.close()
            time.sleep(TICK)
        if self._board.head.over:
            exit_at_once(0)
        log.error("process %d, which looks after the workers, was killed: process %d takes its place", first, os.getpid())
        self._second = 0
        self._take_charge()
        code = 1
        try:
            self._supervise()
            code = 0
        finally:
            self._board.head.over = 1
            self._kill()
            exit_at_once(code)

    def _kill(self) -> None:
        for number, slot in enumerate(self._board.slots):
            if slot.pid and self._status(number, slot.pid) is None:
                os.kill(slot.pid, signal.SIGKILL)
                while self._status(number, slot.pid) is None:
                    time.sleep(TICK / 10)
        if self._second:  # which sees for itself that all is over
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._second, 0)

    def _status(self, number: int, pid: int) -> int | None:
        """The exit code of a worker, negative for a signal; None while it lives. Of one that another supervisor started: 0."""
        with contextlib.suppress(ChildProcessError):
            return _exit_code(pid)
        return None if self._board.holds(number) else 0


class _Watched:
    """What a supervisor remembers of a worker."""

    def __init__(self) -> None:
        self._beats, self._silent = 0, 0.0
        self._pause, self._waited = 0.0, 0.0

    def hangs(self, beats: int, patience: float) -> bool:
        """Whether it has shown no sign of life for so many seconds; asked at every tick.

        Ticks are added up, and no clock is read, which would go on while all processes are stopped.
        """
        self._silent = self._silent + TICK if beats == self._beats else 0.0
        self._beats = beats
        return self._silent > patience

    def died(self, *, ready: bool) -> None:
        """It has; one that was never ready is followed by another after a pause that grows."""
        self._pause = 0.0 if ready else min(LONGEST_PAUSE, max(0.5, 2 * self._pause))
        self._waited = self._silent = 0.0

    def may_start(self) -> bool:
        """Whether another may be started; asked at every tick."""
        self._waited += TICK
        return self._waited > self._pause


def _exit_code(child: int) -> int | None:
    """Of a child, negative for a signal; None while it lives."""
    ended, status = os.waitpid(child, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _error(said: bytes) -> VitrailError:
    """What a worker could not start for."""
    kind, what, where, hint = json.loads(said)
    found: VitrailError = getattr(errors, kind, VitrailError)(what, where=where, hint=hint)
    return found

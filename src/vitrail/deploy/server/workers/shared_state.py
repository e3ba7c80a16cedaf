"""What the processes of a server know of each other, in memory that all of them share."""

import contextlib
import ctypes
import mmap
import sys
import tempfile
from collections.abc import Callable, Iterator

MOST_WORKERS = 64
TEXT = 2**18
"""Bytes of a worker's metrics."""
SUPERVISOR = -1
"""The number of who looks after the workers."""
DRAIN, AT_ONCE = 1, 2
"""Orders to all workers: finish what is there, and end without it."""
READS = 100
"""How often a text that is being written is read again; after that its writer is taken to have been killed."""


class Slot(ctypes.Structure):
    """What is known of one worker, whichever process it is at the moment."""

    _fields_ = (
        ("pid", ctypes.c_int64),
        ("ready", ctypes.c_int64),  # whether it answers
        ("beats", ctypes.c_int64),  # grow as long as its event loop runs
        ("troubled", ctypes.c_int64),  # whether nothing is computed, or nothing new is let in
        ("connections", ctypes.c_int64),
        ("version", ctypes.c_int64),  # of the text, odd while it is being written
        ("text", ctypes.c_char * TEXT),  # its metrics
    )


class Head(ctypes.Structure):
    """What concerns all of them."""

    _fields_ = (
        ("order", ctypes.c_int64),  # to all workers: nothing (0), `DRAIN`, or `AT_ONCE`
        ("over", ctypes.c_int64),  # whether the server has ended
        ("pace", ctypes.c_double),  # seconds of an image, and of the slowest batch, as the first worker has found
        ("slowest", ctypes.c_double),
        ("engine", ctypes.c_char * 32),  # that the first worker has found the quickest, if it had a choice
    )


class Board:
    """Made before the processes are. All of them read it; a worker writes into its slot, and a supervisor what is left.

    Args:
        count: workers.
    """

    def __init__(self, count: int):
        memory = mmap.mmap(-1, ctypes.sizeof(Head) + count * ctypes.sizeof(Slot))
        self.head = Head.from_buffer(memory)
        self.slots: list[Slot] = list((Slot * count).from_buffer(memory, ctypes.sizeof(Head)))
        self._lock = tempfile.TemporaryFile()  # noqa: SIM115 - it is open as long as the server

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Be the only process that does something for which there is little memory; for one thread of each process.

        Who is killed gives his turn up: the system takes such locks back.
        """
        if len(self.slots) == 1 or sys.platform == "win32":
            yield
            return
        import fcntl

        fcntl.lockf(self._lock, fcntl.LOCK_EX, 1)
        try:
            yield
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN, 1)

    if sys.platform != "win32":  # where no process is forked

        def hold(self, number: int) -> bool:
            """Show that a worker lives, or `SUPERVISOR`, for as long as this process does; False where there is one already."""
            import fcntl

            try:
                fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 2 + number)
            except OSError:
                return False
            return True

        def holds(self, number: int) -> bool:
            """Whether it lives in another process, whoever the parent of that is; even if it stands still."""
            import fcntl

            if not self.hold(number):
                return True
            fcntl.lockf(self._lock, fcntl.LOCK_UN, 1, 2 + number)
            return False


class Place:
    """The slot of one worker, from where it sees the others'."""

    def __init__(self, board: Board, number: int, on_ready: Callable[[], None] = lambda: None):
        self.board, self.number, self.own = board, number, board.slots[number]
        self._on_ready = on_ready
        self.own.version, self.own.text = 0, b""  # who was here before may have been killed while it wrote

    @classmethod
    def alone(cls) -> "Place":
        """The place of a server that is one process."""
        return cls(Board(1), 0)

    def begin(self) -> None:
        """It answers from now on."""
        self.own.ready = 1
        self._on_ready()

    @property
    def several(self) -> bool:
        """Whether there are other workers."""
        return len(self.board.slots) > 1

    @property
    def answering(self) -> int:
        """Workers that answer."""
        return len(self._others) + (not self.own.troubled)

    @property
    def _others(self) -> list[Slot]:
        return [slot for slot in self.board.slots if slot is not self.own and slot.ready and not slot.troubled]

    @property
    def yields(self) -> bool:
        """Whether a new connection is better left to another worker, which has fewer."""
        return any(other.connections < self.own.connections for other in self._others)

    @property
    def replaced(self) -> bool:
        """Whether it is in trouble, and others can do its work."""
        return bool(self.own.troubled and self._others)

    def say(self, metrics: bytes) -> None:
        """Have the others know its metrics."""
        if len(metrics) < TEXT:
            self.own.version += 1
            self.own.text = metrics
            self.own.version += 1

    def heard(self) -> dict[int, str]:
        """The metrics of all workers, by their numbers, as they last were."""
        found = {number: _read(slot) for number, slot in enumerate(self.board.slots) if slot.ready}
        return {number: text.decode() for number, text in found.items() if text}


def _read(slot: Slot) -> bytes:
    """The text of a slot, whole; nothing if it cannot be had."""
    for _ in range(READS):
        version = slot.version
        text = bytes(slot.text)
        if version == slot.version and version % 2 == 0:
            return text
    return b""

"""Commands in several processes that know of each other, and that share what it takes to import torch."""

import os
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from soak_runs import PROCESSES


@dataclass(frozen=True)
class Command:
    """One of the processes, and the files of what it prints."""

    process: Any
    out: Path
    err: Path


def started(words: Sequence[str], count: int, folder: Path) -> list[Command]:
    """``vitrail WORDS`` in so many processes; what they print goes into a folder of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder.mkdir()
    commands = []
    for rank in range(count):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        out, err = (folder / f"{kind}-{rank}" for kind in ("out", "err"))
        process = PROCESSES.Process(target=_run, args=(words, {k: str(v) for k, v in place.items()}, out, err))
        process.start()
        commands.append(Command(process, out, err))
    return commands


def killed_at_work(folder: Path) -> None:
    """A process that is killed while it works in a folder."""
    from vitrail.files import locked

    with locked(folder):
        os.kill(os.getpid(), signal.SIGKILL)


def _run(words: Sequence[str], place: dict[str, str], out: Path, err: Path) -> None:
    """The command, in a process of its own."""
    import torch

    from vitrail.cli.app import main

    torch.set_num_threads(1)
    os.environ.update(place)
    for number, file in ((1, out), (2, err)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    main(list(words))

"""A supervisor whose workers only do what their names say; run as a program, so that what is forked is small.

python server_workers.py WORK COUNT
"""

import itertools
import os
import socket
import sys
import time

from vitrail.deploy.server.workers import supervisor
from vitrail.deploy.server.workers.shared_state import DRAIN, Board, Place
from vitrail.errors import ModelFileError, VitrailError


def answer(place: Place) -> None:
    """Live until it is told to end."""
    place.begin()
    while not place.board.head.order:
        place.own.beats += 1
        time.sleep(0.01)


def refuse(place: Place) -> None:
    raise ModelFileError("the model is damaged", where="model.onnx", hint="export it again")


def take_long(place: Place) -> None:
    time.sleep(60)


def vanish(place: Place) -> None:
    os._exit(3)


def freeze(place: Place) -> None:
    """The first of them hangs once; in its place another answers."""
    if place.number == 0 and not place.own.troubled:
        place.begin()
        place.own.troubled = 1
        time.sleep(60)
    answer(place)


def refuse_to_end(place: Place) -> None:
    place.begin()
    while True:
        place.own.beats += 1
        time.sleep(0.01)


def give_up(place: Place) -> None:
    """End as a worker does that could not answer all."""
    answer(place)
    raise VitrailError("3 requests were given up")


def main(work: str, count: int) -> int:
    supervisor.STUCK = 0.5
    board = Board(count)

    def work_of(place: Place) -> None:
        sys.stderr.write(f"{place.number} {os.getpid()}\n")
        globals()[work](place)

    def started() -> None:
        sys.stderr.write("started\n")

    looking = supervisor.Supervisor(board, work_of, socket.socket(), patience=0.5)
    if work == "answer_without_forks":
        work, forks, fork = "answer", itertools.count(), os.fork
        os.fork = lambda: fork() if next(forks) not in (3, 4) else os.kill(0, 99)  # two workers and the second are there by then
    if work == "refuse_to_end":
        board.head.order = DRAIN
    try:
        return looking.run(started)
    except VitrailError as error:
        sys.stderr.write(f"{type(error).__name__}: {error.what}, {error.where}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))

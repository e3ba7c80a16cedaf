"""The processes that work on a run together: one, or as many as torchrun started, on one machine or on several."""

import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from vitrail.errors import ConfigError, VitrailError
from vitrail.runtime.terminal import is_one_of_several, restarts

T = TypeVar("T")


class Processes:
    """One of ``count`` processes, and its exchanges with the others. All processes call the same methods in the same order."""

    def __init__(self, rank: int = 0, count: int = 1):
        self.rank, self.count = rank, count

    @property
    def first(self) -> bool:
        """True for the process that writes and prints."""
        return self.rank == 0

    def part(self, items: Sequence[T]) -> Sequence[T]:
        """Return this process's contiguous part of the items: the parts of all ranks, in order, make up all items."""
        return items[len(items) * self.rank // self.count : len(items) * (self.rank + 1) // self.count]

    def dealt(self, items: Sequence[T]) -> Sequence[T]:
        """Return every ``count``-th item, from this process's rank on; `in_order` restores the order of results."""
        return items[self.rank :: self.count]

    def in_order(self, batches: Iterable[Sequence[T]]) -> Iterator[list[T]]:
        """Yield the results of all processes in the order of the items before `dealt`, as soon as they are complete.

        ``batches`` are this process's results, in batches; each step yields the results that are next in order.
        """
        own, made, turn = iter(batches), [deque[T]() for _ in range(self.count)], 0
        while (given := self.all_gather(next(own, None))) != [None] * self.count:
            for queue, batch in zip(made, given, strict=True):
                queue.extend(batch or ())
            ready = []
            while made[turn]:
                ready.append(made[turn].popleft())
                turn = (turn + 1) % self.count
            yield ready

    def all_reduce(self, values: Tensor) -> Tensor:
        """Return the sum of ``values`` over all processes, to every process."""
        if self.count > 1:
            dist.all_reduce(values, op=dist.ReduceOp.SUM)
        return values

    def all_reduce_max(self, *values: int) -> list[int]:
        """Return the maximum of each number over all processes."""
        if self.count == 1:
            return list(values)
        numbers = torch.tensor(values)
        dist.all_reduce(numbers, op=dist.ReduceOp.MAX)
        return numbers.tolist()

    def broadcast(self, value: T) -> T:
        """Return the first process's value."""
        box = [value]
        if self.count > 1:
            dist.broadcast_object_list(box)
        return box[0]

    def all_gather(self, value: T) -> list[T]:
        """Return the value of each process, in order."""
        values: list[Any] = [value]
        if self.count > 1:
            values = [None] * self.count
            dist.all_gather_object(values, value)
        return values

    def gathered(self, items: Sequence[T]) -> list[T]:
        """Return the items of all processes, in order."""
        return [item for some in self.all_gather(items) for item in some]

    def in_batches(self, parts: list[T]) -> list[T]:
        """Return all processes' parts in the order of the items: each process has one part of every batch."""
        return parts if self.count == 1 else [part for batch in zip(*self.all_gather(parts), strict=True) for part in batch]

    def raise_together(self, error: VitrailError | None) -> None:
        """Raise the error in every process if any process passes one, so that none waits for another forever."""
        if any(self.all_reduce_max(error is not None)):
            raise next(error for error in self.all_gather(error) if error is not None)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Raise a `VitrailError` in all processes if one of them raises it inside the block."""
        failure = None
        try:
            yield
        except VitrailError as error:
            failure = error
        self.raise_together(failure)

    def in_step(self, batches: Iterator[T], count: int) -> Iterator[T]:
        """Yield ``count`` batches; before each, an error of any process is raised in all."""
        for _ in range(count):
            with self.together():
                batch = next(batches)
            yield batch


ALONE = Processes()


@contextmanager
def open_processes() -> Iterator[Processes]:
    """Join the process group of torchrun, or yield `ALONE` without torchrun.

    CPU tensors go over gloo, GPU tensors over NCCL; each process of a machine takes its own GPU.
    """
    if dist.is_initialized():
        yield Processes(dist.get_rank(), dist.get_world_size())
        return
    _require_started()
    if not is_one_of_several():
        yield ALONE
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    _meet("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    yield Processes(dist.get_rank(), dist.get_world_size())
    # A thread of gloo still frees the objects of the last exchange, and needs the GIL for that. If this thread, which holds the
    # GIL, destroyed the group at the same time, the two threads would deadlock.
    time.sleep(0.2)
    dist.destroy_process_group()  # not after an error: it would wait for processes that have ended


def _require_started() -> None:
    """Raise `ConfigError` for values of environment variables that torchrun never sets."""
    count, rank = os.environ.get("WORLD_SIZE", "1"), os.environ.get("RANK", "")
    what, where = "", ""
    if not count.isdecimal() or not int(count):
        what, where = f"{count!r} is no number of processes", "$WORLD_SIZE"
    elif int(count) > 1 and (not rank.isdecimal() or int(rank) >= int(count)):
        what, where = f"{rank!r} is no rank of {count} processes: ranks are 0 to {int(count) - 1}", "$RANK"
    elif int(count) > 1 and (missing := [name for name in ("MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]):
        what, where = f"{count} processes cannot meet without {missing[0]}", f"${missing[0]}"
    if what:
        raise ConfigError(what, where=where, hint="start with torchrun, or unset WORLD_SIZE")


def _meet(backend: str) -> None:
    """Join the process group in a thread, so that this process can still handle signals while it waits for the others."""
    failures: list[BaseException] = []
    c10d: Any = dist  # whose types do not name all that it offers

    def meet() -> None:
        try:
            store, rank, count = next(c10d.rendezvous("env://"))
            # torchrun has one store for all its restarts: under the same names the dead processes' addresses would be found
            dist.init_process_group(backend, store=c10d.PrefixStore(f"restart-{restarts()}", store), rank=rank, world_size=count)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=meet, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.05)
    if failures:
        raise failures[0]

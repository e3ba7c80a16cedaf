"""Pictures are read batch by batch, in order, with the error in place of one that cannot be read."""

import threading

import pytest
import torch

from vitrail.data.loading import prefetch as ahead
from vitrail.data.loading.prefetch import each_answer, read_ahead
from vitrail.errors import DataError

BATCHES = [["a", "b"], ["c", "bad"], ["d"]]


def read(picture):
    if picture == "bad":
        raise DataError("no picture")
    return picture.upper()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_pictures_come_in_their_order_and_errors_in_their_place(device, monkeypatch):
    monkeypatch.setattr(ahead, "pick_device", lambda: torch.device(device))
    first, (third, error), last = read_ahead(read, BATCHES)
    assert (first, third, last) == (["A", "B"], "C", ["D"]) and isinstance(error, DataError)
    assert list(read_ahead(read, [])) == []
    with pytest.raises(DataError, match="no picture"):
        list(each_answer(read_ahead(read, BATCHES)))


@pytest.mark.parametrize(("device", "beside"), [("cpu", set()), ("cuda", {"c", "d"})])
def test_the_next_batch_is_read_while_a_gpu_computes_and_not_while_the_cores_do(device, beside, monkeypatch):
    monkeypatch.setattr(ahead, "pick_device", lambda: torch.device(device))
    seen, other = set(), threading.Barrier(3, timeout=5)

    def noting(picture):
        seen.add(picture)
        if picture in beside:
            other.wait()
        return picture

    batches = read_ahead(noting, [["a", "b"], ["c", "d"]])
    assert next(batches) == ["a", "b"]
    if beside:
        other.wait()  # until both are being read
    assert seen == {"a", "b"} | beside
    assert list(batches) == [["c", "d"]]


def test_a_reading_that_nobody_wants_any_more_waits_for_no_thread(monkeypatch):
    """It may end in a thread that others wait for: Python collects garbage wherever it is."""
    monkeypatch.setattr(ahead, "pick_device", lambda: torch.device("cuda"))
    goes_on = threading.Event()

    def waiting(picture):
        return picture == "a" or goes_on.wait(timeout=10)

    batches = read_ahead(waiting, [["a"], ["b"], ["c"]])
    assert next(batches) == [True]
    closing = threading.Thread(target=batches.close, daemon=True)
    closing.start()
    closing.join(timeout=5)
    ended = not closing.is_alive()
    goes_on.set()
    assert ended

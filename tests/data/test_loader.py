"""Batches depend on seed, epoch and index, and on nothing else."""

import hashlib
import multiprocessing
import traceback

import numpy as np
import pytest
import torch
from PIL import Image

from vitrail.data.augment import Augmentation
from vitrail.data.loader import EpochLoader, ImageDataset, shuffled
from vitrail.data.preparation import Preparation
from vitrail.data.sources import Item
from vitrail.errors import DataError

PREPARATION = Preparation.standard((8, 8))


def dataset(count: int = 22, *, augmented: bool = True, seed: int = 3) -> ImageDataset:
    random = np.random.default_rng(0)
    items = [Item(f"{i}", Image.fromarray(random.integers(0, 256, (12, 10, 3), np.uint8)), i) for i in range(count)]
    return ImageDataset(items, PREPARATION, Augmentation(crop="resized") if augmented else None, seed)


def labels(loader: EpochLoader, epoch: int = 0) -> list[list[int]]:
    return [batch.tolist() for _, batch in loader.epoch(epoch)]


def order(loader: EpochLoader, epoch: int = 0) -> list[int]:
    return [label for batch in labels(loader, epoch) for label in batch]


def digest(loader: EpochLoader, epochs: range = range(2)) -> str:
    total = hashlib.sha256()
    for epoch in epochs:
        for images, numbers in loader.epoch(epoch):
            total.update(images.numpy().tobytes() + numbers.numpy().tobytes())
    return total.hexdigest()


def test_batches_are_identical_for_any_number_of_workers():
    digests = {digest(EpochLoader(dataset(), 4, shuffle=True, workers=workers)) for workers in (0, 1, 2)}
    assert len(digests) == 1


def test_torchs_own_randomness_does_not_depend_on_the_number_of_workers():
    drawn = set()
    for workers in (0, 1):
        torch.manual_seed(0)
        digest(EpochLoader(dataset(), 8, shuffle=True, workers=workers))
        drawn.add(torch.rand(1).item())
    assert len(drawn) == 1


def test_the_global_seeds_do_not_matter():
    torch.manual_seed(1)
    np.random.seed(1)
    first = digest(EpochLoader(dataset(), 4, shuffle=True))
    torch.manual_seed(2)
    np.random.seed(2)
    assert digest(EpochLoader(dataset(), 4, shuffle=True)) == first


def test_a_batch_is_bytes_and_whole_numbers():
    images, numbers = next(iter(EpochLoader(dataset(), 5, shuffle=False).epoch()))
    assert images.shape == (5, 3, 8, 8) and images.dtype == torch.uint8
    assert numbers.shape == (5,) and numbers.dtype == torch.int64


@pytest.mark.parametrize(("count", "size", "batches"), [(22, 4, 6), (22, 22, 1), (22, 100, 1), (22, 1, 22), (20, 5, 4)])
def test_every_image_comes_once_and_the_last_batch_may_be_smaller(count, size, batches):
    loader = EpochLoader(dataset(count, augmented=False), size, shuffle=True)
    seen = labels(loader)
    assert len(seen) == len(loader) == batches and len(seen[-1]) == count - size * (batches - 1)
    assert sorted(label for batch in seen for label in batch) == list(range(count))


def test_without_shuffling_the_order_is_that_of_the_data():
    loader = EpochLoader(dataset(augmented=False), 4, shuffle=False, workers=2)
    assert order(loader) == order(loader, 5) == list(range(22))


def test_every_epoch_and_every_seed_has_its_own_order():
    orders = {tuple(shuffled(50, seed, epoch)) for seed in range(3) for epoch in range(4)}
    assert len(orders) == 12 and all(sorted(order) == list(range(50)) for order in orders)
    assert shuffled(50, 1, 2) == shuffled(50, 1, 2)
    loader = EpochLoader(dataset(augmented=False), 4, shuffle=True)
    assert order(loader, 0) == shuffled(22, 3, 0) and order(loader, 1) == shuffled(22, 3, 1)


@pytest.mark.parametrize("workers", [0, 2])
def test_skipping_continues_where_the_epoch_was_left(workers):
    whole = [images for images, _ in EpochLoader(dataset(), 4, shuffle=True).epoch(2)]
    loader = EpochLoader(dataset(), 4, shuffle=True, workers=workers)
    for skip in (0, 1, 5, 6):
        rest = [images for images, _ in loader.epoch(2, skip=skip)]
        assert len(rest) == 6 - skip and all(torch.equal(a, b) for a, b in zip(rest, whole[skip:], strict=True))


@pytest.mark.parametrize("workers", [0, 1])
def test_an_epoch_left_early_leaves_no_trace_in_the_next(workers):
    loader = EpochLoader(dataset(), 4, shuffle=True, workers=workers)
    next(iter(loader.epoch(0)))
    assert digest(loader, range(1, 2)) == digest(EpochLoader(dataset(), 4, shuffle=True), range(1, 2))


def test_augmentation_changes_with_the_epoch_and_evaluation_does_not():
    def first(augmented: bool, epoch: int) -> bytes:
        return dataset(augmented=augmented)[epoch, 0][0].tobytes()

    assert first(True, 0) != first(True, 1) and first(True, 1) == first(True, 1)
    assert first(False, 0) == first(False, 1)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_damaged_image_is_named(workers, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"x")
    items = [Item("broken.png", tmp_path / "broken.png", 0)]
    loader = EpochLoader(ImageDataset(items, PREPARATION), 1, shuffle=False, workers=workers)
    with pytest.raises(DataError, match=r"broken\.png") as error:
        list(loader.epoch())
    traceback.clear_frames(error.tb)  # they hold the workers


def test_the_workers_go_with_their_loader():
    before = set(multiprocessing.active_children())
    loader = EpochLoader(dataset(), 4, shuffle=True, workers=1)
    list(loader.epoch())
    workers = set(multiprocessing.active_children()) - before
    assert workers
    del loader
    assert not workers & set(multiprocessing.active_children())

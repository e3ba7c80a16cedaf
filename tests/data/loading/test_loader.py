"""Batches depend on seed, epoch and index, and on nothing else."""

import hashlib
import multiprocessing

import numpy as np
import pytest
import torch
from PIL import Image

from vitrail.data.images.augment import Augmentation, SampleGenerator
from vitrail.data.images.preparation import Preparation
from vitrail.data.items import Item
from vitrail.data.loading import dataset as module
from vitrail.data.loading.dataset import ImageDataset
from vitrail.data.loading.loader import EpochLoader
from vitrail.data.loading.sampler import shuffled
from vitrail.data.targets import ClassIndex, class_targets
from vitrail.errors import ConfigError, DataError

PREPARATION = Preparation.standard((8, 8))


def items_of(labels) -> list[Item]:
    random = np.random.default_rng(0)
    return [
        Item(f"{i}", Image.fromarray(random.integers(0, 256, (12, 10, 3), np.uint8)), label) for i, label in enumerate(labels)
    ]


def dataset(count: int = 22, *, augmented: bool = True, seed: int = 3) -> ImageDataset:
    return ImageDataset(items_of(range(count)), PREPARATION, Augmentation(crop="resized") if augmented else None, seed)


def augmented(count: int = 22, *, transform=None, **settings) -> ImageDataset:
    """Four classes."""
    items = items_of([i % 4 for i in range(count)])
    augmentation = Augmentation(**settings)
    targets = class_targets(4, shares=augmentation.mixes)
    return ImageDataset(items, PREPARATION, augmentation, 3, targets=targets, transform=transform)


def jittered(image: Image.Image) -> np.ndarray:
    """A transform that uses torch's randomness."""
    return torch.rand(3, 8, 8).numpy()


def labels(loader: EpochLoader, epoch: int = 0) -> list[list[int]]:
    return [batch["labels"].tolist() for batch in loader.epoch(epoch)]


def order(loader: EpochLoader, epoch: int = 0) -> list[int]:
    return [label for batch in labels(loader, epoch) for label in batch]


def digest(loader: EpochLoader, epochs: range = range(2)) -> str:
    total = hashlib.sha256()
    for epoch in epochs:
        for batch in loader.epoch(epoch):
            total.update(batch["images"].numpy().tobytes() + batch["labels"].numpy().tobytes())
    return total.hexdigest()


KINDS = {
    "pad": lambda: augmented(crop="pad", vertical_flip=0.5),
    "policy": lambda: augmented(policy="randaugment", rotation=20, brightness=0.5, hue=0.2, erasing=0.5),
    "mixed": lambda: augmented(crop="resized", policy="trivial", mixup=0.8, cutmix=1.0),
    "repeated": lambda: augmented(crop="pad", repeats=2, mixup=1.0),
    "transform": lambda: augmented(transform=jittered, cutmix=1.0),
}
every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


@every_kind
def test_augmented_batches_are_identical_for_any_number_of_workers_and_between_them(make):
    for balance in (False, True):
        digests = {digest(EpochLoader(make(), 5, shuffle=True, workers=workers, balance=balance)) for workers in (0, 1, 2)}
        assert len(digests) == 1


@every_kind
def test_augmented_epochs_continue_where_they_were_left(make):
    whole = list(EpochLoader(make(), 4, shuffle=True).epoch(1))
    for skip in (1, 5):
        rest = list(EpochLoader(make(), 4, shuffle=True).epoch(1, skip=skip))
        assert len(rest) == len(whole) - skip
        for one, other in zip(rest, whole[skip:], strict=True):
            assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


@pytest.mark.parametrize("workers", [0, 1])
def test_a_damaged_image_is_named(workers, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"x")
    items = [Item("broken.png", tmp_path / "broken.png", 0)]
    loader = EpochLoader(ImageDataset(items, PREPARATION), 1, shuffle=False, workers=workers)
    with pytest.raises(DataError, match=r"broken\.png"):
        list(loader.epoch())


def test_the_workers_go_with_their_loader():
    before = set(multiprocessing.active_children())
    loader = EpochLoader(dataset(), 4, shuffle=True, workers=1)
    list(loader.epoch())
    workers = set(multiprocessing.active_children()) - before
    assert workers
    del loader
    assert not workers & set(multiprocessing.active_children())


# targets


def targets_of(data: ImageDataset, size: int = 4) -> torch.Tensor:
    return torch.cat([batch["labels"] for batch in EpochLoader(data, size, shuffle=False).epoch()])


@pytest.mark.parametrize("settings", [{"mixup": 1.0}, {"cutmix": 1.0}, {"mixup": 0.2, "cutmix": 1.0}], ids=str)
def test_targets_of_mixed_images_are_shares_of_an_images_class_and_the_next_ones(settings):
    targets = targets_of(augmented(22, **settings))
    assert targets.dtype == torch.float32 and targets.shape == (22, 4)
    assert torch.allclose(targets.sum(dim=1), torch.ones(22))
    for i, row in enumerate(targets[:20]):  # batches of four
        assert {label for label in range(4) if row[label]} <= {i % 4, (i + 1) % 4}
    assert (targets.max(dim=1).values < 1).sum() > 10


@pytest.mark.parametrize("settings", [{"scale": 0.1}, {"half_body": 0.5}])
def test_what_changes_the_boxes_of_people_is_refused_for_whole_images(settings):
    with pytest.raises(ConfigError, match="no boxes") as error:
        augmented(**settings)
    assert error.value.where == f"augmentation.{next(iter(settings))}"


@pytest.mark.parametrize("settings", [{"mixup": 1}, {"cutmix": 1}], ids=str)
def test_images_whose_targets_cannot_be_mixed_are_not_mixed(settings):
    with pytest.raises(ConfigError, match="cannot be mixed"):
        ImageDataset(items_of([0]), PREPARATION, Augmentation(**settings), targets=ClassIndex())


# repeats and balance


def test_copies_of_an_image_differ_from_each_other_and_the_first_is_the_plain_sample():
    data = augmented(20, crop="resized", repeats=3)
    batches = list(EpochLoader(data, 3, shuffle=True).epoch())
    assert sum(len(batch["labels"]) for batch in batches) == 20 and len(batches) == len(EpochLoader(data, 3, shuffle=True))
    first = shuffled(20, 3, 0)[0]
    for batch in batches[:-1]:
        assert len(set(batch["labels"].tolist())) == 1 and len({image.numpy().tobytes() for image in batch["images"]}) == 3
    assert torch.equal(batches[0]["images"][0], augmented(20, crop="resized")[0, first]["images"][0])


# further views of an item


class InTwoViews(ImageDataset):
    """Adds a second view of every item."""

    def _sample(self, number, random):
        return {**super()._sample(number, random), "others": self._planned(number, random.view(1))[0]}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_second_view_of_an_item_changes_nothing_of_the_first_and_comes_again(workers):
    items, augmentation = items_of([0, 1] * 4), Augmentation(crop="resized", brightness=0.5)

    def epoch(kind, number):
        loader = EpochLoader(kind(items, PREPARATION, augmentation, 3), 4, shuffle=True, workers=workers)
        batches = list(loader.epoch(number))
        loader.close()
        return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}

    plain, first, again, later = epoch(ImageDataset, 0), epoch(InTwoViews, 0), epoch(InTwoViews, 0), epoch(InTwoViews, 1)
    assert torch.equal(plain["images"], first["images"]) and torch.equal(first["others"], again["others"])
    assert all((one != other).any() for one, other in zip(first["images"], first["others"], strict=True))
    assert not torch.equal(first["others"], later["others"])
    alone = InTwoViews(items, PREPARATION, augmentation, 3)  # whatever the order and the workers
    shown = {alone[0, number]["others"].numpy().tobytes() for number in range(len(items))}
    assert {view.numpy().tobytes() for view in first["others"]} == shown


# a transform of one's own


@pytest.mark.parametrize("crop", ["none", "pad", "resized"])
def test_a_transforms_picture_is_augmented_and_prepared_as_any(crop):
    data = augmented(transform=lambda image: image.rotate(180), crop=crop)
    for index in range(5):
        random = SampleGenerator(3, 0, index)
        random.integers(2**32)  # the transform's seed
        picture = data.items[index].image.rotate(180)
        expected = data.augmentation.plan(picture.size, PREPARATION, random).pixels(picture)
        assert np.array_equal(data[0, index]["images"][0], expected)


def test_a_transforms_pixels_are_neither_cropped_nor_flipped():
    pixels = np.random.default_rng(0).integers(0, 256, (3, 8, 8), dtype=np.uint8)
    data = augmented(transform=lambda image: pixels, crop="resized", horizontal_flip=1, erasing=1, policy="trivial")
    assert torch.equal(data[0, 0]["images"][0], torch.from_numpy(pixels))


def on_a_gpu(image):
    """As torch answers in a process that was forked from one that used a GPU."""
    raise RuntimeError("Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must …")


def test_a_transform_that_needs_a_gpu_is_refused_where_a_process_cannot_have_it():
    loader = EpochLoader(augmented(transform=on_a_gpu), 4, shuffle=False, workers=1)
    with pytest.raises(ConfigError, match="uses a GPU") as caught:
        list(loader.epoch())
    loader.close()
    assert "data.workers to 0" in caught.value.hint


def test_no_more_processes_are_started_than_there_are_batches():
    before = set(multiprocessing.active_children())
    loader = EpochLoader(dataset(5), 2, shuffle=False, workers=8)
    assert len(list(loader.epoch())) == 3 == len(set(multiprocessing.active_children()) - before)
    loader.close()


@pytest.mark.parametrize(
    ("device", "workers", "expected"), [("cuda", 1, True), ("cuda", 0, False), ("cpu", 1, False), (None, 1, False)]
)
def test_only_what_processes_prepare_for_a_gpu_is_pinned(device, workers, expected):
    place = None if device is None else torch.device(device)
    assert EpochLoader(dataset(), 4, shuffle=False, workers=workers, device=place)._loader.pin_memory is expected


def test_a_transform_that_workers_cannot_have_is_refused_at_once(monkeypatch):
    monkeypatch.setattr("vitrail.data.images.transform.forks", lambda: False)
    EpochLoader(augmented(transform=jittered), 4, shuffle=False, workers=1)
    EpochLoader(augmented(transform=lambda image: image), 4, shuffle=False)
    with pytest.raises(ConfigError, match="worker"):
        EpochLoader(augmented(transform=lambda image: image), 4, shuffle=False, workers=1)


# what is kept in memory


@pytest.fixture
def reads(monkeypatch) -> list[str]:
    """The name of every image that is decoded."""
    decoded = []
    decode = Preparation._reduced
    monkeypatch.setattr(
        Preparation, "_reduced", lambda self, source, *options: decoded.append(source) or decode(self, source, *options)
    )
    return decoded


@pytest.mark.parametrize("crop", ["none", "pad", "resized"])
def test_an_image_is_decoded_once(reads, crop):
    data = augmented(10, crop=crop)
    loader = EpochLoader(data, 4, shuffle=True)
    digests = [digest(loader, range(epoch, epoch + 1)) for epoch in (0, 1, 0)]
    assert len(reads) == 10 and digests[0] == digests[2] != digests[1]


@pytest.mark.parametrize(("limit", "decoded"), [(10 * 3 * 64, 10), (10 * 3 * 64 - 1, 20)])
def test_images_are_kept_up_to_a_limit(reads, monkeypatch, limit, decoded):
    monkeypatch.setattr(module, "KEPT_BYTES", limit)
    digest(EpochLoader(augmented(10), 4, shuffle=True))
    assert len(reads) == decoded


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_the_parts_of_a_batch_are_the_batch_in_its_order(parts):
    whole = list(EpochLoader(dataset(11), 4, shuffle=True).epoch(1))
    split = [list(EpochLoader(dataset(11), 4, shuffle=True, part=(part, parts)).epoch(1)) for part in range(parts)]
    loaders = [EpochLoader(dataset(11), 4, shuffle=True, part=(part, parts)) for part in range(parts)]
    for number, batch in enumerate(whole):
        for name, tensor in batch.items():
            own = [found[number][name][: len(loader.places(number))] for loader, found in zip(loaders, split, strict=True)]
            assert torch.equal(torch.cat(own), tensor)
    for part in range(parts):  # the last batch, which is smaller, is not shared like the first
        (last,) = EpochLoader(dataset(11), 4, shuffle=True, part=(part, parts)).epoch(1, skip=2)
        assert all(torch.equal(tensor, split[part][2][name]) for name, tensor in last.items())

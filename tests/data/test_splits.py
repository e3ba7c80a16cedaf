"""Images are assigned to splits fairly, and always alike."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vitrail.data.items import Contents, Item
from vitrail.data.splits import assign_splits, share_of, with_splits

SHARES = {"test": 0.2, "val": 0.1}


def table(sizes: list[int], shares: dict[str, float], seed: int) -> dict[str, list[int]]:
    """Images of every class in every split."""
    labels = [label for label, size in enumerate(sizes) for _ in range(size)]
    assigned = assign_splits([str(i) for i in range(len(labels))], labels, shares, seed)
    assert list(assigned) == [str(i) for i in range(len(labels))]
    counts = Counter((split, labels[int(name)]) for name, split in assigned.items())
    return {split: [counts[split, label] for label in range(len(sizes))] for split in (*shares, "train")}


def test_images_added_since_the_splits_were_made_are_in_none_and_told_of():
    items = [Item(f"{number}.png", Image.new("L", (1, 1), number), number % 2) for number in range(12)]
    first = with_splits(Contents("photos", ["a", "b"], {"all": items[:10]}), 0, None)
    again = with_splits(Contents("photos", ["a", "b"], {"all": items}), 0, first.assignment)
    assert again.splits == first.splits and first.notes == ()
    assert again.notes == ("images added since the splits were made, which are in none: 2",)


@pytest.mark.parametrize("often", [1, 3])
@pytest.mark.parametrize("seed", range(10))
def test_every_label_of_several_is_trained_on_be_it_ever_so_rare(seed, often):
    labels = [(0, 2 + number) for number in range(8) for _ in range(often)] + [(0,), (1,), (0, 1)] * 30
    names = [str(number) for number in range(len(labels))]
    found = assign_splits(names, labels, SHARES, seed)
    trained = {label for name, of in zip(names, labels, strict=True) if found[name] == "train" for label in of}
    assert trained == set(range(10))
    kept = Counter(found.values())
    assert abs(kept["test"] - 0.2 * len(labels)) <= 6 and abs(kept["val"] - 0.1 * len(labels)) <= 6


def test_copies_of_an_image_of_a_rare_label_are_trained_on_together():
    labels = [(0, 2 + number // 2) for number in range(8)] + [(0,), (1,)] * 20
    names, copies = [str(number) for number in range(len(labels))], [(first, first + 1) for first in range(0, 8, 2)]
    for seed in range(20):
        found = assign_splits(names, labels, {"test": 0.5, "val": 0.3}, seed, copies=copies)
        assert all(found[str(first)] == found[str(second)] == "train" for first, second in copies)


@pytest.mark.parametrize(
    ("shares", "sizes"),
    [({}, [7, 1, 2]), ({"test": 0.0}, [9, 1, 0]), ({"val": 0.3}, [5, 3, 2]), ({"test": 0.5, "val": 0.4}, [1, 4, 5])],
)
def test_data_without_splits_gives_the_shares_that_are_asked_for(shares, sizes):
    items = [Item(f"{number}.png", Image.new("L", (1, 1), number), 0) for number in range(10)]
    found = with_splits(Contents("photos", ["a"], {"all": items}), 0, shares=shares).splits
    assert [len(found[split]) for split in ("train", "val", "test")] == sizes
    found = with_splits(Contents("photos", ["a"], {"train": items}), 0, shares=shares).splits
    assert [len(found[split]) for split in ("train", "val", "test")] == [10 - sizes[1], sizes[1], 0]


SIZES = st.lists(st.integers(0, 40), min_size=1, max_size=12).filter(any)


@given(SIZES, st.sampled_from([SHARES, {"val": 0.1}]), st.integers(0, 99))
@settings(max_examples=200, deadline=None)
def test_every_class_gives_each_split_its_share_to_within_one_image(sizes, shares, seed):
    assigned = table(sizes, shares, seed)
    assert [sum(column) for column in zip(*assigned.values(), strict=True)] == sizes
    for split, share in shares.items():
        for count, size in zip(assigned[split], sizes, strict=True):
            assert abs(count - share * size) <= 1 + 1e-9, (split, assigned)


# several labels

LABEL_SETS = st.lists(st.sets(st.integers(0, 3)).map(sorted).map(tuple), min_size=1, max_size=120)


@given(LABEL_SETS, st.integers(0, 99))
@settings(max_examples=100, deadline=None)
def test_every_common_set_of_labels_gives_its_share_and_rare_ones_together(labels, seed):
    assigned = assign_splits([str(i) for i in range(len(labels))], labels, SHARES, seed)
    assert assigned == assign_splits([str(i) for i in range(len(labels))], labels, SHARES, seed)
    common = {kind for kind, count in Counter(labels).items() if count >= 10}
    strata = [label if label in common else "rare" for label in labels]
    kept = len({label for of in labels for label in of} - {label for of in common for label in of})  # one image each to train on
    for stratum, size in Counter(strata).items():
        for split, share in SHARES.items():
            count = sum(assigned[str(i)] == split for i, other in enumerate(strata) if other == stratum)
            fewer = kept if stratum == "rare" else 0
            assert -fewer - 1 - 1e-9 <= count - share * size <= 1 + 1e-9
    for split, share in SHARES.items():
        assert abs(sum(s == split for s in assigned.values()) - share * len(labels)) <= len(set(strata)) + kept
    trained = {label for i, of in enumerate(labels) if assigned[str(i)] == "train" for label in of}
    assert trained == {label for of in labels for label in of}


def test_a_share_of_some_images_has_every_class_and_is_part_of_a_larger_one():
    items = [Item(str(i), Image.new("L", (1, 1)), i % 3 if i < 90 else 3) for i in range(92)]
    small, large = share_of(items, 0.1, seed=1), share_of(items, 0.5, seed=1)
    assert [sum(item.target == label for item in small) for label in range(4)] == [3, 3, 3, 1]
    assert [sum(item.target == label for item in large) for label in range(4)] == [15, 15, 15, 1]
    assert {item.name for item in small} < {item.name for item in large}
    assert [int(item.name) for item in large] == sorted(int(item.name) for item in large)
    assert share_of(items, 1.0, seed=1) == items
    assert small != share_of(items, 0.1, seed=2)


def test_data_without_splits_gives_a_fifth_to_test_and_a_tenth_to_validation():
    items = [Item(f"{i}", np.full((2, 2), i, np.uint8), i % 2) for i in range(100)]
    assigned = with_splits(Contents("source", ["a", "b"], {"all": items}), 0, None).splits
    assert {split: len(found) for split, found in assigned.items()} == {"train": 70, "val": 10, "test": 20}
    only_training = with_splits(Contents("source", ["a", "b"], {"train": items}), 0, None).splits
    assert {split: len(found) for split, found in only_training.items()} == {"train": 90, "val": 10, "test": 0}

"""Which images an epoch shows: all once, some in a row, or every class equally often."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vitrail.data.items import Item
from vitrail.data.loading.sampler import balanced_shares, epoch_order, pick_items, shuffled, spread

PIXEL = Image.new("L", (1, 1))
counts_of_classes = st.lists(st.integers(1, 40), min_size=1, max_size=6)


def items_of(labels: list) -> list[Item]:
    return [Item(str(i), PIXEL, label) for i, label in enumerate(labels)]


def items_by_count(counts: list[int]) -> list[Item]:
    return items_of([label for label, count in enumerate(counts) for _ in range(count)])


def require_own_numbers(order: list[int], count: int) -> None:
    """The copies of an item are numbered from 0 on."""
    shown = Counter(number % count for number in order)
    assert sorted(order) == sorted(item + copy * count for item, times in shown.items() for copy in range(times))


def test_without_balance_and_repeats_every_image_comes_once():
    items = items_by_count([5, 15])
    assert epoch_order(items, 0, 3, shuffle=False) == list(range(20))
    assert epoch_order(items, 7, 3, shuffle=True) == shuffled(20, 7, 3)


@pytest.mark.parametrize("balance", [False, True])
@pytest.mark.parametrize("repeats", [1, 3])
def test_an_order_is_fixed_by_seed_and_epoch_and_by_both(balance, repeats):
    items = items_by_count([5, 25])

    def order(seed: int, epoch: int) -> tuple[int, ...]:
        return tuple(epoch_order(items, seed, epoch, shuffle=True, balance=balance, repeats=repeats))

    assert order(1, 2) == order(1, 2)
    assert len({order(seed, epoch) for seed in range(3) for epoch in range(3)}) == 9


@given(st.integers(1, 50), st.integers(1, 8), st.booleans())
def test_repeated_images_stand_in_a_row_and_the_epoch_is_no_longer(count, repeats, shuffle):
    order = epoch_order(items_by_count([count]), 0, 1, shuffle=shuffle, repeats=repeats)
    assert len(order) == count
    rows = [order[start : start + repeats] for start in range(0, count, repeats)]
    for row in rows:
        assert row == [row[0] + copy * count for copy in range(len(row))]
    firsts = [row[0] for row in rows]
    assert firsts == (shuffled(count, 0, 1) if shuffle else list(range(count)))[: len(rows)]


@given(counts_of_classes, st.integers(0, 1000), st.booleans())
@settings(deadline=None)
def test_balance_shows_every_class_equally_often_and_every_image_of_it_too(counts, epoch, shuffle):
    items = items_by_count(counts)
    order = epoch_order(items, 0, epoch, shuffle=shuffle, balance=True)
    total, fair = len(items), len(items) / len(counts)
    assert len(order) == total
    require_own_numbers(order, total)
    shown = Counter(number % total for number in order)
    classes = Counter(items[number % total].target for number in order)
    for label, count in enumerate(counts):
        assert abs(classes[label] - fair) < 1 + 1e-9
        for item in (i for i, item in enumerate(items) if item.target == label):
            assert abs(shown[item] - fair / count) < 1 + 1e-9


def test_balance_is_fair_to_every_image_in_the_long_run():
    items = items_by_count([3, 7, 20])
    shown = Counter(number % 30 for epoch in range(600) for number in epoch_order(items, 0, epoch, shuffle=True, balance=True))
    for number, item in enumerate(items):
        expected = 10 / (3, 7, 20)[item.target]
        assert abs(shown[number] / 600 - expected) < 4 * 0.5 / np.sqrt(600)


@given(counts_of_classes, st.integers(1, 5))
@settings(deadline=None)
def test_balance_and_repeats_combine(counts, repeats):
    items = items_by_count(counts)
    total = len(items)
    order = epoch_order(items, 0, 0, shuffle=True, balance=True, repeats=repeats)
    assert len(order) == total
    require_own_numbers(order, total)
    plain = [number % total for number in order]
    assert all(len(set(plain[start : start + repeats])) == 1 for start in range(0, total, repeats))
    classes = Counter(items[number].target for number in plain)
    assert all(abs(classes[label] - total / len(counts)) <= 2 * repeats for label in range(len(counts)))


def test_shares_of_several_labels_are_the_mean_over_them():
    items = items_of([(0,), (0, 1), (0, 2), (2,), (2,), ()])  # 0 has three images, 1 has one, 2 has three; one has none
    weights = np.array([1 / 3, (1 / 3 + 1) / 2, 1 / 3, 1 / 3, 1 / 3, 1])
    assert balanced_shares(items) == pytest.approx(weights / weights.sum())


def test_as_many_classes_as_possible_are_picked_in_their_order():
    items = [Item(str(i), Image.new("L", (1, 1)), label) for i, label in enumerate([0] * 50 + [1] * 2 + [2])]
    for seed in range(5):
        assert [items[index].target for index in pick_items(items, 3, seed)] == [0, 1, 2]
        assert [items[index].target for index in pick_items(items, 6, seed)] == [0, 0, 0, 1, 1, 2]
    assert sorted(pick_items(items, 99, 0)) == list(range(53))
    assert len({tuple(pick_items(items, 3, seed)) for seed in range(9)}) > 5


def test_places_are_spread_evenly_from_the_first_to_the_last():
    assert spread(100, 6) == [0, 20, 40, 59, 79, 99]
    assert spread(3, 6) == [0, 1, 2]
    assert spread(1, 6) == [0]
    assert spread(5, 1) == [0]

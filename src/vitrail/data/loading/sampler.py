"""The images that an epoch shows, and their order."""

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from vitrail.data.items import Item

T = TypeVar("T")
ORDER = 1  # separates this randomness from the samples' randomness


def shuffled(count: int, seed: int, epoch: int) -> list[int]:
    """Return a random order of ``count`` things, another one in every epoch."""
    return _generator(seed, epoch).permutation(count).tolist()


def some_items(items: Sequence[T], count: int, seed: int) -> list[T]:
    """Return ``count`` items at random, in their own order."""
    return [items[index] for index in sorted(shuffled(len(items), seed, 0)[:count])]


def some_share(items: Sequence[T], share: float, seed: int) -> list[T]:
    """Return a share of the items at random, one at least, in their own order."""
    return some_items(items, max(1, round(share * len(items))), seed)


def pick_items(items: Sequence[Item], count: int, seed: int) -> list[int]:
    """Return the indices of ``count`` items at random, of as many classes as possible, sorted by class."""
    seen: Counter[tuple[int, ...]] = Counter()
    turns = []
    for index in shuffled(len(items), seed, 0):
        turns.append((seen[items[index].labels], index))
        seen[items[index].labels] += 1
    picked = [index for _, index in sorted(turns, key=lambda turn: turn[0])[:count]]
    return sorted(picked, key=lambda index: items[index].labels)


def spread(count: int, wanted: int) -> list[int]:
    """Return ``wanted`` positions evenly out of ``count``, the first and the last among them; all where there are no more."""
    return sorted({round(place) for place in np.linspace(0, count - 1, min(wanted, count))})


def epoch_order(
    items: Sequence[Item], seed: int, epoch: int, *, shuffle: bool, balance: bool = False, repeats: int = 1
) -> list[int]:
    """Return the numbers of an epoch's samples, as many as there are items.

    Sample ``i`` is the item ``i``; further copies of it in the same epoch are ``i + len(items)``, ``i + 2 len(items)``
    and so on, so that each can have randomness of its own.

    Args:
        items: the images.
        seed, epoch: fix the order, where there is anything random in it.
        shuffle: mixes the order.
        balance: shows every class equally often: each item floor or ceiling of ``len(items)`` times its share
            in `balanced_shares`, by systematic sampling.
        repeats: of each image in a row, in an epoch of the same length (repeated augmentation:
            Hoffer et al. 2020, https://arxiv.org/abs/1901.09335; Berman et al. 2019, https://arxiv.org/abs/1902.05509).
    """
    count = len(items)
    distinct = -(-count // repeats)
    random = _generator(seed, epoch)
    if balance:
        # items with the same labels side by side in random order: systematic sampling is then fair to classes
        by_class = np.array(sorted(random.permutation(count).tolist(), key=lambda i: items[i].labels))
        chosen = _systematic(balanced_shares(items) * distinct, by_class, random.random())
        chosen = random.permutation(chosen) if shuffle else np.sort(chosen)
    else:
        chosen = random.permutation(count) if shuffle else np.arange(count)
    chosen = np.repeat(chosen[:distinct], repeats)[:count]
    return (chosen + count * _occurrence(chosen)).tolist()


def _generator(seed: int, epoch: int) -> np.random.Generator:
    return np.random.default_rng((ORDER, seed, epoch))


def balanced_shares(items: Sequence[Item]) -> np.ndarray:
    """Compute the frequency of each item by which every class is drawn equally often: float64 (N,), with sum 1.

    Proportional to ``1 / images of its class``. In multi-label data an image takes the mean over its labels, so that
    rare ones are drawn more often without being equally frequent; images without labels count as one more class.
    """
    labels = [item.labels or (-1,) for item in items]
    names, counts = np.unique(np.concatenate(labels), return_counts=True)
    weight = dict(zip(names.tolist(), (1 / counts).tolist(), strict=True))
    weights = np.array([sum(weight[label] for label in own) / len(own) for own in labels])
    return weights / weights.sum()


def _systematic(expected: np.ndarray, order: np.ndarray, start: float) -> np.ndarray:
    """Return each index floor or ceiling of its ``expected`` times, by a ruler with marks at ``start``, ``start + 1``, …

    The indices lie in ``order`` along the ruler, each as long as is expected of it.
    """
    ends = np.cumsum(expected[order])
    total = round(ends[-1])
    marks = np.clip(np.ceil(ends - start), 0, total).astype(np.int64)  # that lie before each end
    marks[-1] = total  # whatever rounding has made of the last end
    return np.repeat(order, np.diff(marks, prepend=0))


def _occurrence(values: np.ndarray) -> np.ndarray:
    """Count the equal values before each: ``[7, 5, 7]`` gives ``[0, 0, 1]``."""
    order = np.argsort(values, kind="stable")
    _, counts = np.unique(values, return_counts=True)
    result = np.empty_like(values)
    result[order] = np.arange(len(values)) - np.repeat(np.cumsum(counts) - counts, counts)
    return result

"""The order of samples in an epoch, and random selections of items."""

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from vitrail.data.items import Item

T = TypeVar("T")
ORDER = 1  # keeps this random stream apart from those of the samples


def shuffled(count: int, seed: int, epoch: int) -> list[int]:
    """Return a random permutation of ``range(count)``, which depends on seed and epoch."""
    return _generator(seed, epoch).permutation(count).tolist()


def some_items(items: Sequence[T], count: int, seed: int) -> list[T]:
    """Return a random selection of ``count`` items, in their original order."""
    return [items[index] for index in sorted(shuffled(len(items), seed, 0)[:count])]


def some_share(items: Sequence[T], share: float, seed: int) -> list[T]:
    """Return a random fraction ``share`` of the items, at least one, in their original order."""
    return some_items(items, max(1, round(share * len(items))), seed)


def pick_items(items: Sequence[Item], count: int, seed: int) -> list[int]:
    """Return the indices of ``count`` random items, of as many classes as possible, sorted by class."""
    seen: Counter[tuple[int, ...]] = Counter()
    turns = []
    for index in shuffled(len(items), seed, 0):
        turns.append((seen[items[index].labels], index))
        seen[items[index].labels] += 1
    picked = [index for _, index in sorted(turns, key=lambda turn: turn[0])[:count]]
    return sorted(picked, key=lambda index: items[index].labels)


def spread(count: int, wanted: int) -> list[int]:
    """Return ``wanted`` evenly spaced positions of ``range(count)``, with the first and the last; all if ``count`` is less."""
    return sorted({round(place) for place in np.linspace(0, count - 1, min(wanted, count))})


def epoch_order(
    items: Sequence[Item], seed: int, epoch: int, *, shuffle: bool, balance: bool = False, repeats: int = 1
) -> list[int]:
    """Return the numbers of an epoch's samples; there are as many as items.

    Number ``i`` is the item ``i``. Further copies of it in the same epoch are ``i + len(items)``, ``i + 2 * len(items)``
    and so on, so that each copy has its own randomness.

    Args:
        items: the images.
        seed, epoch: determine all randomness of the order.
        shuffle: whether the order is random.
        balance: shows every class equally often. An item appears ``len(items)`` times its fraction in `balanced_shares`, rounded
            up or down by systematic sampling.
        repeats: the number of copies of each image in a row, in an epoch of the same length (repeated augmentation:
            Hoffer et al. 2020, https://arxiv.org/abs/1901.09335; Berman et al. 2019, https://arxiv.org/abs/1902.05509).
    """
    count = len(items)
    distinct = -(-count // repeats)
    random = _generator(seed, epoch)
    if balance:
        # sort items by labels, in random order within a label: systematic sampling is then exact for each class
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
    """Compute the sampling probability of each item for equally frequent classes: float64 (N,), with sum 1.

    It is proportional to ``1 / number of images in its class``. In multi-label data it is the mean of this over the image's
    labels, so that rare labels are more frequent, but not equally frequent. Images without labels count as one more class.
    """
    labels = [item.labels or (-1,) for item in items]
    names, counts = np.unique(np.concatenate(labels), return_counts=True)
    weight = dict(zip(names.tolist(), (1 / counts).tolist(), strict=True))
    weights = np.array([sum(weight[label] for label in own) / len(own) for own in labels])
    return weights / weights.sum()


def _systematic(expected: np.ndarray, order: np.ndarray, start: float) -> np.ndarray:
    """Return indices by systematic sampling: each index appears ``expected`` times, rounded up or down.

    Each index, in ``order``, covers an interval of the length ``expected`` on a line, and is returned once for each of the points
    ``start``, ``start + 1``, … in its interval.
    """
    ends = np.cumsum(expected[order])
    total = round(ends[-1])
    marks = np.clip(np.ceil(ends - start), 0, total).astype(np.int64)  # number of points before each end
    marks[-1] = total  # despite rounding errors
    return np.repeat(order, np.diff(marks, prepend=0))


def _occurrence(values: np.ndarray) -> np.ndarray:
    """Count for each value the equal values before it: ``[7, 5, 7]`` gives ``[0, 0, 1]``."""
    order = np.argsort(values, kind="stable")
    _, counts = np.unique(values, return_counts=True)
    result = np.empty_like(values)
    result[order] = np.arange(len(values)) - np.repeat(np.cumsum(counts) - counts, counts)
    return result

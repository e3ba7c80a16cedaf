"""Batches of tokens: every pair once an epoch, similar lengths together, the same whatever the number of workers."""

import numpy as np
import pytest
import torch

from vitrail.data.loading.batches import Wanted
from vitrail.data.loading.loader import EpochLoader
from vitrail.data.text.dataset import COLUMNS, ROWS, PairDataset, filled
from vitrail.data.text.tokenizer import END, PAD, START


def dataset(count: int = 60, seed: int = 1) -> PairDataset:
    random = np.random.default_rng(0)
    texts = [[[*random.integers(3, 50, random.integers(1, 12)).tolist(), END] for _ in range(count)] for _ in range(2)]
    return PairDataset([f"pairs.tsv:{number}" for number in range(count)], *texts, seed, pad=PAD, start=START, most=64)


@pytest.mark.parametrize("size", [1, 13, 40, 10_000])
def test_an_epoch_has_every_pair_once_in_batches_of_no_more_tokens_than_asked_for(size):
    data = dataset()
    for epoch in (0, 1):
        batches = data.batches(epoch, size, shuffle=True)
        assert len(batches) == data.count_batches(size)
        assert sorted(number for keys in batches for _, number in keys) == list(range(60))
        for keys in batches:
            lengths = data.lengths[[number for _, number in keys]]
            assert len(keys) == 1 or (lengths.max() + lengths.max() % 2) * len(keys) <= size


def test_large_batches_have_a_multiple_of_eight_rows_but_for_the_last_and_all_an_even_number_of_columns():
    data = dataset(500)
    batches = data.batches(0, 150, shuffle=False)
    assert max(map(len, batches)) > ROWS and all(len(keys) <= ROWS or not len(keys) % ROWS for keys in batches[:-1])
    for batch in EpochLoader(data, 150, shuffle=True).epoch():
        assert not any(tensor.shape[1] % COLUMNS for tensor in batch.values() if tensor.ndim > 1)


def test_orders_differ_from_epoch_to_epoch_and_not_from_run_to_run():
    first, again, other = (dataset(seed=seed).batches(0, 40, shuffle=True) for seed in (1, 1, 2))
    later = [[(0, number) for _, number in keys] for keys in dataset().batches(5, 40, shuffle=True)]
    assert first == again and first not in (other, later)
    assert {frozenset(keys) for keys in first} != {frozenset(keys) for keys in later}
    lengths = [[dataset().lengths[keys[0][1]].tolist() for keys in batches] for batches in (first, later)]
    assert sorted(lengths[0]) == sorted(lengths[1]) and lengths[0] != lengths[1], "batches, too, come in another order"
    assert dataset().batches(0, 40, shuffle=False) == [
        [(0, number) for _, number in keys] for keys in dataset(seed=9).batches(3, 40, shuffle=False)
    ]


def test_a_batch_says_what_follows_each_token_and_fills_rows_up():
    data = PairDataset(["a", "b"], [[7, END], [5, 6, 8, END]], [[9, 4, END], [3, END]], pad=PAD, start=START, most=64)
    batch = data.__getitems__(Wanted([(0, 0), (0, 1)], slice(None)))
    assert batch["source"].tolist() == [[7, END, PAD, PAD], [5, 6, 8, END]]
    assert batch["target"].tolist() == [[START, 9, 4, PAD], [START, 3, PAD, PAD]]
    assert batch["labels"].tolist() == [[9, 4, END, PAD], [3, END, PAD, PAD]]
    assert data.units([(0, 0), (0, 1)]) == 5


@pytest.mark.parametrize(("most", "length"), [(4, 4), (3, 3), (2, 3)])
def test_no_row_is_filled_up_beyond_what_a_model_has_positions_for(most, length):
    assert filled([[5], [5, 6, END]], PAD, most).shape == (2, length)


def test_workers_and_parts_give_the_same_sentences():
    alone = list(EpochLoader(dataset(), 40, shuffle=True).epoch(2))
    loader = EpochLoader(dataset(), 40, shuffle=True, workers=1)
    for batch, same in zip(alone, loader.epoch(2), strict=True):
        assert all(torch.equal(tensor, same[name]) for name, tensor in batch.items())
    loader.close()
    parts = [EpochLoader(dataset(), 40, shuffle=True, part=(part, 2)) for part in range(2)]
    rows = [[row for batch in part.epoch(2) for row in batch["labels"].tolist()] for part in parts]
    one = [[token for token in row if token] for batch in alone for row in batch["labels"].tolist()]
    both = [[token for token in row if token] for row in rows[0] + rows[1]]
    assert set(map(tuple, both)) == set(map(tuple, one))
    assert sum(parts[0].units(number) for number in range(len(parts[0]))) == sum(map(len, one))

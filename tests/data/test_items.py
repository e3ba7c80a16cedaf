"""Names sort as people expect."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vitrail.data.items import natural_key, split_of, splits_in


def test_numbers_sort_by_value_inside_names_too():
    names = ["a10b11", "10b", "b", "a10", "2", "a10b2", "10", "a2"]
    assert sorted(names, key=natural_key) == ["2", "10", "10b", "a2", "a10", "a10b2", "a10b11", "b"]


@settings(max_examples=30)
@given(st.lists(st.text(min_size=1, max_size=6)))
def test_any_names_can_be_sorted(words):
    backwards = words[::-1]
    assert sorted(words, key=natural_key) == sorted(backwards, key=natural_key)


@pytest.mark.parametrize(
    ("split", "names"),
    [
        ("train", "train Training TRAIN train2017 train_images trainset training-set trn restval"),
        ("val", "val valid Validation dev devel eval evaluation val2014 Validation_Set"),
        ("test", "test Testing test_images test1 holdout Hold-out hold_out held_out_set tst"),
    ],
)
def test_a_split_has_one_list_of_names_whatever_stands_around_them(split, names):
    assert {name: split_of(name) for name in names.split()} == dict.fromkeys(names.split(), split)
    assert all(splits_in(f"captions_{name}.v2") == [split] for name in names.split())


@pytest.mark.parametrize("name", ["", "2017", "images", "data", "bullet_train", "test tube", "trains", "latest", "évaluer"])
def test_other_names_are_of_no_split(name):
    assert split_of(name) is None

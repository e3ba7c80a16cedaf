"""What a check of sentences finds."""

import pytest

from vitrail.data.text.check import check_pairs
from vitrail.errors import DataError


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.tsv").write_text("en\tde\na cat\teine Katze\nred\trot\nred\trot\nred\trote\n")
    (tmp_path / "val.tsv").write_text("en\tde\nthe dog runs\tder Hund\n")
    (tmp_path / "test.tsv").write_text("en\tde\nred\tRot\n")
    return tmp_path


def test_sentences_in_two_splits_are_faults_and_repetitions_are_told_of(folder):
    found = check_pairs(folder, ("en", "de")).to_json()
    assert found["splits"] == {"train": 4, "val": 1, "test": 1} and found["sentences"] == 6
    assert found["words"] == {"en": {"median": 1, "max": 3}, "de": {"median": 1, "max": 2}}
    assert [(fault["kind"], fault["path"]) for fault in found["faults"]] == [("leak", "test.tsv:2")]
    assert "train.tsv:" in found["faults"][0]["what"]
    assert found["notices"] == [{"kind": "repeated", "path": "train.tsv:3", "what": "2 times in train"}]


def test_a_line_that_is_no_pair_is_told_by_its_number_and_no_line_is_no_data(folder):
    (folder / "test.tsv").write_text("en\tde\nred\t\n")
    with pytest.raises(DataError, match="no translation") as error:
        check_pairs(folder, ("en", "de"))
    assert str(error.value.where).endswith("test.tsv:2")
    (folder / "none.tsv").write_text("en\tde\n")
    with pytest.raises(DataError, match="no sentences"):
        check_pairs(folder / "none.tsv", ("en", "de")).to_json()

"""What a check of sentences finds."""

import pytest

from vitrail.errors import DataError
from vitrail.tasks.translation.inspection import check_pairs
from vitrail.tasks.translation.pairs import open_pairs


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


def test_all_lines_that_are_no_pair_are_faults_or_where_they_are_skipped_notices(folder):
    (folder / "train.tsv").write_bytes(
        b"en\tde\nred\t\n\trot\none\ttwo\tthree\nb\xff\tc\n\xe2\x80\x8b\tNull\na cat\teine Katze\n"
    )
    expected = [("no-translation", 2), ("no-sentence", 3), ("bad-row", 4), ("bad-row", 5), ("no-sentence", 6)]
    found = check_pairs(folder, ("en", "de"))
    expected = [(kind, f"{folder}/train.tsv:{line}") for kind, line in expected]
    assert [(issue.kind, issue.path) for issue in found.issues] == expected and not found.notices
    assert not any("left out" in note for note in found.data.notes)
    skipped = check_pairs(folder, ("en", "de"), "skip")
    assert [(issue.kind, issue.path) for issue in skipped.notices] == expected and not skipped.issues
    with pytest.raises(DataError, match=r"no translation \(and 4 more faults\)") as error:
        open_pairs(folder, ("en", "de"))
    assert str(error.value.where).endswith("train.tsv:2") and "--bad-lines skip" in error.value.hint
    data = open_pairs(folder, ("en", "de"), bad_lines="skip")
    assert len(data.splits["train"]) == 1 and "left out: 5 lines that are no pair (2: there is no sentence" in data.notes[-1]


def test_no_line_is_no_data(folder):
    (folder / "none.tsv").write_text("en\tde\n")
    with pytest.raises(DataError, match="no sentences"):
        check_pairs(folder / "none.tsv", ("en", "de")).to_json()

"""Sentences and their translations from tables and pairs of files; what is no pair is refused by file and line."""

import pytest

from vitrail.errors import DataError
from vitrail.tasks.translation.pairs import open_pairs

LANGUAGES = ("en", "de")
ROWS = [("a dog", "ein Hund"), ("a cat, red", "eine rote Katze"), ('the "big" house', "das Haus")]


def written(folder, name: str, text: str | bytes):
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def texts(pairs) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in pairs]


def as_tsv(rows) -> str:
    return "de\tphoto\ten\n" + "".join(f"{target}\t7\t{source}\n" for source, target in rows)


def test_a_table_with_tabs_or_commas_two_files_and_a_folder_of_splits_hold_the_same_pairs(tmp_path):
    written(tmp_path, "train.tsv", as_tsv(ROWS))
    written(tmp_path, "pairs.csv", 'en,de\na dog,ein Hund\n"a cat, red",eine rote Katze\r\n"the ""big"" house",das Haus\n')
    written(tmp_path, "corpus.en", '\ufeffa dog\na cat, red\r\nthe "big" house')
    written(tmp_path, "corpus.de", "ein Hund\neine rote Katze\ndas Haus\n")
    for name in ("train.tsv", "pairs.csv", "corpus"):
        assert texts(open_pairs(tmp_path / name, LANGUAGES).split("train")) == ROWS
    folder = tmp_path / "splits"
    folder.mkdir()
    written(folder, "train.tsv", as_tsv(ROWS))
    written(folder, "valid.en", "a bird\n")
    written(folder, "valid.de", "ein Vogel\n")
    data = open_pairs(folder, LANGUAGES)
    assert texts(data.split("train")) == ROWS and texts(data.split("val")) == [("a bird", "ein Vogel")]
    assert data.has_splits and data.assignment is None and data.evaluation_split == "val"


@pytest.mark.parametrize(
    ("name", "text", "where", "what"),
    [
        ("a.tsv", "en\tde\na\tb\nc\n", "a.tsv:3", "1 cells for 2 columns"),
        ("a.tsv", "en\tde\na\tb\nc\t \n", "a.tsv:3", "no translation"),
        ("a.tsv", "en\tfr\na\tb\n", "a.tsv:1", "'de'"),
        ("a.tsv", b"en\tde\na\tb\n\xff\tc\n", "a.tsv:3", "UTF-8"),
        ("a.en", "a\nb\n", "a", "a.de"),
    ],
)
def test_what_is_no_pair_is_told_by_file_and_line(tmp_path, name, text, where, what):
    file = written(tmp_path, name, text)
    with pytest.raises(DataError) as error:
        open_pairs(file.with_suffix("") if name.endswith(".en") else file, LANGUAGES)
    assert str(error.value.where).endswith(where) and what in error.value.what


def test_two_files_of_different_length_and_a_folder_without_training_sentences_are_refused(tmp_path):
    written(tmp_path, "a.en", "a\nb\n")
    written(tmp_path, "a.de", "a\n")
    with pytest.raises(DataError, match=r"2 lines and a\.de 1"):
        open_pairs(tmp_path / "a", LANGUAGES)
    with pytest.raises(DataError, match="no files named as splits"):
        open_pairs(tmp_path, LANGUAGES)
    with pytest.raises(DataError, match="no sentences"):
        open_pairs(tmp_path / "none.tsv", LANGUAGES)


def test_data_without_splits_gives_some_of_its_own_and_equal_sentences_stay_together(tmp_path):
    rows = [(f"number {index // 2}", f"Nummer {index}") for index in range(200)]
    file = written(tmp_path, "pairs.tsv", as_tsv(rows))
    data = open_pairs(file, LANGUAGES, split_seed=3)
    assert {split: len(pairs) for split, pairs in data.splits.items()} == {"train": 180, "val": 10, "test": 10}
    sources = {split: {pair.source for pair in pairs} for split, pairs in data.splits.items()}
    assert not sources["train"] & sources["val"] and not sources["train"] & sources["test"]
    other = open_pairs(file, LANGUAGES, split_seed=3, shares={"test": 0.0, "val": 0.2})
    assert {split: len(pairs) for split, pairs in other.splits.items()} == {"train": 160, "val": 40, "test": 0}
    again = open_pairs(file, LANGUAGES, split_seed=4, assignment=data.assignment)
    assert again.splits == data.splits != open_pairs(file, LANGUAGES, split_seed=4).splits


def test_a_folder_may_hold_what_a_translator_is_tested_on_alone(tmp_path):
    written(tmp_path, "test.tsv", "en\tde\none\teins\n")
    data = open_pairs(tmp_path, LANGUAGES)
    assert [len(data.splits[split]) for split in ("train", "test")] == [0, 1]
    with pytest.raises(DataError, match="'train'"):
        data.split("train")


def test_lines_that_may_have_moved_since_they_were_split_are_told_of(tmp_path):
    def rows(first, last):
        return "en\tde\n" + "".join(f"one {n}\teins {n}\n" for n in range(first, last))

    file = written(tmp_path, "pairs.tsv", rows(0, 40))
    data = open_pairs(file, LANGUAGES)
    assert data.notes == open_pairs(file, LANGUAGES, assignment=data.assignment).notes == ()
    written(tmp_path, "pairs.tsv", rows(-3, 40))
    (note,) = open_pairs(file, LANGUAGES, assignment=data.assignment).notes
    assert "3 lines were added and 0 removed" in note and "line numbers" in note


def test_beside_a_file_called_test_one_of_another_year_is_none(tmp_path):
    for name, count in (("train", 3), ("train_data", 4), ("test", 2), ("test2016", 5)):
        written(tmp_path, f"{name}.tsv", "en\tde\n" + "".join(f"{name} {n}\teins\n" for n in range(count)))
    data = open_pairs(tmp_path, LANGUAGES)
    assert {split: len(pairs) for split, pairs in data.splits.items() if pairs} == {"train": 3, "test": 2}


def test_two_files_may_end_in_empty_lines_and_lines_that_are_empty_in_both_are_passed_over(tmp_path):
    written(tmp_path, "a.en", "a dog\n\u200b\nthe\u00a0cat\n\n \n")
    written(tmp_path, "a.de", "ein Hund\n\ndie Katze")
    data = open_pairs(tmp_path / "a", LANGUAGES)
    assert texts(data.split("train")) == [("a dog", "ein Hund"), ("the cat", "die Katze")]
    assert [pair.name for pair in data.split("train")] == ["a.de:1", "a.de:3"]
    (note,) = data.notes
    assert "empty lines of both passed over: 1" in note and "odd blanks: 2" in note


def test_a_line_of_two_files_that_is_not_in_utf_8_is_refused_or_skipped(tmp_path):
    (tmp_path / "a.en").write_bytes(b"a dog\na c\xe4t\nthe house\n")
    written(tmp_path, "a.de", "ein Hund\neine Katze\ndas Haus\n")
    with pytest.raises(DataError, match="not in UTF-8"):
        open_pairs(tmp_path / "a", LANGUAGES)
    assert len(open_pairs(tmp_path / "a", LANGUAGES, bad_lines="skip").split("train")) == 2


def test_a_table_of_any_suffix_and_columns_in_capitals_are_found(tmp_path):
    file = written(tmp_path, "corpus.txt", "EN;DE;Photo\na dog, red;ein Hund;7\n")
    data = open_pairs(file, LANGUAGES)
    assert texts(data.split("train")) == [("a dog, red", "ein Hund")]
    assert data.notes == ("corpus.txt: separated by ';', en in the column 'EN', de in 'DE', not used: 'Photo'",)

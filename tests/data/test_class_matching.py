"""Classes of some data find the model's labels, and it is said how."""

import pytest

from vitrail.data.class_matching import match_classes
from vitrail.errors import DataError
from vitrail.weights.model_folder.imagenet import aliases_of, class_ids, class_names
from vitrail.weights.model_folder.labels import distinct

IMAGENET = distinct(class_names())


def test_a_number_that_is_a_label_is_a_name_and_no_index():
    assert match_classes(["7", "3"], ["3", "5", "7"], where="data") == [2, 0]
    with pytest.raises(DataError):
        match_classes(["1"], ["3", "5", "7"], where="data")


@pytest.mark.parametrize(
    ("classes", "labels"),
    [
        (["bird", "cat"], ["cat", "dog"]),  # as many as labels: a guess by position would pass
        (["0003"], ["ant", "cat", "dog"]),
        (["-1"], ["ant", "cat"]),
        (["Cat"], ["cat", "CAT"]),
        (["n01440764"], ["cat", "dog"]),
        (["²"], ["ant", "cat", "dog"]),
        (["1.0"], ["ant", "cat"]),
    ],
)
def test_strangers_are_refused_with_both_sides_listed(classes, labels):
    with pytest.raises(DataError) as error:
        match_classes(classes, labels, where="photos")
    assert all(repr(label) in str(error.value) for label in labels)
    assert any(repr(name) in str(error.value) for name in classes) and "photos" in str(error.value)


@pytest.mark.parametrize(
    ("classes", "labels", "line"),
    [
        (["dog", "cat"], ["cat", "dog"], None),
        (["0", "1", "2"], ["0", "1", "2"], None),
        (["1"], ["0", "1", "2"], "by name: '1' is '1'"),
        (["0", "1"], ["cat", "dog"], "by index, from 0: '0' is 'cat', '1' is 'dog'"),
        (["caf\u00e9"], ["cafe\u0301"], "by name, whatever"),  # an accent composed, and one by itself
        (["cat\u200b"], ["cat"], "by name, whatever"),
        (["01", "2"], ["1", "2"], "by number: '01' is '1'"),
        (["Cat", "big-dog"], ["cat", "big_dog"], "capitals and underscores: 'Cat' is 'cat', 'big-dog' is 'big_dog'"),
        (["n01440764"], IMAGENET, "by WordNet's id or name: 'n01440764' is 'tench'"),
        ([str(i) for i in range(9)], IMAGENET, "'2' is 'great white shark', 6 more"),
    ],
)
def test_a_line_says_how_classes_were_matched_where_that_is_not_plain(classes, labels, line):
    notes = []
    match_classes(classes, labels, where="data", aliases=aliases_of(labels), note=notes.append)
    assert not notes if line is None else line in notes[0]


@pytest.mark.parametrize(
    ("classes", "labels"),
    [
        (["01", "1"], ["1", "2"]),
        (["01", "1"], ["tench", "goldfish"]),
        (["Cat", "cat"], ["cat", "dog"]),
        (["1", "dog"], ["cat", "dog"]),
    ],
)
def test_two_classes_on_one_label_are_refused_by_name(classes, labels):
    with pytest.raises(DataError, match=f"{classes[0]!r} and {classes[1]!r} of the data both match the label"):
        match_classes(classes, labels, where="data")


def test_an_index_too_far_is_told_that_indices_begin_at_0():
    with pytest.raises(DataError) as error:
        match_classes(["1", "1000"], IMAGENET, where="data")
    assert "begin at 0, and the last is 999" in error.value.hint


@pytest.mark.parametrize(
    ("labels", "classes", "indices"),
    [
        (IMAGENET, ["n01440764", "n15075141", "english_springer", "French_horn"], [0, 999, 217, 566]),
        (IMAGENET, ["n02012849", "n03126707"], [134, 517]),  # the two cranes
        (class_ids(), ["tench", "English springer"], [0, 217]),
        (["chain saw", "tench"], ["n01440764", "n03000684"], [1, 0]),
        (["tench, Tinca tinca", "goldfish, Carassius auratus"], ["n01443537", "tench"], [1, 0]),
    ],
)
def test_wordnets_ids_and_further_names_are_imagenets_classes(labels, classes, indices):
    assert match_classes(classes, labels, where="data", aliases=aliases_of(labels)) == indices

"""What a report says of images of one class each, by hand."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from vitrail.data.images.preparation import Preparation
from vitrail.data.readers.sources import Item
from vitrail.study.maps.patch_coordinates import Places
from vitrail.study.page import figures
from vitrail.tasks.classification.study.predictions import Predictions
from vitrail.tasks.classification.study.single_label_report import (
    SHEET,
    SingleLabel,
    most_confused,
)


def predictions(labels, probabilities: np.ndarray, split: str = "test") -> Predictions:
    items = [Item(f"{i}", np.zeros((4, 4), dtype=np.uint8), label) for i, label in enumerate(labels)]
    top1 = float((probabilities.argmax(axis=1) == labels).mean())
    scores = {"top1": top1, "loss": 0.5, "images": len(items)}
    scores |= {"top5": 1.0} if probabilities.shape[1] > 5 else {}
    classes = [f"class {i}" for i in range(probabilities.shape[1])]
    return Predictions(classes, split, items, Preparation.standard((4, 4), 1), probabilities, scores)


def one_hot(guesses, classes: int, sureness: float) -> np.ndarray:
    rest = (1 - sureness) / (classes - 1)
    return np.where(np.eye(classes, dtype=bool)[guesses], sureness, rest)


def test_pairs_of_classes_come_by_the_images_confused_and_the_diagonal_is_left_out():
    matrix = np.array([[9, 2, 0], [3, 9, 2], [0, 7, 9]])
    places = np.repeat(np.arange(9), matrix.ravel())
    labels, guesses = np.divmod(np.random.default_rng(0).permutation(places), 3)
    assert most_confused(labels, guesses) == [(2, 1, 7), (1, 0, 3), (0, 1, 2), (1, 2, 2)]
    assert most_confused(labels, labels) == []


@pytest.mark.soak
def test_a_report_on_12_000_classes_takes_no_memory_for_each_pair_of_them(tmp_path):
    made = predictions([0, 1, 11_999], one_hot([0, 11_998, 11_998], 12_000, 0.9))
    tracemalloc.start()
    text = "".join(SingleLabel(made).sections(tmp_path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "class 11999" in text and not (tmp_path / "confusion.png").exists()
    assert peak < 12_000**2


def test_the_cards_have_accuracy_with_its_interval_loss_and_calibration_error():
    labels = [0] * 81 + [1] * 182  # Newcombe's 81 of 263
    made = dict(SingleLabel(predictions(labels, one_hot([0] * 263, 6, 0.75))).cards())
    assert made == {
        "30.80 %": "top-1 accuracy on 263 test images; 95 % interval 25.5 to 36.6 %; top-5 100.00 %",
        "0.500": "cross-entropy",
        "44.2 %": "expected calibration error",
    }


def text_of(labels, guesses, classes, tmp_path) -> str:
    return "".join(SingleLabel(predictions(labels, one_hot(guesses, classes, 0.9))).sections(tmp_path))


@pytest.mark.parametrize(("guesses", "missing", "said"), [([0, 1], "mistakes", "No mistakes."), ([1, 0], "unsure", "No hits.")])
def test_a_sheet_without_pictures_is_not_drawn(tmp_path, guesses, missing, said):
    assert said in text_of([0, 1], guesses, 2, tmp_path)
    names = {"confusion", "calibration", "mistakes", "unsure"} - {missing}
    assert {file.stem for file in tmp_path.iterdir()} == names


def test_the_captions_count_what_is_shown(tmp_path):
    text = text_of([0] * 40, [1] * 39 + [0], 2, tmp_path)
    assert f"{SHEET} of 39 mistakes, the surest first" in text
    assert "1 of 1 hit, the least sure first" in text


def test_a_hit_is_shown_with_its_second_guess_and_a_mistake_with_the_truth(tmp_path, monkeypatch):
    drawn, save = [], Predictions.save_sheet
    monkeypatch.setattr(Predictions, "save_sheet", lambda *args, **kwargs: (drawn.append(args[2]), save(*args, **kwargs)))
    probabilities = np.array([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]])
    list(SingleLabel(predictions([1, 2], probabilities)).sections(tmp_path))
    assert drawn == [{1: "class 0 (60 %)\nis class 2 (10 %)"}, {0: "class 1 (50 %)\nor class 2 (30 %)"}]


def test_a_model_of_a_single_class_has_a_report_and_no_second_guess(tmp_path, monkeypatch):
    drawn, save = [], Predictions.save_sheet
    monkeypatch.setattr(Predictions, "save_sheet", lambda *args, **kwargs: (drawn.append(args[2]), save(*args, **kwargs)))
    made = SingleLabel(predictions([0, 0], np.ones((2, 1))))
    text = "".join(made.sections(tmp_path))
    assert "100.00 %" in dict(made.cards()) and "No mistakes." in text and "No class is taken for another." in text
    assert drawn == [{0: "class 0 (100 %)", 1: "class 0 (100 %)"}] and "class 0" in made.text


def test_a_mistake_has_its_file_below_it_and_where_the_model_looked_beside_it(tmp_path, monkeypatch):
    drawn, examples = [], figures.examples
    monkeypatch.setattr(
        figures, "examples", lambda *args, **kwargs: (drawn.append((args[0], args[3])), examples(*args, **kwargs))[1]
    )
    made = predictions([0, 1], np.array([[0.2, 0.8], [0.3, 0.7]]))
    look, places = lambda pixels: pixels[0, 0, ::2, ::2].float(), Places.even((2, 2), (4, 4))
    list(SingleLabel(replace(made, look=look, places=places)).sections(tmp_path))
    assert [([image.size for image in images], names) for images, names in drawn] == [([(8, 4)], ["0"]), ([(4, 4)], ["1"])]

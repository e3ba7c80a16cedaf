"""Average precision of several labels against scikit-learn, and what a report says of them."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from vitrail.data.images.preparation import Preparation
from vitrail.data.readers.sources import Item
from vitrail.tasks.classification.study.multi_label_report import MultiLabel, average_precisions, worst_ranked
from vitrail.tasks.classification.study.predictions import Predictions


def test_average_precision_of_a_single_class_among_others_is_scikit_learns():
    random = np.random.default_rng(0)
    true, probabilities = random.random((30, 3)) < [0.5, 0, 0.1], random.random((30, 3))
    found = average_precisions(true, probabilities)
    assert found[0] == average_precision_score(true[:, 0], probabilities[:, 0])
    assert found[2] == average_precision_score(true[:, 2], probabilities[:, 2])


def test_the_worst_ranked_are_those_whose_last_class_has_most_before_it():
    true = np.array([[1, 0, 0, 1], [0, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], dtype=bool)
    probabilities = np.array(
        [
            [0.9, 0.1, 0.2, 0.3],  # right: both of its classes come first
            [0.4, 0.3, 0.2, 0.1],  # class 1 is second
            [0.9, 0.1, 0.8, 0.7],  # class 1 is last
            [0.9, 0.8, 0.7, 0.6],  # nothing to find
            [0.7, 0.6, 0.05, 0.2],  # class 2 is last, and less probable than image 2's
            [0.4, 0.3, 0.2, 0.4],  # no other stands before class 3
        ]
    )
    assert worst_ranked(true, probabilities) == [(4, 2), (2, 1), (1, 1)]


def predictions(true: np.ndarray, probabilities: np.ndarray) -> Predictions:
    items = [Item(f"{i}", np.zeros((4, 4), dtype=np.uint8), tuple(np.flatnonzero(row).tolist())) for i, row in enumerate(true)]
    classes, scores = (
        [f"c{i}" for i in range(true.shape[1])],
        {"map": 0.5, "top1": 0.25, "top5": 1.0, "loss": 0.1, "images": len(true)},
    )
    return Predictions(classes, "test", items, Preparation.standard((4, 4), 1), probabilities, scores)


TRUE = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 0]])
PROBABILITIES = np.array([[0.9, 0.1, 0.3], [0.6, 0.2, 0.6], [0.7, 0.8, 0.1], [0.1, 0.3, 0.2]])


def test_thresholds_of_other_images_are_applied_to_those_shown():
    made = MultiLabel(predictions(TRUE, PROBABILITIES), [0.8, 0.25, 0.3], "the validation images")
    assert made.predicted.tolist() == [[1, 0, 1], [0, 0, 1], [0, 1, 0], [0, 1, 0]]
    assert made.images.tolist() == [2, 2, 0]
    assert made.precision.tolist() == [1, 0.5, 0]
    assert made.recall.tolist() == [0.5, 0.5, 0]
    assert made.f1.tolist() == pytest.approx([2 / 3, 0.5, 0])
    rows = [line.split() for line in made.text.splitlines() if line.strip().startswith("c")]
    assert rows == [
        ["c0", "1.0000", "0.5000", "0.6667", "2"],
        ["c1", "0.5000", "0.5000", "0.5000", "2"],
        ["c2", *["0.0000"] * 3, "0"],
    ]
    shown = {what: number for number, what in made.cards()}
    assert shown["mean F1, thresholds from the validation images"] == "58.3 %"  # of the two classes that are shown
    assert shown["mean average precision on 4 test images; the surest class is correct on 25.0 %"] == "50.00 %"


@pytest.mark.parametrize("shown", [[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]])
def test_a_single_class_has_the_scores_that_it_has_among_others(shown, tmp_path):
    true, probabilities = np.array(shown)[:, None], np.array([[0.9], [0.2], [0.6], [0.1]])
    alone = MultiLabel(predictions(true, probabilities), [0.5], "the validation images")
    among = MultiLabel(predictions(np.c_[true, TRUE], np.c_[probabilities, PROBABILITIES]), [0.5] * 4, "the validation images")
    for name in ("precision", "recall", "f1", "images"):
        assert getattr(alone, name).tolist() == getattr(among, name)[:1].tolist()
    (row,) = [line.split() for line in alone.text.splitlines() if line.strip().startswith("c0")]
    assert row == next(line.split() for line in among.text.splitlines() if line.strip().startswith("c0"))
    assert any("mean F1" in what for _, what in alone.cards())
    assert "c0" in next(alone.sections(tmp_path))


def test_the_sections_say_where_thresholds_are_from_and_draw_what_was_missed(tmp_path):
    sections = list(MultiLabel(predictions(TRUE, PROBABILITIES)).sections(tmp_path))
    assert "the best F1 on these same images, nearer to one half where it rests on few of them. That flatters" in sections[0]
    assert "1 of 1 images with a class that stands behind" in sections[-1]  # image 1, whose class 1 stands last
    assert {file.name for file in tmp_path.iterdir()} == {"calibration.png", "mistakes.png"}

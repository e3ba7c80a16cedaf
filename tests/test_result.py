"""Printed runs, models and data: a line or a small table."""

from dataclasses import replace
from pathlib import Path

import pytest

import vitrail


def test_a_run_prints_as_a_line_with_its_score(run):
    assert str(run) == f"<Run {run.folder}: test accuracy {100 * run.scores['top1']:.2f} % of {run.scores['images']} images>"
    assert "loss" in run._repr_html_() and str(run.folder / "report.html") in run._repr_html_()


def test_a_run_on_texts_counts_its_sentences_alone(translated_run):
    """The scores also hold a text: the settings of BLEU."""
    assert str(translated_run).endswith(f"of {translated_run.scores['sentences']} sentences>")
    uncounted = {name: score for name, score in translated_run.scores.items() if name != "sentences"}
    assert " of " not in str(replace(translated_run, scores=uncounted))


def test_data_prints_as_a_line_with_its_classes_and_images(pictures):
    data = vitrail.open_data(pictures)
    sizes = {split: len(items) for split, items in data.splits.items()}
    for part in (str(pictures), "3 classes", *(f"{split} {count}" for split, count in sizes.items())):
        assert part in str(data)
    assert len(str(data)) < 100 + len(str(pictures))
    assert "<tr><td>blue</td>" in data._repr_html_() and data._repr_html_().count("<tr>") == 1 + 3


@pytest.mark.parametrize("evil", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>'])
def test_names_are_escaped(run, pictures, evil):
    data = replace(vitrail.open_data(pictures), source=evil, classes=[evil, "b", "c"])
    trained = vitrail.TrainedModel(run.trained.model, [evil, "b", "c"], run.trained.preparation)
    for shown in (data, trained, replace(run, folder=Path(evil), split=evil)):
        assert evil not in shown._repr_html_() and "&lt;" in shown._repr_html_()


def test_a_model_shows_what_it_takes_and_what_it_tells(run):
    text = run.trained._repr_html_()
    assert "Vision Transformer" in text and "blue, green, red" in text and str(run.trained.preparation) in text

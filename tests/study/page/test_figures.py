"""Pictures of a run: drawn for few and many classes, long names, a single epoch, and never blank."""

import warnings

import numpy as np
import pytest
from PIL import Image

from vitrail.study.page import figures
from vitrail.study.quality.calibration import calibration


def drawn(figure, tmp_path) -> np.ndarray:
    """The pixels of a figure as it is saved; a warning would end up on a user's screen, so it is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figures.save(figure, tmp_path / "figure.png")
    pixels = np.asarray(Image.open(tmp_path / "figure.png").convert("RGB"))
    assert pixels.std() > 5, "the picture is blank"
    return pixels


def rows(count, score="top1"):
    return [
        {
            "epoch": i + 1,
            "train_loss": 2.0 / (i + 1),
            "val_loss": 2.5 / (i + 1),
            f"train_{score}": i / count,
            f"val_{score}": i / count / 2,
            "lr": 1e-3 / (i + 1),
        }
        for i in range(count)
    ]


def line(axes, number):
    return list(axes.lines[number].get_xdata()), list(axes.lines[number].get_ydata())


@pytest.mark.parametrize(("score", "label"), [("top1", "accuracy, %"), ("map", "mean average precision, %")])
@pytest.mark.parametrize("epochs", [1, 2, 300])
def test_curves_show_loss_score_and_learning_rate(tmp_path, epochs, score, label):
    made = rows(epochs, score)
    figure = figures.curves(made, epochs)
    drawn(figure, tmp_path)
    loss, right, rate = figure.axes
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", label, "learning rate"]
    for axes, name, factor in ((loss, "loss", 1), (right, score, 100)):
        for number, split in enumerate(("train", "val")):
            epoch, values = line(axes, number)
            assert epoch == list(range(1, epochs + 1))
            assert values == pytest.approx([factor * row[f"{split}_{name}"] for row in made])
    assert line(rate, 0) == (list(range(1, epochs + 1)), [row["lr"] for row in made])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["training", "validation", f"kept: epoch {epochs}"]


def test_reliability_draws_the_share_and_the_number_of_every_step(tmp_path):
    made = calibration(np.array([0.3, 0.4, 0.9, 1.0, 0.8, 0.95]), np.array([1, 0, 1, 1, 0, 1]), bins=4)
    figure = figures.reliability(made, "probability, %", "right, %")
    drawn(figure, tmp_path)
    shares, counts = figure.axes
    assert [bar.get_height() for bar in shares.patches] == pytest.approx([0, 50, 0, 75])
    assert [bar.get_x() for bar in shares.patches] == pytest.approx([0, 25, 50, 75])
    assert [bar.get_height() for bar in counts.patches] == pytest.approx([0, 200 / 6, 0, 400 / 6])
    diagonal, dots = shares.lines
    assert diagonal.get_xydata().tolist() == [[0, 0], [100, 100]]
    np.testing.assert_allclose(dots.get_xydata(), [[np.nan] * 2, [35, 50], [np.nan] * 2, [91.25, 75]])
    assert (counts.get_xlabel(), shares.get_ylabel()) == ("probability, %", "right, %")


def texts(axes):
    return {(round(t.get_position()[1]), round(t.get_position()[0])): t.get_text() for t in axes.texts}


def test_confusion_has_true_classes_in_rows_and_numbers_in_cells(tmp_path):
    figure = figures.confusion(np.array([[8, 2], [0, 5]]), ["cat", "dog"])
    drawn(figure, tmp_path)
    (axes,) = figure.axes
    assert texts(axes) == {(0, 0): "8", (0, 1): "2", (1, 1): "5"}
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("guessed", "true")
    assert [t.get_text() for t in axes.get_yticklabels()] == ["cat", "dog"]
    np.testing.assert_allclose(axes.images[0].get_array(), [[0.8, 0.2], [0, 1]])


@pytest.mark.parametrize("count", [2, 21, 60])
def test_confusion_is_legible_with_any_number_of_classes(tmp_path, count):
    figure = figures.confusion(np.eye(count, dtype=int) * 3 + 1, [f"class {i}" for i in range(count)])
    pixels = drawn(figure, tmp_path)
    assert max(pixels.shape) <= 1600
    assert len(figure.axes[0].texts) == (count**2 if count <= 20 else 0)
    assert (len(figure.axes[0].get_xticklabels()) == count) == (count <= 40)


def test_confusion_numbers_up_to_20_classes_and_names_up_to_40():
    for count, numbered, named in ((20, True, True), (21, False, True), (40, False, True), (41, False, False)):
        (axes,) = figures.confusion(np.ones((count, count), dtype=int), [f"class {i}" for i in range(count)]).axes
        assert (len(axes.texts) == count**2, len(axes.get_xticklabels()) == count) == (numbered, named)


@pytest.mark.parametrize(
    "name",
    ["a rather long name of a class, as folders have them" * 2, "$x_1^2$", "$ 5 a_b", "\\frac", "été ñ ß", "고양이", "כלב"],
    ids=["long", "formula", "dollar", "backslash", "accents", "Korean", "Hebrew"],
)
def test_any_name_of_a_class_can_be_drawn(tmp_path, name):
    drawn(figures.confusion(np.eye(2, dtype=int), [name, "other"]), tmp_path)
    picture = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8))
    drawn(figures.examples([picture], [name], [False], [name]), tmp_path)


@pytest.mark.parametrize("count", [1, 7])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_examples_shows_every_image_with_its_caption(tmp_path, count, mode):
    pictures = [Image.fromarray(np.full((8, 8), 200, dtype=np.uint8)).convert(mode) for _ in range(count)]
    captions, names = [f"caption {i}" for i in range(count)], [f"{i}.png" for i in range(count)]
    figure = figures.examples(pictures, captions, [i % 2 == 0 for i in range(count)], names)
    drawn(figure, tmp_path)
    shown = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title() for axes in shown] == captions
    assert [axes.get_xlabel() for axes in shown] == names
    assert [axes.spines["left"].get_visible() for axes in shown] == [i % 2 == 1 for i in range(count)]


@pytest.mark.parametrize(
    ("label", "shown"),
    [("cat_photos", "cat photos"), ("tench, Tinca tinca", "tench"), ("__", "__"), ("x" * 20, "x" * 15 + "…")],
)
def test_a_class_is_readable_beside_a_picture(label, shown):
    assert figures.readable(label) == shown

"""The report of a run: scikit-learn's numbers, and a page that needs nothing but itself."""

import base64
import re
from functools import cache
from html.parser import HTMLParser
from io import BytesIO

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import classification_report

from vitrail.data.preparation import Preparation
from vitrail.data.sources import Item
from vitrail.models.config import ViTConfig
from vitrail.study.cost import cost
from vitrail.study.report import telling_order, write_report
from vitrail.weights.folder import load_model

CONFIG = ViTConfig(image_size=8, patch_size=4, channels=1, num_classes=2, dim=16, depth=1, heads=2, mlp_dim=32)


class Page(HTMLParser):
    """The tags, attributes and text of a page."""

    def __init__(self, file):
        super().__init__()
        self.tags, self.links, self.text = [], [], ""
        self.source = file.read_text(encoding="utf-8")
        self.feed(self.source)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [(name, value) for name, value in attributes if name in ("src", "href", "srcset", "action", "data")]

    def handle_data(self, data):
        self.text += data

    @property
    def pictures(self) -> list[Image.Image]:
        sources = [value for name, value in self.links if name == "src"]
        return [Image.open(BytesIO(base64.b64decode(source.removeprefix("data:image/png;base64,")))) for source in sources]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """``report(classes)`` writes the report of made-up guesses, once, and returns its folder, the labels and the guesses."""

    @cache
    def write(classes, epochs=3, images=30, about="", wrong=0.3):
        folder = tmp_path_factory.mktemp("report")
        random = np.random.default_rng(0)
        (folder / "plots").mkdir()
        labels = np.arange(images) % len(classes)
        probabilities = random.random((images, len(classes)))
        right = random.random(images) >= wrong
        probabilities[np.arange(images)[right], labels[right]] += 5
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        pixels = random.integers(0, 255, (images, 8, 8), dtype=np.uint8)
        row = {"train_loss": 1.0, "train_top1": 0.5, "val_loss": 1.0, "val_top1": 0.5, "seconds": 1.0}
        write_report(
            folder,
            settings={"about": about, "model": {"name": "ViT-Ti/4"}, "data": {"source": "made up"}},
            environment={"processor": "abacus", "cores": 1},
            rows=[{"epoch": i + 1, **row} for i in range(epochs)],
            cost=cost(CONFIG),
            classes=list(classes),
            counts={"train": [7] * len(classes), "val": [0] * len(classes), "test": [3] * len(classes)},
            split="test",
            items=[Item(f"image-{i}", Image.fromarray(p), int(t)) for i, (p, t) in enumerate(zip(pixels, labels, strict=True))],
            preparation=Preparation.standard((8, 8), 1),
            probabilities=probabilities,
            kept=1,
            scores={"top1": 0.7, "top5": 1.0, "loss": 1.234, "images": images},
        )
        return folder, labels, probabilities.argmax(axis=1)

    return lambda classes, **options: write(tuple(classes), **options)


LISTS = {
    "two": ["cat", "dog"],
    "sixty": [f"class {i}" for i in range(60)],
    "long": ["a name that goes on and on, as the names of folders do when nobody stops them" + c for c in "abc"],
    "markup": ["<b>&", "<script>alert(1)</script>", "'\"><img src=x>"],
    "formula": ["$a$", "b_1 $", "c^2"],
    "foreign": ["고양이", "כלב", "été"],
}


@pytest.mark.parametrize("classes", LISTS.values(), ids=LISTS.keys())
def test_the_classification_report_is_scikit_learns(report, classes):
    folder, labels, guesses = report(classes)
    expected = classification_report(labels, guesses, labels=range(len(classes)), target_names=classes, digits=4, zero_division=0)
    assert (folder / "classification_report.txt").read_text() == expected


@pytest.mark.parametrize("classes", LISTS.values(), ids=LISTS.keys())
def test_the_page_needs_nothing_but_itself_and_shows_every_class(report, classes):
    page = Page(report(classes)[0] / "report.html")
    assert all(name == "src" and value.startswith("data:image/png;base64,") for name, value in page.links)
    assert not re.search(r"https?://|@import|url\(", page.source)
    assert not {"script", "b", "iframe", "link"} & set(page.tags)
    assert page.tags.count("img") == 3
    assert all(name in page.text for name in classes)


@pytest.mark.parametrize("classes", LISTS.values(), ids=LISTS.keys())
def test_every_picture_of_the_page_can_be_seen(report, classes):
    folder, _, _ = report(classes)
    shown = Page(folder / "report.html").pictures
    assert len(shown) == 3
    for picture in shown:
        assert np.asarray(picture.convert("L")).std() > 5
        assert min(picture.size) > 100
    names = ("curves", "confusion", "examples")
    assert [p.tobytes() for p in shown] == [Image.open(folder / "plots" / f"{name}.png").tobytes() for name in names]


def test_the_page_says_what_was_reached_with_what_and_what_to_expect(report):
    page = Page(report(["cat", "dog"], about="Expect <70 %.", images=30)[0] / "report.html")
    for words in ("70.00 %", "30 test images", "1.234", "3 epochs", "ViT-Ti/4 on made up", "Expect <70 %.", "abacus"):
        assert words in page.text


def test_the_page_counts_the_images_of_every_split_that_has_any(report):
    text = Page(report(["cat", "dog"])[0] / "report.html").text
    assert "indexclasstraintest0cat731dog73" in text


@pytest.mark.parametrize(
    ("images", "wrong", "said"),
    [
        (30, 0.0, "No mistakes. The hits of which the model was least sure."),
        (60, 1.0, "24 of 59 mistakes, the surest first."),
    ],
)
def test_the_page_says_how_many_mistakes_it_shows(report, images, wrong, said):
    classes = [f"class {i}" for i in range(100)]
    folder, _, _ = report(classes, images=images, wrong=wrong)
    assert said in Page(folder / "report.html").text


def test_a_report_is_written_after_a_single_epoch_on_a_single_image(report):
    text = Page(report(["cat", "dog"], epochs=1, images=1)[0] / "report.html").text
    assert "1 epoch" in text
    assert "1 epochs" not in text


def test_the_surest_mistakes_come_first_then_the_least_sure_hits():
    probabilities = np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.05, 0.95], [0.55, 0.45]])
    assert telling_order([0, 1, 1, 0, 1], probabilities) == [3, 1, 4, 2, 0]


def test_the_report_of_a_run_is_about_its_best_model(run):
    labels = load_model(run.folder / "best").labels
    text = (run.folder / "classification_report.txt").read_text()
    assert [line.split()[0] for line in text.splitlines()[2:5]] == labels
    assert f"{run.scores['top1']:.4f}" in next(line for line in text.splitlines() if "accuracy" in line)
    page = Page(run.folder / "report.html")
    assert f"{100 * run.scores['top1']:.2f} %" in page.text
    assert len(page.pictures) == 3


def test_a_folder_named_like_markup_injects_nothing_into_the_report_of_a_run(run, pictures, tiny, tmp_path):
    import vitrail

    data = tmp_path / "data & <i>"
    data.mkdir()
    (data / "<b>&").symlink_to(pictures / "red")
    (data / "plain").symlink_to(pictures / "blue")
    made = vitrail.train(data, tmp_path / "run", fast_dev_run=True, **tiny)
    page = Page(made.folder / "report.html")
    assert not {"b", "i"} & set(page.tags)
    assert "<b>&" in page.text
    assert made.trained.labels == ["<b>&", "plain"]

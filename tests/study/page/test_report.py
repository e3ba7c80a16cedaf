"""The report of a run: scikit-learn's numbers, and a page that needs nothing but itself, for one label and for several."""

import base64
import re
from functools import cache
from html.parser import HTMLParser
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import classification_report

from vitrail.data.images.preparation import Preparation
from vitrail.data.readers.sources import ImageData, Item
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.cost import cost
from vitrail.models.registry import model_config
from vitrail.models.vision.vit import ViT
from vitrail.study.page.report import title_of, write_report
from vitrail.study.page.report_part import Reported
from vitrail.tasks.classification import report as classification
from vitrail.tasks.classification.labels.multi_label import MultiLabel
from vitrail.tasks.classification.labels.single_label import Classification, LabelMetrics
from vitrail.tasks.classification.report import chosen_on, several_labels
from vitrail.tasks.classification.study.multi_label_report import THESE
from vitrail.tasks.classification.study.predictions import Predictions
from vitrail.weights.reference import load_model

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


class Made(LabelMetrics):
    """Metrics of answers that nobody gave."""

    def __init__(self, probabilities, scores=None, labels=None):
        super().__init__()
        self.made, self.made_scores, self.made_labels = torch.from_numpy(probabilities), scores, labels

    probabilities = property(lambda self: self.made)
    labels = property(lambda self: torch.from_numpy(self.made_labels))

    def scores(self):
        return self.made_scores


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """``report(classes)`` writes the report of made-up guesses, once, and returns its folder, the labels and the guesses."""

    @cache
    def write(classes, several, epochs=3, images=12, wrong=0.5, split="test", keep="best", averaged=None):
        folder = tmp_path_factory.mktemp("report")
        random = np.random.default_rng(0)
        (folder / "plots").mkdir()
        labels = np.arange(images) % len(classes)
        named = [(int(label),) if several else int(label) for label in labels]
        probabilities = random.random((images, len(classes)))
        correct = random.random(images) >= wrong
        probabilities[np.arange(images)[correct], labels[correct]] += 5
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        pixels = random.integers(0, 255, (images, 8, 8), dtype=np.uint8)
        row = {"train_loss": 1.0, "train_top1": 0.5, "val_loss": 1.0, "val_map" if several else "val_top1": 0.5, "lr": 0.1}
        rows = [{"epoch": i + 1, **row, "seconds": 100.0 + i, "images_per_second": 1000.0 - i} for i in range(epochs)]
        settings = {
            "about": "A recipe for <toys>.",
            "expected": {"result": "70 %", "cost": "", "machine": "an abacus & chalk"},
            "model": {"name": "ViT-Ti/4"},
            "task": {"name": "classification"},
            "start": None,
            "data": {"source": "made up"},
            "augmentation": {"mixup": 0.0, "cutmix": 0.0},
            "training": {"label_smoothing": 0.0, "tune": "all", "keep": keep},
        }
        items = [Item(f"image-{i}", Image.fromarray(p), t) for i, (p, t) in enumerate(zip(pixels, named, strict=True))]
        some = [Item("", None, (i,) if several else i) for i in range(len(classes))]
        data = ImageData("made up", list(classes), {"train": 7 * some, "val": [], "test": 3 * some}, multi_label=several)
        task = (MultiLabel if several else Classification)(
            ViT(CONFIG.changed(num_classes=len(classes))), Preparation.standard((8, 8), 1), classes
        )
        metrics = Made(probabilities, {"top1": 0.7, "top5": 1.0, "loss": 1.234, "images": images, "map": 0.456})
        run = Reported(settings, rows, task, data, split, items, metrics, None, folder / "plots")
        averaged_over = {"averaged": averaged} if averaged else {}
        machine = {"processor": "abacus", "cores": 1, "gpus": ["quill"]}
        write_report(folder, run, environment=machine, kept={"epoch": 1, **averaged_over}, cost=cost(CONFIG))
        return folder, labels, probabilities.argmax(axis=1)

    return lambda classes, several=False, **options: write(tuple(classes), several, **options)


LISTS = {
    "two": ["cat", "dog"],
    "sixty": [f"class {i}" for i in range(60)],
    "long": ["a name that goes on and on, as the names of folders do when nobody stops them" + c for c in "abc"],
    "markup": ["<b>&", "<script>alert(1)</script>", "'\"><img src=x>"],
    "formula": ["$a$", "b_1 $", "c^2"],
    "foreign": ["고양이", "כלב", "été"],
}


PAGES = {name: (classes, False) for name, classes in LISTS.items()} | {"several labels": (LISTS["markup"], True)}


@pytest.mark.parametrize("classes", [LISTS["two"], LISTS["sixty"]], ids=["two", "sixty"])
def test_the_classification_report_is_scikit_learns(report, classes):
    folder, labels, guesses = report(classes)
    expected = classification_report(labels, guesses, labels=range(len(classes)), target_names=classes, digits=4, zero_division=0)
    assert (folder / "classification_report.txt").read_text() == expected


@pytest.mark.parametrize(("classes", "several"), PAGES.values(), ids=PAGES.keys())
def test_the_page_needs_nothing_but_itself_and_shows_every_class(report, classes, several):
    page = Page(report(classes, several=several)[0] / "report.html")
    assert all(name == "src" and value.startswith("data:image/png;base64,") for name, value in page.links)
    assert not re.search(r"https?://|@import|url\(", page.source)
    assert not {"script", "b", "iframe", "link"} & set(page.tags)
    assert all(name in page.text for name in classes)


def test_the_page_says_what_was_reached_with_what_and_what_to_expect(report):
    page = Page(report(["cat", "dog"])[0] / "report.html")
    for words in (
        "70.00 %",
        "12 test images",
        "1.234",
        "3 epochs",
        "ViT-Ti/4 on made up, trained from scratch",
        "<toys>",
        "Expected by the recipe: 70 %; an abacus & chalk.",
        "abacus, 1 core, quill",
    ):
        assert words in page.text


@pytest.mark.parametrize(
    ("split", "given", "val", "said"),
    [
        ("test", False, 1, THESE),
        ("val", True, 1, THESE),
        ("test", True, 1, "the validation images"),
        ("test", True, 0, "the training images"),
    ],
)
def test_thresholds_come_from_images_that_are_not_shown_where_there_are_any(split, given, val, said):
    items = [Item("", Image.new("L", (8, 8)), (0,)), Item("", Image.new("L", (8, 8)), (1,))]
    chances, validation = np.array([[0.9, 0.1], [0.2, 0.8]]), Made(np.eye(2), labels=np.eye(2)) if given else None
    predictions = Predictions(["a", "b"], split, items, Preparation.standard((8, 8), 1), chances, {}, [0.7, 0.6])
    data = ImageData("made up", ["a", "b"], {"train": 9 * items, "val": val * items})
    run = Reported({}, [], None, data, split, items, None, validation, None)
    made = several_labels(predictions, run)
    assert chosen_on(run) == ("the validation images" if val else "the training images")
    assert made.chosen_on == said and made.warning.endswith("unsure: a (1), b (1)") == bool(given or said == THESE)
    assert made.thresholds.tolist() == pytest.approx([0.5084, 0.4916] if said == THESE else [0.7, 0.6], abs=1e-4)  # 0.55, 0.45


@pytest.mark.parametrize(
    ("split", "keep", "said"),
    [
        ("test", "best", None),
        ("val", "best", "chosen on these images"),
        ("val", "last", None),
        ("all", "best", "trained on these images"),
        ("all", "last", "trained on these images"),
    ],
)
def test_the_page_warns_of_images_that_the_model_is_no_stranger_to(report, split, keep, said):
    text = Page(report(["cat", "dog"], split=split, keep=keep, images=2)[0] / "report.html").text
    assert [words for words in ("chosen on these images", "trained on these images") if words in text] == ([said] if said else [])


@pytest.mark.parametrize(("smoothing", "mixup", "cutmix"), [(0, 0, 0), (0.1, 0.2, 0), (0, 0, 1)])
def test_the_caption_of_the_curves_says_what_loss_and_accuracy_are(smoothing, mixup, cutmix):
    def caption(row):
        settings = {"augmentation": {"mixup": mixup, "cutmix": cutmix}, "training": {"label_smoothing": smoothing}}
        return classification.curves_caption(Reported(settings, [row], None, None, "test", [], None, None, None))

    one, several = caption({"train_top1": 0.5, "val_top1": 0.5}), caption({"val_map": 0.5})
    assert ("Training images were mixed in pairs; their accuracy counts" in one) == bool(mixup + cutmix)
    assert ("label smoothing" in one) == (smoothing > 0)
    assert "their accuracy" not in several and "Average precision is measured on validation images alone." in several


@pytest.mark.parametrize(
    ("keep", "said"), [("best", "of the last 3 epochs: it was better than each of them."), ("last", "of the last 3 epochs.")]
)
def test_the_page_says_of_a_mean_of_epochs_whether_it_was_chosen(report, keep, said):
    assert said in Page(report(["cat", "dog"], keep=keep, averaged=3, images=2)[0] / "report.html").text


def test_the_report_of_a_run_is_about_its_best_model(run):
    labels = load_model(run.folder / "best").labels
    text = (run.folder / "classification_report.txt").read_text()
    assert [line.split()[0] for line in text.splitlines()[2:5]] == labels
    assert f"{run.scores['top1']:.4f}" in next(line for line in text.splitlines() if "accuracy" in line)
    page = Page(run.folder / "report.html")
    assert f"{100 * run.scores['top1']:.2f} %" in page.text
    assert len(page.pictures) == len(list((run.folder / "plots").iterdir())) >= 4


@pytest.mark.parametrize(
    ("start", "tune", "task", "said"),
    [
        (None, "all", "classification", "ViT-Ti/16 on photos, trained from scratch"),
        ("w", "all", "classification", "ViT-Ti/16 fine-tuned on photos"),
        ("w", "lora", "classification", "ViT-Ti/16 fine-tuned on photos with low-rank adapters"),
        ("w", "head", "classification", "ViT-Ti/16 on photos, a head on frozen features"),
        (None, "all", "mae", "ViT-Ti/16 on photos, learned without labels"),
    ],
)
def test_a_report_is_titled_by_what_was_done_and_shows_no_path(start, tune, task, said):
    settings = {"model": {"name": "custom"}, "data": {"source": "/home/me/photos"}, "start": start}
    settings |= {"training": {"tune": tune}, "task": {"name": task}}
    assert title_of(settings, model_config("ViT-Ti/16", num_classes=7, image_size=96)) == said
    assert title_of(settings, CONFIG).startswith("ViT ")

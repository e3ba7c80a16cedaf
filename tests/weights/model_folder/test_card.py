"""The model card says what it was told, to people and to the hub, and nothing that a name smuggles in."""

import math
import re

import pytest
from huggingface_hub import ModelCard
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from PIL import Image

from vitrail.cli.app import app
from vitrail.weights.model_folder.card import model_card
from vitrail.weights.model_folder.trained import save_model

FULL = {
    "name": "ViT-Ti/16 on flowers",
    "labels": ["rose", "daisy"],
    "data": "flowers: 288 training images.\n\nTaken in two gardens.",
    "recipe": "finetune, 5 epochs",
    "metrics": {"validation accuracy": 0.98125, "validation loss": 0.00012, "training images": 12288, "epoch": "4 of 5"},
    "intended_use": "To sort photos of flowers.",
    "base_model": "google/vit-tiny@v2",
    "license": "apache-2.0",
}
NASTY = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "](javascript:alert(1))",
    "[a](http://b.c)",
    "![a](http://b.c/d.png)",
    "``` \n# title\n```",
    "`",
    "``a`",
    "a | b",
    "--- \n---\nlicense: mit",
    "\n---\n",
    "!!python/object:os.system",
    "a: b # c",
    "*a* _b_ ~~c~~ $d$",
    "# a",
    "- a",
    "===",
    "&lt;b&gt;",
    "a\\",
    "\u202eevil\u2028x\x00\ud800",
    "x" * 5000,
    "\u200b",
    "yes",
    "1e3",
]


def tokens(card):
    """What Markdown makes of the card's text, one after the other."""
    _, _, text = card.partition("\n---\n")
    blocks = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)
    return [token for block in blocks for token in (block.children or [block])]


def contents(card, kind):
    return [token.content for token in tokens(card) if token.type == kind]


def structure(card):
    """Everything of the card but its letters."""
    return [token.type for token in tokens(card) if token.type not in ("text", "code_inline")]


def shown(card):
    return " ".join(token.content for token in tokens(card))


def headings(card):
    return re.findall(r"^## (.*)$", card, re.MULTILINE)


def seen(text):
    """What is left of a text on one line."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


VISIBLE = [text for text in NASTY if seen(text)]


# -- what it says


def test_every_section_that_has_something_to_say_is_there_in_order():
    card = model_card(**FULL)
    assert headings(card) == ["Labels", "Data", "Training", "Results", "Intended use and limits", "How to use it"]
    for text in ("rose", "daisy", "288 training images.", "Taken in two gardens.", "finetune, 5 epochs", "To sort photos"):
        assert text in shown(card)


def test_sections_without_content_are_left_out():
    card = model_card(name="a", labels=["b"])
    assert headings(card) == ["Labels", "Intended use and limits", "How to use it"]
    assert "fine-tuned" not in card
    assert ModelCard(card).data.to_dict().keys() == {"library_name", "pipeline_tag", "tags"}


@pytest.mark.parametrize("multi_label", [False, True])
def test_it_says_what_an_answer_means(multi_label):
    card = model_card(name="a", labels=["b", "c"], multi_label=multi_label)
    assert ("one of its classes" in card, "several labels, or none" in card) == (not multi_label, multi_label)
    assert ("tells 2 classes apart" in card, "which of 2 classes" in card) == (not multi_label, multi_label)


def test_numbers_are_written_to_be_read():
    rows = re.findall(r"^\| (.*) \| (.*) \|$", model_card(**FULL), re.MULTILINE)[1:]
    assert rows == [
        ("validation accuracy", "0.9812"),
        ("validation loss", "1.20e-04"),
        ("training images", "12,288"),
        ("epoch", "4 of 5"),
    ]


def test_of_many_labels_the_first_are_named_and_the_others_counted():
    card = model_card(name="a", labels=[f"class {i}" for i in range(1000)])
    assert "`class 0`, `class 1`," in card and "`class 99`, and 900 more" in card and "class 100`" not in card
    assert "more" not in model_card(name="a", labels=[f"class {i}" for i in range(100)])


def test_a_recipe_of_several_lines_stands_as_it_is():
    recipe = "training:\n  epochs: 5\n  # ```\n  lr: 0.1\n"
    assert contents(model_card(name="a", labels=["b"], recipe=recipe), "fence")[0] == recipe


def test_its_own_instructions_work(trained, tmp_path, monkeypatch, capsys):
    before = trained(channels=3)
    save_model(tmp_path / "FOLDER", before, card="")
    for label in before.labels:
        (tmp_path / "PHOTOS" / "test" / label).mkdir(parents=True)
        Image.new("RGB", (20, 20)).save(tmp_path / "PHOTOS" / "test" / label / "a.png")
    Image.new("RGB", (20, 20)).save(tmp_path / "photo.jpg")
    monkeypatch.chdir(tmp_path)
    python, shell = contents(model_card(name="a", labels=["b"]), "fence")
    exec(python, {})
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 3 and {line.rpartition(" ")[0] for line in told} == set(before.labels)
    for command in shell.splitlines():
        assert command.startswith("vitrail ")
        app.parse_args(command.removeprefix("vitrail "), print_error=False, exit_on_error=False)


# -- what the hub reads


def test_the_hub_reads_the_metadata():
    data = ModelCard(model_card(**FULL)).data
    assert (data.library_name, data.pipeline_tag, data.license) == ("vitrail", "image-classification", "apache-2.0")
    assert data.base_model == "google/vit-tiny" and "vision-transformer" in data.tags


def test_the_hub_reads_the_results():
    data = ModelCard(model_card(**FULL)).data
    assert data.model_name == FULL["name"]
    results = [(r.task_type, r.dataset_name, r.metric_name, r.metric_type, r.metric_value) for r in data.eval_results]
    task, flowers = "image-classification", "flowers: 288 training images."
    assert results == [
        (task, flowers, "validation accuracy", "accuracy", 0.98125),
        (task, flowers, "validation loss", "loss", 0.00012),
    ]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3, "good"])
def test_what_is_no_measured_number_is_told_and_no_result(value):
    card = model_card(name="a", labels=["b"], metrics={"accuracy": value})
    assert f"| {value} |" in card and ModelCard(card).data.eval_results is None


@pytest.mark.parametrize(
    ("data", "languages", "kind"),
    [
        ("hf:uoft-cs/cifar10, 50,000 images", None, "uoft-cs/cifar10"),
        ("hf:mnist", None, "mnist"),
        ("hf:/home/ann", None, "imagefolder"),
        ("", None, "imagefolder"),
        ("", ("en", "de"), "text"),
    ],
)
def test_results_on_a_data_set_of_the_hub_are_of_that_data_set(data, languages, kind):
    card = ModelCard(
        model_card(name="a", labels=[] if languages else ["b"], data=data, metrics={"accuracy": 0.5}, languages=languages)
    )
    assert card.data.eval_results[0].dataset_type == kind and card.data.eval_results[0].dataset_name


@pytest.mark.parametrize("base", ["runs/a/b", "/home/ann/model", "ViT-H/16", "a b"])
def test_a_base_model_that_is_not_on_the_hub_is_only_named(base):
    card = model_card(name="a", labels=["b"], base_model=base)
    assert f"fine-tuned from `{base}`" in card and ModelCard(card).data.base_model is None


def test_a_base_model_of_the_hub_is_linked_to():
    card = model_card(name="a", labels=["b"], base_model="ann/vit_tiny@v2")
    assert r"[ann/vit\_tiny@v2](https://huggingface.co/ann/vit_tiny)" in card


# -- what names cannot do


@pytest.mark.parametrize("field", ["name", "data", "intended_use", "base_model", "license"])
@pytest.mark.parametrize("text", VISIBLE, ids=range(len(VISIBLE)))
def test_no_text_becomes_markup_or_metadata(field, text):
    fields = {**FULL, "base_model": "", field: text}
    card, plain = model_card(**fields), model_card(**{**fields, field: "word"})
    assert structure(card) == structure(plain)
    mine, theirs = ModelCard(card).data.to_dict(), ModelCard(plain).data.to_dict()
    assert mine.keys() == theirs.keys() and mine["library_name"] == "vitrail"
    if field in ("data", "intended_use"):
        assert seen(text) in shown(card)


def test_a_recipe_holds_nothing_that_steers_the_display():
    card = model_card(name="a", labels=["b"], recipe="training:\n  lr: \u202e1.0\u200b\x1b[2J\n")
    assert contents(card, "fence")[0] == "training:\n  lr:  1.0  [2J\n"


def test_a_text_that_nobody_can_see_is_no_section():
    card = model_card(name="a", labels=["b"], data="\u200b\n", recipe=" ", intended_use="\n")
    assert headings(card) == ["Labels", "Intended use and limits", "How to use it"]


@given(st.text(max_size=30), st.text(max_size=30), st.floats() | st.integers() | st.text(max_size=10))
@example("", "", "")
@example("`" * 5, "a|b\n|c", "|")
@settings(max_examples=30, deadline=None)
def test_any_words_make_a_card_that_can_be_written_and_read(label, metric, value):
    card = model_card(name=label, labels=[label, "last"], data=metric, recipe=label, metrics={metric: value}, intended_use=label)
    card.encode()
    ModelCard(card)
    assert contents(card, "code_inline")[1] == "last"
    kinds = structure(card)
    assert kinds.count("tr_open") == 2 and kinds.count("td_open") == kinds.count("th_open") == 2
    if isinstance(value, float) and math.isfinite(value):
        assert ModelCard(card).data.eval_results[0].metric_value == value

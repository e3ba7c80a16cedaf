"""Runs that translate, side by side."""

import json
import shutil

import pytest
import sacrebleu
import torch

from vitrail import api
from vitrail.models.registry import ARCHITECTURES, build
from vitrail.tasks.answer_table import write_table
from vitrail.tasks.translation.compared import alike, length_chart, translated
from vitrail.tasks.translation.weights import TrainedTranslator

WRITTEN = [
    (f"a {'very ' * count}long way", f"ein {'sehr ' * count}weiter Weg", f"ein {'sehr ' * count}langer Weg")
    for count in range(18)
]


@pytest.fixture
def copied(translated_run, tmp_path):
    """``copied("name", rows)``: a copy of the run with other translations."""

    def copy(name: str, rows: list[tuple[str, str, str]]) -> str:
        folder = shutil.copytree(translated_run.folder, tmp_path / name)
        write_table(folder / "translations.csv", [("source", "translation", "reference"), *rows])
        return str(folder)

    return copy


def without_attention(folder: str, translator: TrainedTranslator) -> None:
    """Another model in place of a run's best."""
    torch.manual_seed(0)
    fields = {"vocabulary": translator.config.vocabulary, "dim": 8, "hidden_dim": 8, "depth": 1, "attention": "none"}
    model = build(ARCHITECTURES["Recurrent"].config.read(fields))
    TrainedTranslator(model, translator.preparation, translator.languages).save_pretrained(f"{folder}/best")


def test_one_chart_has_a_line_for_each_run_through_the_same_groups_of_sentences(copied):
    right = [(source, wanted, wanted) for source, _, wanted in reversed(WRITTEN)]
    found = alike(translated(api.compare([copied("some", WRITTEN), copied("other", WRITTEN[1:]), copied("right", right)])))
    assert [run.run for run in found] == ["some", "right"]
    assert (found[0].texts, found[1].texts) == (WRITTEN, right[::-1])
    (axes,) = length_chart(found).axes
    first, second = axes.get_lines()
    assert list(second.get_ydata()) == pytest.approx([100] * 6)
    scores = [
        sacrebleu.corpus_bleu(list(w), [list(r)]).score
        for w, r in (list(zip(*WRITTEN[i : i + 3], strict=True))[1:] for i in range(0, 18, 3))
    ]
    assert list(first.get_ydata()) == pytest.approx(scores)
    assert [label.get_text() for label in axes.get_xticklabels()][:2] == ["3–5\n3", "6–8\n3"]
    assert first.get_color() != second.get_color()


def test_the_page_has_the_chart_and_a_map_of_every_model_with_attention_and_says_of_the_others(copied, translator, vitrail_page):
    blind = copied("blind", WRITTEN)
    without_attention(blind, translator)
    gone = copied("gone", WRITTEN)
    shutil.rmtree(f"{gone}/best")
    page, files = vitrail_page([copied("seeing", WRITTEN), blind, gone, copied("other", WRITTEN[1:])])
    assert {"bleu-by-length.png", "alignments.png"} <= files
    assert "Without a map: blind (no attention); gone (its model cannot be opened" in page
    assert "Evaluated on other sentences, and not shown: other." in page
    assert "sentences" in page and "tokens/s" in page and ">a very very" in page


def test_runs_that_translate_nothing_alike_have_no_chart(copied, vitrail_page):
    page, files = vitrail_page([copied("one", WRITTEN[:3]), copied("two", WRITTEN[3:])])
    assert "BLEU by length" not in page and files == {"report.html", "curves.png", "comparison.json"}


@pytest.fixture
def vitrail_page(tmp_path):
    """The page of a comparison, and its files."""

    def compare(runs):
        api.compare(runs, tmp_path / "out")
        assert json.loads((tmp_path / "out/comparison.json").read_text())["runs"][0]["scores"]["bleu"] is not None
        return (tmp_path / "out/report.html").read_text(), {file.name for file in (tmp_path / "out").iterdir()}

    return compare

"""Comparison of translation runs: BLEU by the length of sentences, and each model's attention for the same sentence."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from vitrail.errors import VitrailError
from vitrail.models.text.text_model import Aligned, TextModel
from vitrail.study.compare.comparison import Compared, TaskComparison
from vitrail.study.maps.token_alignment import alignment_caption, alignment_maps
from vitrail.study.page import figures, page
from vitrail.study.page.page import Markup
from vitrail.tasks.answer_table import read_table
from vitrail.tasks.translation.report import LONGEST_DRAWN, TRANSLATIONS, by_length
from vitrail.tasks.translation.weights import load_translator

Texts = list[tuple[str, str, str]]
"""Source, translation and reference of every sentence."""


@dataclass(frozen=True)
class Translated:
    """A run and its translations."""

    run: str
    folder: Path
    texts: Texts
    number: int
    """Index of the run, which decides the colour of its line."""


def translated(runs: Sequence[Compared]) -> list[Translated]:
    """Return the runs that have translations, in order."""
    results = []
    for number, run in enumerate(runs):
        if run.folder is not None and (run.folder / TRANSLATIONS).is_file():
            rows = read_table(run.folder / TRANSLATIONS, "source", "translation", "reference")[1:]
            texts = [(source, written, reference) for source, written, reference, *_ in rows]
            results.append(Translated(run.name, run.folder, texts, number))
    return results


def alike(runs: Sequence[Translated]) -> list[Translated]:
    """Return the runs that were evaluated on the most common set of sentences, with these in the same order."""
    by_sentence = [{(source, reference): written for source, written, reference in run.texts} for run in runs]
    ((most, _),) = Counter(frozenset(texts) for texts in by_sentence).most_common(1)
    same = [(run, texts) for run, texts in zip(runs, by_sentence, strict=True) if texts.keys() == most]
    order = [(source, reference) for source, _, reference in same[0][0].texts]
    return [replace(run, texts=[(key[0], texts[key], key[1]) for key in order]) for run, texts in same]


def sections(runs: Sequence[Compared], folder: Path) -> list[Markup]:
    """Return the sections of a page that compares translation runs, if there are two or more; images are saved to ``folder``."""
    every = translated(runs)
    if len(every) < 2 or len(shown := alike(every)) < 2:
        return []
    others = [run.run for run in every if run.number not in {one.number for one in shown}]
    notes = [page.note(f"Evaluated on other sentences, and not shown: {', '.join(others)}.")] if others else []
    figures.save(length_chart(shown), folder / "bleu-by-length.png")
    caption = "BLEU of sentences in groups of about the same size, by the words of the source: the same groups for every run."
    chart = page.picture(folder / "bleu-by-length.png", "BLEU by length of every run", caption)
    return [page.section("BLEU by length", chart, *notes), _side_by_side(shown, folder)]


def length_chart(runs: Sequence[Translated]) -> Figure:
    """Draw BLEU by sentence length, with a line for each run; all lines use the same groups of sentences."""
    with matplotlib.rc_context(figures.STYLE):
        figure = Figure(figsize=(10, 4.2), layout="constrained")
        axes = figure.subplots()
        for run in runs:
            groups, style = by_length(run.texts), figures.line_style(run.number)
            scores = [score for _, _, score in groups]
            marker = figures.MARKERS[run.number % len(figures.MARKERS)]
            axes.plot(range(len(groups)), scores, marker=marker, label=figures.legend_name(run.run), **style)
        axes.set_xticks(range(len(groups)), [f"{words}\n{count:,}" for words, count, _ in groups])
        axes.set(xlabel="words of the source, and sentences", ylabel="BLEU", ylim=(0, None))
        axes.grid(alpha=0.25)
        figure.legend(loc="outside upper left", ncols=3, frameon=False)
    return figure


def _side_by_side(runs: Sequence[Translated], folder: Path) -> Markup:
    """Return a section with every run's translation of one sentence, and the attention of each model."""
    aligned: dict[str, tuple[TextModel, Aligned]] = {}
    without: list[str] = []
    place = _typical(runs[0].texts)
    source, _, reference = runs[0].texts[place]
    for run in runs:
        try:
            trained = load_translator(run.folder / "best")
            alignment = trained.alignment_of(source, run.texts[place][1])
        except VitrailError as error:
            without.append(f"{run.run} (its model cannot be opened: {error.what})")
            continue
        if alignment is None:
            without.append(f"{run.run} (no attention)")
        else:
            aligned[run.run] = trained.model, alignment
    rows = [("source", source), ("reference", reference), *((run.run, run.texts[place][1]) for run in runs)]
    shown = [page.table(("", "text"), rows)]
    if aligned:
        models, drawn = zip(*aligned.values(), strict=True)
        figures.save(alignment_maps(drawn, list(aligned)), folder / "alignments.png")
        caption = alignment_caption(models)
        shown.append(page.picture(folder / "alignments.png", "Attention of every model between the same two sentences", caption))
    if without:
        shown.append(page.note(f"Without a map: {'; '.join(without)}."))
    return page.section("Where each looked", *shown)


def _typical(texts: Texts) -> int:
    """Return the index of a sentence of median length among those that are short enough to be drawn."""
    lengths = [len(source.split()) for source, _, _ in texts]
    order = sorted(range(len(texts)), key=lambda place: lengths[place])
    short = [place for place in order if lengths[place] <= LONGEST_DRAWN // 2] or order[:1]
    return short[len(short) // 2]


class TranslationComparison(TaskComparison):
    """Comparison of translation runs: BLEU by length, and attention."""

    def sections(self, runs: Sequence[Compared], folder: Path) -> list[Markup]:
        return sections(runs, folder)


COMPARISON = TranslationComparison()

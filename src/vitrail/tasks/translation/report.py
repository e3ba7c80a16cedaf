"""The report on translation: scores, scores by length, attention, and translations."""

from collections.abc import Sequence

import matplotlib
from matplotlib.figure import Figure

from vitrail.data.loading.sampler import spread
from vitrail.data.text.dataset import filled
from vitrail.models.text.text_model import Aligned
from vitrail.study.maps.token_alignment import alignment_caption, alignment_maps
from vitrail.study.page import figures, page
from vitrail.study.page.report_part import SPLIT_WORDS, Part, Reported
from vitrail.study.page.tables import split_table
from vitrail.tasks.translation.pairs import Pair
from vitrail.tasks.translation.task import Translation, TranslationMetrics, translation_scores

TRANSLATIONS = "translations.csv"
"""The file in the run folder with every sentence that the run was evaluated on."""
SHOWN, DRAWN = 20, 4
"""Number of sentences shown with their translations, and number of sentences whose attention is drawn."""
LONGEST_DRAWN = 24
"""Most tokens of a sentence whose attention is drawn: more are hard to read."""
GROUPS = 6
"""Number of groups of sentences of similar length."""


def report_part(run: Reported) -> Part:
    """Return BLEU and chrF, BLEU by length, alignments, and some sentences with their translations."""
    task, metrics = run.task, run.metrics
    assert isinstance(task, Translation) and isinstance(metrics, TranslationMetrics)
    scores, kind = metrics.scores(), SPLIT_WORDS[run.split]
    written = [(run.items[number].source, text, reference) for number, text, reference in metrics.texts]
    groups = by_length(written)
    figures.save(length_chart(groups), run.plots / "bleu-by-length.png")
    caption = f"BLEU of the {kind}sentences in {len(groups)} groups of about the same size, by the words of the source."
    sections = [page.section("Length", page.picture(run.plots / "bleu-by-length.png", "BLEU by length", caption))]
    if drawn := [] if run.doubts else _alignments(task, run.items):
        figures.save(alignment_maps(drawn), run.plots / "alignment.png")
        caption = alignment_caption([task.model])
        picture = page.picture(run.plots / "alignment.png", "Attention between two sentences", caption)
        sections.append(page.section("Where it looked", picture))
    head = ("source", "translation", "reference")
    table = page.table(head, [written[place] for place in spread(len(written), SHOWN)])
    signature = f"beam {task.settings.beams}; {scores['signature']}"
    return Part(
        cards=[
            (f"{scores['bleu']:.2f}", f"BLEU on {len(run.items):,} {kind}sentences, {signature}"),
            (f"{scores['chrf']:.2f}", "chrF"),
        ],
        sections=[*sections, page.section("Translations", table, page.note(f"All of them are in {TRANSLATIONS}."))],
        data=split_table(run.data),
        caption="Loss is per token, in training with smoothed labels and dropout.",
        tables={TRANSLATIONS: [head, *written]},
    )


def by_length(written: Sequence[tuple[str, str, str]]) -> list[tuple[str, int, float]]:
    """Group sentences by the length of the source; return for each group its range of words, its size and its BLEU."""
    lengths = [len(source.split()) for source, _, _ in written]
    order = sorted(range(len(lengths)), key=lambda place: lengths[place])
    groups = []
    for number in range(GROUPS):
        group = order[number * len(order) // GROUPS : (number + 1) * len(order) // GROUPS]
        if group:
            scores = translation_scores([written[place][1] for place in group], [written[place][2] for place in group])
            words = f"{lengths[group[0]]}–{lengths[group[-1]]}"
            groups.append((words, len(group), float(scores["bleu"])))
    return groups


def length_chart(groups: Sequence[tuple[str, int, float]]) -> Figure:
    """Draw a bar for each group."""
    with matplotlib.rc_context(figures.STYLE):
        figure = Figure(figsize=(6.4, 2.8), layout="constrained")
        axes = figure.subplots()
        bars = axes.bar(range(len(groups)), [score for _, _, score in groups], color="#0072b2")
        axes.bar_label(bars, fmt="%.1f", fontsize=8)
        axes.set_xticks(range(len(groups)), [f"{words}\n{count:,}" for words, count, _ in groups])
        axes.set(xlabel="words of the source, and sentences", ylabel="BLEU")
    return figure


def _alignments(task: Translation, items: Sequence[Pair]) -> list[Aligned]:
    """Return the alignment of some sentences with the model's translations; empty for a model without attention."""
    encode, device, trained = task.tokenizer.encode, next(task.parameters()).device, task.trained(task.model)
    short = [item for item in items if len(encode([item.source])[0]) <= LONGEST_DRAWN] or list(items[:1])
    alignments = []
    for place in spread(len(short), DRAWN):
        source = short[place].source
        (written,) = task.write(filled(encode([source]), task.tokenizer.pad, task.model.config.max_tokens).to(device))
        alignments.append(trained.alignment_of(source, written))
    return list(filter(None, alignments))

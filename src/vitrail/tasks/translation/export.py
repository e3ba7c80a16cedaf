"""Export of a translation model to CTranslate2, with a comparison with the PyTorch model and measurements."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from vitrail.checks import refuse_given
from vitrail.data.text.dataset import filled
from vitrail.deploy.export.artefact import FIGURES, ExportPrecision
from vitrail.deploy.export.expected_loss import KEEP, MOST_LOST, Loss, no_judgement
from vitrail.deploy.problems import ExportError
from vitrail.errors import ConfigError, DataError, unknown
from vitrail.files import whole_folder, write_json, write_text
from vitrail.models.registry import architecture_of
from vitrail.runtime.observer import Note, Observer
from vitrail.runtime.output import free_folder, name_of
from vitrail.tasks.metrics import main_metric, metrics_in
from vitrail.tasks.options import flag
from vitrail.tasks.translation.ctranslate2 import MODEL, TYPES, Description, ExportedTranslator, ctranslate2, write_model
from vitrail.tasks.translation.data import open_pairs_for
from vitrail.tasks.translation.evaluate import evaluation_on
from vitrail.tasks.translation.pairs import Pair
from vitrail.tasks.translation.predictor import InPython
from vitrail.tasks.translation.settings import TranslationSettings
from vitrail.tasks.translation.task import BY_SENTENCE, TranslationMetrics, score_by_sentence
from vitrail.tasks.translation.weights import TrainedTranslator, open_translator
from vitrail.weights.formats.checksums import write_sums

CLOSE = 1e-3
"""Largest accepted difference between an fp32 export and the model in a token's log-probability."""
TRIED = 64
"""Number of sentences on which every export is compared with the model."""
MOST = 1000
"""Most sentences on which model and export are measured."""
Measured = tuple[Sequence[Pair], TranslationSettings]
"""Pairs for the measurement, and the settings of the beam search."""


def export_model(
    model: str | Path | TrainedTranslator,
    out: str | Path | None = None,
    *,
    to: str = "ctranslate2",
    precision: ExportPrecision = "fp32",
    calibrate: str | Path | None = None,
    force: bool = False,
    observer: Observer | None = None,
    **of_images: Any,
) -> tuple[Path, dict[str, Any]]:
    """Write a translation model for CTranslate2; return its folder and the measurements.

    Args:
        model: a run folder, a model folder, or a loaded translation model.
        out: the folder to write, which must not exist; ``exports/NAME-DATE-TIME`` by default.
        to: ctranslate2.
        precision: fp32, bf16, fp16 or int8.
        calibrate: sentences with translations to measure on; by default the validation sentences of the run.
        force: keep int8 even if it surely loses more than `MOST_LOST` points of chrF, or cannot be judged.
        observer: gets the progress.
        of_images: options of image models, which are refused.

    Raises:
        ExportError: the model cannot be written, or the export's outputs differ from the model's.
        VitrailError: other errors, with the exit code of the command.
    """
    refuse_given("a translator has no images", {flag(name): True for name in of_images})
    if precision not in TYPES:
        raise unknown("precision of a translator", precision, list(TYPES), where="--precision")
    if to != "ctranslate2":
        raise ConfigError(f"a translator cannot be exported to {to}", where="--to", hint="use --to ctranslate2")
    ctranslate2()
    name = name_of(str(model)) if isinstance(model, str | Path) else "model"
    folder, observer = free_folder(out, "exports", name), observer or Observer()
    trained = model if isinstance(model, TrainedTranslator) else open_translator(model)
    pairs = _pairs(trained, model, calibrate, observer.note)
    about = Description(
        name=f"{architecture_of(trained.config).about}, {trained.config.summary}",
        languages=trained.languages,
        precision=precision,
        max_tokens=trained.config.max_tokens,
    )
    with whole_folder(folder, replace=False) as draft:
        observer.begin("exporting", 0)
        write_model(trained, about, draft)
        exported = ExportedTranslator(draft)
        figures: dict[str, Any] = {"model": name, "to": to, "precision": precision}
        figures |= {"verified": verify(exported, trained, _sources(trained, pairs))}
        if pairs is not None:
            figures |= _measured(trained, exported, pairs, observer)
            if precision == "int8" and not force:
                require_score(Loss(**figures["judged"]), figures["sentences"])
        write_json(draft / FIGURES, figures)
        write_text(draft / "README.md", "\n\n".join(_paragraphs(about, figures)) + "\n")
        write_sums(draft)
    return folder, figures


def _pairs(trained: TrainedTranslator, model: object, data: str | Path | None, note: Note) -> Measured | None:
    """Return up to `MOST` pairs for the measurement; None, with a note, if no data is given and the model has none."""
    try:
        source, split, settings = open_pairs_for(trained, model, data, "val" if data is None else None, note)
        return source.split(split)[:MOST], settings
    except (ConfigError, DataError) as error:
        if data is not None:
            raise
        note(f"compared on random tokens: {error.what}")
        return None


def _sources(trained: TrainedTranslator, pairs: Measured | None) -> list[list[int]]:
    """Return the sources for the comparison, as tokens; random tokens if there are no pairs."""
    if pairs is not None:
        tokens = trained.preparation.encode([pair.source for pair in pairs[0][:TRIED]])
        if short := [one for one in tokens if len(one) <= trained.config.max_tokens]:
            return short
    random, c = torch.Generator().manual_seed(0), trained.config
    lengths = torch.randint(1, min(32, c.max_tokens), (TRIED,), generator=random).tolist()
    drawn = [torch.randint(c.vocabulary, (length,), generator=random).tolist() for length in lengths]
    return [[*(token for token in tokens if token not in (c.pad, c.start, c.end)), c.end] for tokens in drawn]


@torch.inference_mode()
def verify(exported: ExportedTranslator, trained: TrainedTranslator, sources: Sequence[list[int]]) -> dict[str, Any]:
    """Compare an export with the PyTorch model: the greedy translations, and the log-probability of each of their tokens.

    Raises:
        ExportError: a log-probability in fp32 differs from the model's by more than `CLOSE`, or one is not finite.
    """
    python, c = InPython(trained), trained.config
    ours, theirs = (writer.write(sources, 1) for writer in (python, exported))
    texts = [[*text.tokens[: c.max_tokens - 1], c.end] for text in ours]
    device, banned = python.device, sorted({c.pad, c.start} - {c.end})
    largest = 0.0
    for source, text, known in zip(sources, texts, exported.log_probabilities(sources, texts), strict=True):
        sides = (filled([tokens], c.pad, c.max_tokens).to(device) for tokens in (source, [c.start, *text[:-1]]))
        logits = python.model(*sides)[0].float()  # (T, vocabulary)
        logits[:, banned] = float("-inf")
        expected = logits.log_softmax(dim=-1).cpu()[torch.arange(len(text)), torch.tensor(text)]
        largest = max(largest, (expected - torch.tensor(known)).abs().nan_to_num(float("inf")).max().item())
    if largest > (CLOSE if exported.about.precision == "fp32" else float("inf")) or largest == float("inf"):
        what = f"log-probabilities differ from the model's by {largest:.2g}; the limit is {CLOSE:g}"
        raise ExportError(what, where="export", hint="this is a bug of Vitrail or of CTranslate2: please report it")
    same = sum(a.tokens == b.tokens for a, b in zip(ours, theirs, strict=True)) / len(sources)
    return {"sentences": len(sources), "largest_difference": largest, "same": same}


def _measured(trained: TrainedTranslator, exported: ExportedTranslator, pairs: Measured, observer: Observer) -> dict[str, Any]:
    """Return scores before and after the export, the loss, the fraction of equal translations, and sentences per second."""
    measured, rates = [], {}
    for name, model in (("the model", trained), ("ctranslate2", exported)):
        begun = time.perf_counter()
        evaluation = evaluation_on(model, pairs[0], "val", pairs[1])
        observer.begin(name, len(evaluation.items))
        metrics = evaluation.run(on_batch=observer.advance)
        rates[name] = len(metrics.texts) / (time.perf_counter() - begun)
        measured.append(metrics)
    before, after = (metrics.scores() for metrics in measured)
    old, new = (metrics.texts for metrics in measured)
    return {
        "sentences": before["sentences"],
        "metric": main_metric(before).name,
        **{metric.name: {"before": before[metric.name], "after": after[metric.name]} for metric in metrics_in(after)},
        "same": sum(one[1] == other[1] for one, other in zip(old, new, strict=True)) / max(1, len(old)),
        "judged": judge_texts(*measured).to_dict(),
        "sentences_per_second": rates,
    }


def judge_texts(before: TranslationMetrics, after: TranslationMetrics) -> Loss:
    """Return the mean loss of chrF over sentences, with its standard error."""
    old, new = (sorted(metrics.texts) for metrics in (before, after))
    scores = [torch.tensor(score_by_sentence(*list(zip(*texts, strict=True))[1:])) for texts in (old, new)]
    return Loss.of(scores[0] - scores[1], answers=len({text for _, text, _ in old}))


def require_score(loss: Loss, sentences: int) -> None:
    """Raise `ExportError` if int8 surely loses too much chrF, or if the sentences are not enough to judge it."""
    loss.require(MOST_LOST, BY_SENTENCE.title, f"{sentences} sentences", f"use --precision fp32, or {KEEP}")
    if loss.answers == 1:
        raise no_judgement("sentences", f"give other sentences, or {KEEP}")


def _paragraphs(about: Description, figures: dict[str, Any]) -> Iterator[str]:
    """Yield the paragraphs of ``README.md`` for an exported translation model."""
    yield f"# {about.name}: CTranslate2, {about.precision}"
    yield (
        f"Translates {about.languages[0]} to {about.languages[1]}. `{MODEL}` is opened by `ctranslate2.Translator`; a source "
        "ends with the end of a text, as the tokenizer beside it gives it."
    )
    yield "```sh\nvitrail translate . < in.txt > out.txt\nvitrail evaluate . --data pairs.tsv\n```"
    if "metric" in figures:
        metric = main_metric(figures)
        after, before = (metric.shown(figures[metric.name][when]) for when in ("after", "before"))
        yield (
            f"{metric.title} on {figures['sentences']} sentences: {after}, before {before}; "
            f"{100 * figures['same']:.1f} % of the translations are the same."
        )

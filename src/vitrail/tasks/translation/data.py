"""Data for training and evaluating translation models."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from vitrail.checks import refuse_given
from vitrail.config.settings import RunSettings
from vitrail.data.text.tokenizer import END, PAD, START
from vitrail.data.text.tokens import Tokens
from vitrail.errors import ConfigError, DataError
from vitrail.models.configs.texts import TextConfig
from vitrail.models.registry import build
from vitrail.models.text.text_model import TextModel
from vitrail.runtime.observer import Note, Observer
from vitrail.runtime.processes import Processes
from vitrail.task_registry import task_row
from vitrail.tasks.translation.pairs import PairData, open_pairs
from vitrail.tasks.translation.settings import TranslationSettings, require_languages, require_of_texts, require_text_model
from vitrail.tasks.translation.weights import TrainedTranslator, load_translator, open_translator
from vitrail.training.runs.run_folder import RunFolder
from vitrail.training.token_data import TokenData
from vitrail.weights.locate import absolute


class TranslationData(TokenData):
    """The data of a translation run: pairs of sentences."""

    noun, example = "model", "give sentences to evaluate on: pairs.tsv"

    def open_start(self, reference: str) -> TrainedTranslator:
        return open_translator(reference)

    def load(self, folder: Path) -> TrainedTranslator:
        return load_translator(folder)

    def open_source(
        self, settings: RunSettings, *, run: RunFolder | None = None, start: TrainedTranslator | None = None
    ) -> PairData:
        task = _task(settings)
        if start and not (task.source or task.target):
            task = task.changed(source=start.languages[0], target=start.languages[1])
        require_languages(task.source, task.target)
        refuse_given("sentences have no groups", {"--data.group": settings.data.group is not None})
        source = open_pairs(
            settings.data.source,
            (task.source, task.target),
            **settings.data.splitting,
            assignment=run.assignment if run else None,
            bad_lines=task.bad_lines,
        )
        learned = () if run or start else source.split("train")
        texts = (text for pair in learned for text in (pair.source, pair.target))
        return replace(source, tokenizer=self.tokens(settings, run, start.preparation if start else None, texts))

    def complete(self, settings: RunSettings, source: PairData, start: TrainedTranslator | None) -> RunSettings:
        """Return the settings with the size of the vocabulary, and with absolute paths."""
        require_of_texts(settings)
        model = require_text_model(settings)
        own = (PAD, START, END) if start is None else (start.config.pad, start.config.start, start.config.end)
        other_marks = {"model.pad, model.start, model.end": (model.pad, model.start, model.end) != own}
        refuse_given("it does not go with sentences", other_marks)
        if start is not None and start.languages != source.languages:
            what = f"the model translates {' to '.join(start.languages)}, but the run {' to '.join(source.languages)}"
            raise ConfigError(what, where="--from", hint="use the model's languages, or train without --from")
        task, tokens = _task(settings).changed(source=source.languages[0], target=source.languages[1]), len(_tokenizer(source))
        if start is not None:
            task = task.changed(vocabulary=tokens)  # a model to start from brings its own
        return settings.changed(
            task=task,
            model=settings.model.changed(vocabulary=tokens),
            data=settings.data.changed(source=source.source),
            start=absolute(settings.start),
        )

    def check(self, source: PairData, settings: RunSettings, observer: Observer, group: Processes) -> dict[str, str]:
        """Return the pairs with a sentence that is too long for training, by name, with the reason."""
        tokenizer, pairs = _tokenizer(source), source.split("all")
        longest = min(_task(settings).max_length, cast(TextConfig, settings.model.config).max_tokens)
        sides = tokenizer.encode([pair.source for pair in pairs]), tokenizer.encode_targets([pair.target for pair in pairs])
        why = f"longer than {longest} tokens"
        bad = {pair.name: why for pair, *both in zip(pairs, *sides, strict=True) if max(map(len, both)) > longest}
        if pairs and len(bad) == len(pairs):
            hint = "raise task.max_length, and model.max_tokens if it is smaller; or write one sentence per line"
            raise DataError(f"all {len(pairs):,} pairs have a sentence {why}", where=source.source, hint=hint)
        if bad:
            observer.note(f"{len(bad):,} of {len(pairs):,} pairs have a sentence {why} and are left out: task.max_length")
        return bad

    def warnings(self, settings: RunSettings, source: PairData) -> list[str]:
        """Return a warning if sentences of the training split are in another split, too."""
        learned = {pair.source for pair in source.splits["train"]}
        shared = sum(pair.source in learned for split in ("val", "test") for pair in source.splits[split])
        what = f"{shared:,} sentences of other splits are in the training split, too, so the scores will be too good"
        return [what] if shared else []

    def preparation_of(self, settings: RunSettings, source: PairData) -> Tokens:
        return _tokenizer(source)

    def start_model(self, settings: RunSettings, start: TrainedTranslator | None, source: PairData) -> TextModel:
        model = cast(TextModel, build(settings.model.config))
        if start is not None:
            self.continue_from(model, start)
        return model

    def card(self, settings: RunSettings, source: PairData) -> dict[str, Any]:
        return {"labels": [], "languages": source.languages}


DATA = TranslationData(task_row("translate"))


def open_pairs_for(
    trained: Any, reference: object, data: str | Path | None, split: str | None, note: Note
) -> tuple[PairData, str, TranslationSettings]:
    """Return the pairs to evaluate a translation model on (by default the run's), their split, and the task's settings.

    Raises:
        DataError: there are no pairs.
        ConfigError: no data is given, and the model is not a run.
    """
    languages = trained.languages
    source, chosen, run, _ = DATA.to_evaluate(reference, data, split, note, lambda other: open_pairs(other, languages))
    return source, chosen, _task(run.settings) if run else TranslationSettings(source=languages[0], target=languages[1])


def _task(settings: RunSettings) -> TranslationSettings:
    assert isinstance(settings.task, TranslationSettings)
    return settings.task


def _tokenizer(source: PairData) -> Tokens:
    assert source.tokenizer is not None
    return source.tokenizer

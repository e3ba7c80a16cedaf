"""The data of a run of translation, and of an evaluation."""

from collections.abc import Container
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from vitrail.checks import refuse_given
from vitrail.config.settings import RunSettings
from vitrail.data.loading.sampler import some_share
from vitrail.data.text.tokenizer import END, PAD, START, Tokenizer
from vitrail.data.text.tokens import Tokens, open_tokens
from vitrail.errors import ConfigError, DataError
from vitrail.models.configs.texts import TextConfig
from vitrail.models.registry import build
from vitrail.models.text.text_model import TextModel
from vitrail.runtime.observer import Note, Observer
from vitrail.runtime.processes import Processes
from vitrail.task_registry import task_row
from vitrail.tasks.translation.pairs import PairData, open_pairs
from vitrail.tasks.translation.requirements import require_languages, require_of_texts, require_text_model
from vitrail.tasks.translation.settings import TranslationSettings
from vitrail.tasks.translation.weights import TrainedTranslator, load_translator, open_translator
from vitrail.training.run_data import RunData
from vitrail.training.runs.data_of_model import own_run
from vitrail.training.runs.run_folder import RunFolder
from vitrail.weights.locate import absolute


class TranslationData(RunData):
    """Sentences and their translations as the data of a run."""

    def open_start(self, reference: str) -> TrainedTranslator:
        return open_translator(reference)

    def load(self, folder: Path) -> TrainedTranslator:
        return load_translator(folder)

    def open_source(
        self, settings: RunSettings, *, run: RunFolder | None = None, start: TrainedTranslator | None = None
    ) -> PairData:
        """Open the pairs of a run, with tokens: of the run itself, of the model to start from, or learned from it."""
        task = _task(settings)
        if start and not (task.source or task.target):
            task = task.changed(source=start.languages[0], target=start.languages[1])
        require_languages(task.source, task.target)
        assignment = run.assignment if run else None
        languages = (task.source, task.target)
        refuse_given("sentences have no groups", {"--data.group": settings.data.group is not None})
        source = open_pairs(
            settings.data.source, languages, **settings.data.splitting, assignment=assignment, bad_lines=task.bad_lines
        )
        tokenizer: Tokens
        if run:
            tokenizer = open_tokens(run.path)
        elif start:
            tokenizer = start.preparation
        else:
            pairs = source.split("train")
            texts = (text for pair in pairs for text in (pair.source, pair.target))
            tokenizer = Tokenizer.learned(texts, task.vocabulary, task.normalization)
        return replace(source, tokenizer=tokenizer)

    def complete(self, settings: RunSettings, source: PairData, start: TrainedTranslator | None) -> RunSettings:
        """Return the settings with the size of the vocabulary, and with paths that hold wherever one stands."""
        require_of_texts(settings)
        model = require_text_model(settings)
        own = (PAD, START, END) if start is None else (start.config.pad, start.config.start, start.config.end)
        given = {"model.pad, model.start, model.end": (model.pad, model.start, model.end) != own}
        refuse_given("it does not go with sentences", given)
        if start is not None and start.languages != source.languages:
            what = f"the model translates {' to '.join(start.languages)}, and the run is {' to '.join(source.languages)}"
            raise ConfigError(what, where="--from", hint="give its languages, or train anew")
        task, tokens = _task(settings).changed(source=source.languages[0], target=source.languages[1]), len(_tokenizer(source))
        if start is not None:
            task = task.changed(vocabulary=tokens)  # which it brings, whatever was asked for
        return settings.changed(
            task=task,
            model=settings.model.changed(vocabulary=tokens),
            data=settings.data.changed(source=source.source),
            start=absolute(settings.start),
        )

    def check(self, source: PairData, settings: RunSettings, observer: Observer, group: Processes) -> dict[str, str]:
        """Find sentences that are too long to learn from."""
        tokenizer, pairs = _tokenizer(source), source.split("all")
        longest = min(_task(settings).max_length, cast(TextConfig, settings.model.config).max_tokens)
        sides = tokenizer.encode([pair.source for pair in pairs]), tokenizer.encode_targets([pair.target for pair in pairs])
        why = f"longer than {longest} tokens"
        bad = {pair.name: why for pair, *both in zip(pairs, *sides, strict=True) if max(map(len, both)) > longest}
        if pairs and len(bad) == len(pairs):
            hint = "raise task.max_length, and model.max_tokens where it is less; or give sentences, one to a line"
            raise DataError(f"all {len(pairs):,} pairs have a sentence {why}", where=source.source, hint=hint)
        if bad:
            observer.note(f"{len(bad):,} of {len(pairs):,} pairs have a sentence {why} and are left out: task.max_length")
        return bad

    def used(self, source: PairData, bad: Container[str], settings: RunSettings) -> PairData:
        """Return the data without some pairs, and with the share of the training pairs that the settings ask for."""
        splits = {split: [pair for pair in pairs if pair.name not in bad] for split, pairs in source.splits.items()}
        if settings.data.train_share < 1:
            splits["train"] = some_share(splits["train"], settings.data.train_share, settings.data.split_seed)
        return replace(source, splits=splits)

    def warnings(self, settings: RunSettings, source: PairData) -> list[str]:
        """Return a line for sentences that stand in the training split and in another one."""
        learned = {pair.source for pair in source.splits["train"]}
        shared = sum(pair.source in learned for split in ("val", "test") for pair in source.splits[split])
        return (
            [f"{shared:,} sentences of other splits are in the training split, too: scores are too good for it"] if shared else []
        )

    def files(self, source: PairData) -> dict[str, bytes]:
        return _tokenizer(source).files()

    def preparation_of(self, settings: RunSettings, source: PairData) -> Tokens:
        return _tokenizer(source)

    def start_model(self, settings: RunSettings, start: TrainedTranslator | None, source: PairData) -> TextModel:
        model = cast(TextModel, build(settings.model.config))
        if start is not None:
            if faults := model.differences(start.config, model.config, keep_head=True):
                what = f"the model to start from is of another kind: {', '.join(faults)}"
                raise ConfigError(what, where="--from", hint="leave these settings as they are in it")
            model.load_state_dict(start.model.state_dict())
        return model

    def card(self, settings: RunSettings, source: PairData) -> dict[str, Any]:
        return {"labels": [], "languages": source.languages}


DATA = TranslationData(task_row("translate"))


def open_pairs_for(
    trained: Any, reference: object, data: str | Path | None, split: str | None, note: Note
) -> tuple[PairData, str, TranslationSettings]:
    """Sentences to evaluate a translator on, a run's own by default, which split of them, and how it is done."""
    run, own = own_run(reference, data)
    if data is None and run is None:
        raise ConfigError("no data given", where="--data", hint="name sentences to evaluate on: pairs.tsv")
    assignment = run.assignment if own and run else None
    task = _task(run.settings) if run else TranslationSettings(source=trained.languages[0], target=trained.languages[1])
    place, bad_lines = (run.settings.data.source, task.bad_lines) if run and own else (str(data), "stop")
    source = open_pairs(place, trained.languages, assignment=assignment, bad_lines=bad_lines)
    source.tell(note)
    if run and own:
        source = DATA.used(source, run.bad_images, run.settings)
    return source, split or (source.evaluation_split if own or source.has_splits else "all"), task


def _task(settings: RunSettings) -> TranslationSettings:
    assert isinstance(settings.task, TranslationSettings)
    return settings.task


def _tokenizer(source: PairData) -> Tokens:
    assert source.tokenizer is not None
    return source.tokenizer

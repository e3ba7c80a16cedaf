"""Data for training and evaluating captioning models."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vitrail.checks import refuse_given
from vitrail.config.settings import RunSettings
from vitrail.data.images.preparation import Preparation
from vitrail.errors import ConfigError, DataError
from vitrail.files import path_of
from vitrail.models.configs.texts import TextConfig
from vitrail.models.registry import build
from vitrail.models.text.text_model import TextModel
from vitrail.runtime.observer import Note, Observer
from vitrail.runtime.processes import Processes
from vitrail.task_registry import task_row
from vitrail.tasks.captioning.images.captioned_images import CaptionData, Captioned
from vitrail.tasks.captioning.images.sources import open_captions
from vitrail.tasks.captioning.scores import words
from vitrail.tasks.captioning.sentences import begin_with_sentences, read_sentences
from vitrail.tasks.captioning.settings import CaptionSettings
from vitrail.tasks.captioning.task import Captioning
from vitrail.tasks.captioning.weights import TrainedCaptioner, load_captioner, open_captioner
from vitrail.tasks.task import Task
from vitrail.training.images import check_images, fit_whitening, preparation_of
from vitrail.training.runs.plan import RunPlan, Work
from vitrail.training.runs.run_folder import RunFolder
from vitrail.training.token_data import TokenData
from vitrail.weights.locate import absolute, is_captioner
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import open_model
from vitrail.weights.transfer import transfer

Start = TrainedModel | TrainedCaptioner
SIDES = {"left", "right"}
SIDED = 0.1
"""Fraction of images with "left" or "right" in their captions above which a warning is given."""


class CaptioningData(TokenData):
    """The data of a captioning run: images with captions."""

    noun, example = "captioner", "give images to evaluate on: captions.csv"

    def open_start(self, reference: str) -> Start:
        return open_captioner(reference) if is_captioner(reference) else open_model(reference)

    def load(self, folder: Path) -> TrainedCaptioner:
        return load_captioner(folder)

    def open_source(self, settings: RunSettings, *, run: RunFolder | None = None, start: Start | None = None) -> CaptionData:
        text = _task(settings).text
        more = [] if run or text is None else read_sentences(text)  # before anything begins
        source = open_captions(settings.data.source, **settings.data.splitting, assignment=run.assignment if run else None)
        tokens = start.tokenizer if isinstance(start, TrainedCaptioner) else None
        learned = () if run or tokens else source.split("train")
        texts = [*(caption for item in learned for caption in item.target), *more]
        return replace(source, tokenizer=self.tokens(settings, run, tokens, texts))

    def complete(self, settings: RunSettings, source: CaptionData, start: Start | None) -> RunSettings:
        """Return the settings with the size of the vocabulary, and with absolute paths."""
        require_of_captions(settings)
        source.split("train")
        task, tokens = _task(settings), source.tokenizer
        assert tokens is not None
        if tokens.pad == tokens.end:
            what = "in the captioner to start from, pad and end are the same token, so the end of a caption cannot be learned"
            raise ConfigError(what, where="--from", hint="start from a ViT, or from a captioner with a separate pad token")
        if isinstance(start, TrainedCaptioner):
            task = task.changed(vocabulary=len(tokens))  # a captioner to start from brings its own
        return settings.changed(
            task=task if task.text is None else task.changed(text=str(path_of(task.text).resolve())),
            model=settings.model.changed(vocabulary=len(tokens), pad=tokens.pad, start=tokens.start, end=tokens.end),
            data=settings.data.changed(source=source.source),
            preparation=self.preparation_of(settings, source),
            start=absolute(settings.start),
        )

    def check(self, source: CaptionData, settings: RunSettings, observer: Observer, group: Processes) -> dict[str, str]:
        return check_images(source, settings, observer, group)

    def warnings(self, settings: RunSettings, source: CaptionData) -> list[str]:
        """Return warnings if mirroring would make captions wrong, or if there are no validation images."""
        lines = []
        train = source.splits["train"]
        sided = [item.name for item in train if any(SIDES & set(words(caption)) for caption in item.target)]
        if settings.augmentation.horizontal_flip and len(sided) > SIDED * len(train):
            what = f"warning: captions of {len(sided):,} of {len(train):,} images mention left or right, as of {sided[0]}"
            lines.append(f"{what}, but images are mirrored in training; train with --no-flip")
        if not source.splits["val"]:
            lines.append("warning: there are no validation images, so training images are used: scores will be too good")
        return lines

    def preparation_of(self, settings: RunSettings, source: CaptionData) -> Preparation:
        return preparation_of(settings)

    def start_model(self, settings: RunSettings, start: Start | None, source: CaptionData) -> TextModel:
        model: Any = build(settings.model.config)
        if isinstance(start, TrainedCaptioner):
            self.continue_from(model, start)
        elif start is not None:
            transfer(start.model, model.encoder, keep_head=False)
        else:
            fit_whitening(model, self.preparation_of(settings, source), source.split("train"))
        return model

    def begin(self, plan: RunPlan, task: Task, work: Work) -> None:
        """Train the decoder on sentences without images, if the run has a text."""
        assert isinstance(task, Captioning)
        begin_with_sentences(plan, task, work)


DATA = CaptioningData(task_row("caption"))


def open_captions_for(
    reference: object, data: str | Path | None, split: str | None, note: Note
) -> tuple[Sequence[Captioned], str, CaptionSettings, Sequence[Captioned]]:
    """Return the images to evaluate a captioner on (by default the run's), their split, the settings, and training images.

    The training images are for the baselines: those of the data, otherwise the run's if they still exist, otherwise none.

    Raises:
        DataError: there are no images.
        ConfigError: no data is given, and the model is not a run.
    """
    source, chosen, run, own = DATA.to_evaluate(reference, data, split, note, open_captions)
    settings = _task(run.settings) if run else CaptionSettings()
    samples = f", {settings.samples} samples" if settings.samples and settings.beams > 1 else ""
    note(f"captions of {settings.beams} beams{samples}")
    known: Sequence[Captioned] = source.splits.get("train", [])
    if not own and (chosen == "all" or not known):
        known = [] if run is None else _learned_from(run, note)
    elif chosen in ("train", "all"):
        known = []  # each image would be the most similar to itself
    return source.split(chosen), chosen, settings, known


def _learned_from(run: RunFolder, note: Note) -> Sequence[Captioned]:
    """Return the training images of a run; empty, with a note, if they cannot be opened."""
    try:
        images: Sequence[Captioned] = DATA.of_run(run).splits["train"]
    except DataError as error:
        note(f"no baselines, as the run's training images cannot be opened: {error.what}")
        return []
    return images


def require_of_captions(settings: RunSettings) -> None:
    """Raise `ConfigError` for settings that have no meaning for captions."""
    a = settings.augmentation
    refused = {
        "augmentation.mixup, augmentation.cutmix": a.mixes,
        "augmentation.repeats": a.repeats > 1,
        "--batch-size auto": settings.training.batch_size == "auto",
        "schedule.first_image_size, schedule.last_image_size": settings.schedule.shrinks_images,
        "training.probe": settings.training.probe,
        "--parallel fsdp": settings.training.parallel == "fsdp",  # each process writes captions of its own length
    }
    refuse_given("it does not go with captions", refused)
    others = {"--teacher": settings.distillation.has_teacher, "--balance": settings.data.balance != "none"}
    refuse_given("captioning has no classes and no teacher", others)
    config = settings.model.config
    if not isinstance(config, TextConfig) or config.reads != "images":
        hint = "use a captioner that vitrail models lists, or start from a ViT with --from"
        raise ConfigError(f"{settings.model.name} is not a captioner", where="--model", hint=hint)


def _task(settings: RunSettings) -> CaptionSettings:
    assert isinstance(settings.task, CaptionSettings)
    return settings.task

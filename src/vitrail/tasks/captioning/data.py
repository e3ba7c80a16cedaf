"""The data of a run of captioning, and of an evaluation: opening and checking it, and what it decides of settings and model."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vitrail.checks import refuse_given
from vitrail.config.settings import RunSettings
from vitrail.data.images.preparation import Preparation
from vitrail.data.text.tokenizer import Tokenizer
from vitrail.data.text.tokens import Tokens, open_tokens
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
from vitrail.tasks.captioning.task import Captioning, ToEvaluate
from vitrail.tasks.captioning.weights import TrainedCaptioner, load_captioner, open_captioner
from vitrail.tasks.task import Task
from vitrail.training.images import check_images, fit_whitening, preparation_of
from vitrail.training.run_data import RunData
from vitrail.training.runs.data_of_model import own_run
from vitrail.training.runs.plan import RunPlan, Work
from vitrail.training.runs.run_folder import RunFolder
from vitrail.weights.locate import absolute, is_captioner
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import open_model
from vitrail.weights.transfer import transfer

Start = TrainedModel | TrainedCaptioner
SIDES = {"left", "right"}
SIDED = 0.1
"""Share of the images from which on it is told that captions tell left from right."""


class CaptioningData(RunData):
    """Images and sentences about them as the data of a run."""

    def open_start(self, reference: str) -> Start:
        return open_captioner(reference) if is_captioner(reference) else open_model(reference)

    def load(self, folder: Path) -> TrainedCaptioner:
        return load_captioner(folder)

    def open_source(self, settings: RunSettings, *, run: RunFolder | None = None, start: Start | None = None) -> CaptionData:
        """Open the images of a run, with tokens of the run itself, of the captioner to start from, or learned from captions."""
        assignment, text = run.assignment if run else None, _task(settings).text
        more = [] if run or text is None else read_sentences(text)  # before anything begins
        source = open_captions(settings.data.source, **settings.data.splitting, assignment=assignment)
        tokenizer: Tokens
        if run:
            tokenizer = open_tokens(run.path)
        elif isinstance(start, TrainedCaptioner):
            tokenizer = start.tokenizer
        else:
            captions = [caption for item in source.split("train") for caption in item.target]
            task = _task(settings)
            tokenizer = Tokenizer.learned([*captions, *more], task.vocabulary, task.normalization)
        return replace(source, tokenizer=tokenizer)

    def complete(self, settings: RunSettings, source: CaptionData, start: Start | None) -> RunSettings:
        """Return the settings with the size of the vocabulary, and with paths that hold wherever one stands."""
        require_of_captions(settings)
        source.split("train")
        task, tokens = _task(settings), _tokenizer(source)
        if tokens.pad == tokens.end:
            what = "the captioner to start from ends a text with the token that fills rows up, so that no end could be learned"
            raise ConfigError(what, where="--from", hint="start from a ViT, or from a captioner whose pad is a token of its own")
        if isinstance(start, TrainedCaptioner):
            task = task.changed(vocabulary=len(tokens))  # which it brings, whatever was asked for
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
        """Warn that mirror images would make captions wrong, or that nothing is left to validate on."""
        found = []
        train = source.splits["train"]
        sided = [item.name for item in train if any(SIDES & set(words(caption)) for caption in item.target)]
        if settings.augmentation.horizontal_flip and len(sided) > SIDED * len(train):
            what = f"warning: captions of {len(sided):,} of {len(train):,} images tell left from right, as in {sided[0]}"
            found.append(f"{what}, and images are mirrored in training; train with --no-flip")
        if not source.splits["val"]:
            found.append("warning: there are no images to validate on but those that are learned from: scores will be too good")
        return found

    def files(self, source: CaptionData) -> dict[str, bytes]:
        return _tokenizer(source).files()

    def preparation_of(self, settings: RunSettings, source: CaptionData) -> Preparation:
        return preparation_of(settings)

    def start_model(self, settings: RunSettings, start: Start | None, source: CaptionData) -> TextModel:
        model: Any = build(settings.model.config)
        if isinstance(start, TrainedCaptioner):
            if faults := model.differences(start.config, model.config, keep_head=True):
                what = f"the captioner to start from is of another kind: {', '.join(faults)}"
                raise ConfigError(what, where="--from", hint="leave these settings as they are in it")
            model.load_state_dict(start.model.state_dict())
        elif start is not None:
            transfer(start.model, model.encoder, keep_head=False)
        else:
            fit_whitening(model, self.preparation_of(settings, source), source.split("train"))
        return model

    def begin(self, plan: RunPlan, task: Task, work: Work) -> None:
        """Learn to write from sentences alone, where the run has a text."""
        assert isinstance(task, Captioning)
        begin_with_sentences(plan, task, work)


DATA = CaptioningData(task_row("caption"))


def open_captions_for(
    trained: TrainedCaptioner, reference: object, data: str | Path | None, split: str | None, note: Note
) -> ToEvaluate:
    """What a captioner is evaluated on: images, a run's own by default, and how captions are written.

    Images from another file are compared with the run's training images, if these are still there.

    Raises:
        DataError: there are none.
        ConfigError: no data is named, and the model is no run.
    """
    run, own = own_run(reference, data)
    if data is None and run is None:
        raise ConfigError("no data given", where="--data", hint="name images to evaluate on: captions.csv")
    source = _of_run(run) if run and own else open_captions(str(data))
    source.tell(note)
    settings = _task(run.settings) if run else CaptionSettings()
    chosen = split or (source.evaluation_split if own or source.has_splits else "all")
    samples = f", {settings.samples} samples" if settings.samples and settings.beams > 1 else ""
    note(f"captions of {settings.beams} beams{samples}")
    known: Sequence[Captioned] = source.splits.get("train", [])
    if not own and (chosen == "all" or not known):
        known = [] if run is None else _learned_from(run, note)
    elif chosen in ("train", "all"):
        known = []  # each image would be the most similar to itself
    return ToEvaluate(source.split(chosen), chosen, settings, known)


def _of_run(run: RunFolder) -> CaptionData:
    """The images of a run, without those that it left out."""
    return DATA.used(DATA.open_source(run.settings, run=run), run.bad_images, run.settings)


def _learned_from(run: RunFolder, note: Note) -> Sequence[Captioned]:
    """The images that a run has learned from, none if they are not there any more."""
    try:
        return _of_run(run).splits["train"]
    except DataError as error:
        note(f"nothing to compare with, as the run's images cannot be opened: {error.what}")
        return []


def require_of_captions(settings: RunSettings) -> None:
    """Refuse settings that mean nothing where there are captions; raises `ConfigError`."""
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
    others = {
        "--teacher": settings.distillation.has_teacher,
        "--balance": settings.data.balance != "none",
    }
    refuse_given("captioning has no classes and no teacher", others)
    config = settings.model.config
    if not isinstance(config, TextConfig) or config.reads != "images":
        hint = "take one of those that vitrail models lists as captioners, or start from a ViT with --from"
        raise ConfigError(f"{settings.model.name} writes nothing about images", where="--model", hint=hint)


def _task(settings: RunSettings) -> CaptionSettings:
    assert isinstance(settings.task, CaptionSettings)
    return settings.task


def _tokenizer(source: CaptionData) -> Tokens:
    assert source.tokenizer is not None
    return source.tokenizer

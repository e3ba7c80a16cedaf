"""Settings of translation. Imports no torch, so that a mistake is reported at once."""

from typing import Any, Literal

from vitrail.checks import refuse_given
from vitrail.data.images.augment import Augmentation
from vitrail.data.text.tokenizer import require_vocabulary
from vitrail.errors import ConfigError
from vitrail.models.configs.base import Positive
from vitrail.models.configs.texts import TextConfig
from vitrail.tasks.settings import TaskSettings
from vitrail.tasks.translation import pairs

BEAMS = 5
"""Default number of translations that are followed side by side."""


class TranslationSettings(TaskSettings):
    """One language to another."""

    name: str = "translate"
    source: str = ""
    """The language that is read: a column of the data, or the suffix of a file."""
    target: str = ""
    """The language that is written."""
    vocabulary: Positive = 6000
    """Number of tokens that both languages are cut into, at most; a translator to start from brings its own."""
    normalization: Literal["nfkc", "none"] = "nfkc"
    """What texts go through before they are cut into tokens: Unicode's NFKC, as SentencePiece has it, or nothing; a translator to
    start from brings its own."""
    bad_lines: Literal["stop", "skip"] = "stop"
    """What a line that is no pair does: end the run, or stay out of it."""
    max_length: Positive = 256
    """Tokens of a sentence; longer ones are not learned from."""
    beams: Positive = BEAMS
    """Translations that are followed side by side when the model is evaluated."""

    def require_possible(self, run: Any, *, starts: bool) -> None:
        require_of_texts(run)
        if not starts:
            require_text_model(run)
            require_languages(self.source, self.target)
            require_vocabulary(self.vocabulary)

    def require_data(self, source: str) -> None:
        if self.source and self.target:
            pairs.require_there(source, (self.source, self.target))


SETTINGS = TranslationSettings


def require_of_texts(run: Any) -> None:
    """Raise `ConfigError` for settings of a run that mean nothing where there are sentences and no images."""
    refused = {
        "augmentation": run.augmentation != Augmentation(),
        "preparation": run.preparation is not None,
        "schedule.first_image_size, schedule.last_image_size": run.schedule.shrinks_images,
        "data.crop_ratio": run.data.crop_ratio is not None,
        "transform": bool(run.transform),
        "training.batch_size": run.training.batch_size == "auto",
        "training.compile": run.training.compile,
    }
    refuse_given("it does not go with sentences", refused)
    others = {
        "--teacher": run.distillation.has_teacher,
        "--balance": run.data.balance != "none",
        "--tune": run.training.tune != "all",
    }
    refuse_given("translation has no classes, no teacher and no head", others)


def require_text_model(run: Any) -> TextConfig:
    """Return the model's configuration; raises `ConfigError` for a model of images."""
    config = run.model.config
    if not isinstance(config, TextConfig) or config.reads != "texts":
        hint = "take a model of texts: vitrail models lists them"
        raise ConfigError(f"{run.model.name} is a model of images", where="--model", hint=hint)
    return config


def require_languages(source: str, target: str) -> None:
    """Raise `ConfigError` for a run without a language to read and one to write."""
    if not (source and target):
        hint = "name two columns of the data, or suffixes of files: --source en --target de"
        raise ConfigError("the languages are not given", where="--source, --target", hint=hint)

"""Settings of translation. Imports no torch, so that mistakes are reported at once."""

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
"""Default beam width."""


class TranslationSettings(TaskSettings):
    """Translation from one language to another."""

    name: str = "translate"
    source: str = ""
    """The source language: the name of a column of the data, or the suffix of a file."""
    target: str = ""
    """The target language: a column or suffix, too."""
    vocabulary: Positive = 6000
    """Largest size of the vocabulary that both languages share. A model to start from keeps its own vocabulary."""
    normalization: Literal["nfkc", "none"] = "nfkc"
    """Normalization of texts before tokenization: Unicode's NFKC, as in SentencePiece, or none. A model to start from keeps its
    own."""
    bad_lines: Literal["stop", "skip"] = "stop"
    """Whether an invalid line of the data stops the run, or is skipped."""
    max_length: Positive = 256
    """Most tokens of a sentence in training; pairs with a longer one are left out."""
    beams: Positive = BEAMS
    """Beam width for the evaluation of the model."""

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
    """Raise `ConfigError` for settings that have no meaning for sentences, such as those of images."""
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
    """Return the model's configuration; raises `ConfigError` unless it is a translation model."""
    config = run.model.config
    if not isinstance(config, TextConfig) or config.reads != "texts":
        hint = "use a translation model: vitrail models lists them"
        raise ConfigError(f"{run.model.name} is not a translation model", where="--model", hint=hint)
    return config


def require_languages(source: str, target: str) -> None:
    """Raise `ConfigError` if the source or the target language is missing."""
    if not (source and target):
        hint = "give two columns of the data, or suffixes of files: --source en --target de"
        raise ConfigError("the languages are not given", where="--source, --target", hint=hint)

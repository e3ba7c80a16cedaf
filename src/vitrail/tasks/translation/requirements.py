"""What cannot be asked of a run on sentences. Imports no torch, so that a mistake is told at once."""

from vitrail.checks import refuse_given
from vitrail.config.settings import RunSettings
from vitrail.data.images.augment import Augmentation
from vitrail.errors import ConfigError
from vitrail.models.configs.texts import TextConfig


def require_of_texts(settings: RunSettings) -> None:
    """Refuse settings that mean nothing where there are sentences and no images; raises `ConfigError`."""
    refused = {
        "augmentation": settings.augmentation != Augmentation(),
        "preparation": settings.preparation is not None,
        "schedule.first_image_size, schedule.last_image_size": settings.schedule.shrinks_images,
        "data.crop_ratio": settings.data.crop_ratio is not None,
        "transform": bool(settings.transform),
        "training.batch_size": settings.training.batch_size == "auto",
        "training.compile": settings.training.compile,
    }
    refuse_given("it does not go with sentences", refused)
    others = {
        "--teacher": settings.distillation.has_teacher,
        "--balance": settings.data.balance != "none",
        "--tune": settings.training.tune != "all",
    }
    refuse_given("translation has no classes, no teacher and no head", others)


def require_text_model(settings: RunSettings) -> TextConfig:
    """The model's configuration; raises `ConfigError` for a model of images."""
    config = settings.model.config
    if not isinstance(config, TextConfig) or config.reads != "texts":
        hint = "take a model of texts: vitrail models lists them"
        raise ConfigError(f"{settings.model.name} is a model of images", where="--model", hint=hint)
    return config


def require_languages(source: str, target: str) -> None:
    """Raise `ConfigError` for a run without a language to read and one to write."""
    if not (source and target):
        hint = "name two columns of the data, or suffixes of files: --source en --target de"
        raise ConfigError("the languages are not given", where="--source, --target", hint=hint)

"""Everything a training run can be told, and how recipe, file and flags add up to it. Knows no torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field

from vitrail.data.augment import Augmentation
from vitrail.errors import ConfigError, unknown
from vitrail.models.config import Positive, ViTConfig
from vitrail.models.registry import fields_of
from vitrail.settings import Settings

NotNegative = Annotated[float, Field(ge=0)]


class ModelSettings(ViTConfig):
    """The model: a name, and any field of its configuration. The data set decides ``num_classes``."""

    name: str
    """A name of `vitrail models`; it gives the fields that are not set."""

    @property
    def config(self) -> ViTConfig:
        """The configuration without the name."""
        return ViTConfig(**self.model_dump(exclude={"name"}))


class DataSettings(Settings):
    """Where the images come from."""

    source: str
    """``digits``, or a folder."""
    split_seed: int = 0
    """Deals the images of a folder without splits into train, val and test."""
    workers: Annotated[int, Field(ge=0)] = 0
    """Processes that prepare images; the result does not depend on it."""


class OptimizerSettings(Settings):
    """How weights follow gradients."""

    name: Literal["adamw", "adam", "sgd"] = "adamw"
    """AdamW decouples weight decay from the gradient; Adam and SGD add it to the gradient."""
    lr: Annotated[float, Field(gt=0)] = 1e-3
    """Learning rate at the top of the schedule."""
    weight_decay: NotNegative = 0.05
    """On matrices alone: never on biases, norms, tokens and positions."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    """Decay of Adam's two averages."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Momentum of SGD."""
    clip_norm: NotNegative = 1.0
    """Largest norm of the gradient; 0 does not clip."""


class ScheduleSettings(Settings):
    """How the learning rate moves, step by step."""

    name: Literal["constant", "linear", "cosine"] = "cosine"
    """What follows the warm-up: no change, a straight line down, or half a cosine down."""
    warmup_epochs: NotNegative = 5
    """Epochs of linear growth from 0; never more than half of the run."""
    final: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Where linear and cosine end, as a share of ``lr``."""


class TrainingSettings(Settings):
    """The loop."""

    epochs: Positive = 30
    """Passes over the training images."""
    batch_size: Positive = 128
    """Images per step of the optimizer."""
    accumulate: Positive = 1
    """Parts a batch is cut into to save memory; the gradient is that of the whole batch."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Probability spread over all classes in the target."""
    ema: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Decay of the averaged weights that are evaluated and kept; 0 for none."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Type of the matrix products."""
    compile: bool = False
    """Whether torch.compile translates the model first."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute; auto takes a GPU if there is one."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Fixes weights, order and augmentation."""
    checkpoint_every_steps: Annotated[int, Field(ge=0)] = 0
    """Steps between checkpoints beside those at the end of each epoch; 0 for none."""
    fast_dev_run: bool = False
    """Two batches, one epoch: does everything work?"""


class RunSettings(Settings):
    """The complete configuration of a run."""

    about: str = ""
    """What to expect of it: result, cost, machine."""
    start: str | None = None
    """A trained model to start from (``--from``)."""
    model: ModelSettings
    data: DataSettings
    augmentation: Augmentation = Augmentation()
    optimizer: OptimizerSettings = OptimizerSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    training: TrainingSettings = TrainingSettings()


Values = dict[str, Any]


def resolve(recipe: Values, file: Values, flags: Values, start: ViTConfig | None = None) -> RunSettings:
    """Add up recipe < file < flags, each a nested dictionary, into checked settings.

    A layer that names a model takes the sizes of that name, whatever the layers below it say. ``start`` is the
    configuration of the model to start from: it takes the place of the recipe's model.
    """
    merged: Values = {}
    if start is not None:
        recipe = {**recipe, "model": {"name": "custom", **start.model_dump(exclude={"num_classes"})}}
    for layer in (recipe, file, flags):
        model = layer.get("model", {})
        if not isinstance(model, Mapping):
            raise ConfigError(f"model cannot be {model!r}", where="model", hint="give model.name and fields below it")
        if isinstance(name := model.get("name"), str) and name != "custom":
            merged = merge(merged, {"model": fields_of(name)})
        merged = merge(merged, layer)
    if "source" not in merged.get("data", {}):
        raise ConfigError("no data given", where="--data", hint="give a folder of images sorted into folders by class, or digits")
    return RunSettings.read(merged)


def check_names(values: Mapping[str, Any], *, path: str = "", settings: type[Settings] = RunSettings) -> None:
    """Refuse a setting that does not exist, by its dotted name below ``path``, with the nearest that does."""
    for name, value in values.items():
        dotted = f"{path}{name}"
        if name not in settings.model_fields:
            raise unknown("setting", name, list(settings.model_fields), where=dotted)
        kind = settings.model_fields[name].annotation
        if isinstance(value, Mapping) and isinstance(kind, type) and issubclass(kind, Settings):
            check_names(value, path=f"{dotted}.", settings=kind)


def merge(below: Values, above: Values) -> Values:
    """Nested dictionaries, the second over the first."""
    result = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merge(result[key], value) if both else value
    return result


SHORT_NAMES = {
    "data": "data.source",
    "model": "model.name",
    "epochs": "training.epochs",
    "batch_size": "training.batch_size",
    "lr": "optimizer.lr",
    "seed": "training.seed",
    "image_size": "model.image_size",
    "precision": "training.precision",
    "checkpoint_every_steps": "training.checkpoint_every_steps",
    "fast_dev_run": "training.fast_dev_run",
}
"""Settings that are asked for so often that they go without their section's name."""


def nested(named: Mapping[str, Any]) -> Values:
    """Settings by short or dotted name to nested ones: ``{"model.dim": 64}`` to ``{"model": {"dim": 64}}``."""
    result: Values = {}
    for name, value in named.items():
        if not isinstance(value, Mapping):
            name = SHORT_NAMES.get(name, name)
        for key in reversed(name.split(".")):
            value = {key: value}
        result = merge(result, value)
    return result


def read_yaml(file: Path) -> Values:
    """A configuration file; raises `ConfigError` where it is missing or no mapping."""
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration: {error.strerror}", where=file, hint="check the path") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        where = f"{file}, line {line + 1}" if line is not None else file
        raise ConfigError("the configuration is no YAML", where=where, hint="mend the file") from None
    if not isinstance(values, dict):
        raise ConfigError("the configuration holds no settings", where=file, hint="write `section:` and `  key: value` lines")
    return values


def to_yaml(settings: RunSettings) -> str:
    """The complete settings as YAML that `read_yaml` and ``--config`` take back."""
    values = settings.model_dump(mode="json")
    values["model"] = {"name": settings.model.name, **values["model"]}
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)

"""Everything a training run can be told, and how recipe, file and flags add up to it."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field, SerializeAsAny, create_model

from vitrail.data.augment import Augmentation
from vitrail.data.preparation import Preparation
from vitrail.errors import ConfigError, nearest, unknown
from vitrail.models.configs.base import ModelConfig, Positive, Size
from vitrail.models.registry import ARCHITECTURES, DEFAULT, NAMES, architecture, architecture_of, named
from vitrail.settings import Settings, brief

NotNegative = Annotated[float, Field(ge=0)]


class ModelSettings(ModelConfig):
    """The model: a name, and any field of its architecture's configuration. The data set decides ``num_classes``."""

    name: str
    """A name of `vitrail models`; it gives the fields that are not set."""
    architecture: str = DEFAULT
    """What kind of model it is, which the name tells where it is one of `vitrail models`."""

    @property
    def config(self) -> ModelConfig:
        """The configuration without the name."""
        return architecture(self.architecture).config(**self.model_dump(exclude={"name", "architecture"}))


@cache
def model_settings(kind: str) -> type[ModelSettings]:
    """The settings of a model of one architecture: the two fields above, and all of its configuration."""
    bases: Any = (ModelSettings, architecture(kind).config)
    return create_model("ModelSettings", __base__=bases)


def _model(values: Any) -> Any:
    """The settings of a model with the fields of its own architecture; raises `ConfigError`."""
    if not isinstance(values, Mapping):
        return values
    kind, name = values.get("architecture"), values.get("name")
    if kind is None and name in NAMES:
        kind = named(name)[0].name
    return model_settings(DEFAULT if kind is None else str(kind)).read(values, where="model")


class DataSettings(Settings):
    """Where the images come from."""

    source: str
    """``digits``, a folder, ``labels.csv``, ``cifar10:PATH``, ``hf:NAME`` or ``wds:shards-{000..009}.tar``."""
    split_seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Deals the images of a folder without splits into train, val and test."""
    train_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the training images, of every class alike, that are learned from; a smaller share is a part of a larger one."""
    crop_ratio: Annotated[float, Field(gt=0.1, le=1)] | None = None
    """Share of the resized image's side that is kept when its centre is cut out; that of the model to start from, else 1."""
    workers: Annotated[int, Field(ge=0)] = 0
    """Processes that prepare images; the result does not depend on it."""
    bad_images: Literal["stop", "skip"] = "stop"
    """What an image that cannot be read does: end the run, or, found when every image is read before the first step, stay
    out of it, as long as it is no more than 1 in 100."""
    balance: Literal["none", "sampling", "loss"] = "none"
    """Rare classes weigh as much as frequent ones: drawn as often, or with a larger loss."""


class LayerSettings(Settings):
    """What is particular about a part of the model."""

    lr: Annotated[float, Field(ge=0, le=1e6)] = 1.0
    """Factor on the learning rate; 0 freezes the part."""
    weight_decay: NotNegative | None = None
    """In place of the optimizer's."""


class OptimizerSettings(Settings):
    """How weights follow gradients."""

    name: Literal["adamw", "adam", "sgd", "muon"] = "adamw"
    """AdamW decouples weight decay from the gradient; Adam and SGD add it; Muon takes the matrices of blocks, AdamW the rest."""
    lr: Annotated[float, Field(gt=0, le=1e30)] = 1e-3
    """Learning rate at the top of the schedule."""
    weight_decay: NotNegative = 0.05
    """On matrices alone: never on biases, norms, tokens and positions."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    """Decay of Adam's two averages."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Momentum of SGD and Muon."""
    clip_norm: NotNegative = 1.0
    """Largest norm of the gradient; 0 does not clip."""
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Factor on the learning rate from each block to the one before it; 1 for none."""
    layers: dict[str, LayerSettings] = Field(default_factory=dict)
    """Learning rate and weight decay of parts of the model, by the beginning of their parameters' names: head, blocks.0."""


class LoraSettings(Settings):
    """The low-rank adapters of ``training.tune: lora``."""

    rank: Annotated[int, Field(gt=0, le=2**12)] = 8
    """Width of an adapter."""
    alpha: Annotated[int, Field(gt=0, le=2**16)] = 16
    """What an adapter adds is multiplied by alpha / rank."""
    targets: Annotated[tuple[str, ...], Field(min_length=1)] = ("qkv", "output")
    """Linear layers of the blocks that get one: qkv, output, expand, contract."""


class DistillationSettings(Settings):
    """Learning from a teacher's answers as well (Touvron et al. 2021, https://arxiv.org/abs/2012.12877)."""

    teacher: str | None = None
    """A trained model of the same classes (``--teacher``); a student with a class token gets one that learns from it."""
    kind: Literal["hard", "soft"] = "hard"
    """Learn the class that the teacher is surest of, or all its probabilities."""
    weight: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of the loss that is the teacher's."""
    temperature: Annotated[float, Field(gt=0, le=1e3)] = 3.0
    """What both models' logits are divided by where probabilities are learned."""


class ScheduleSettings(Settings):
    """How the learning rate moves, step by step."""

    name: Literal["constant", "linear", "cosine"] = "cosine"
    """What follows the warm-up: no change, a straight line down, or half a cosine down."""
    warmup_epochs: Annotated[float, Field(ge=0, le=1e6)] = 5
    """Epochs of linear growth from 0."""
    warmup_share: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    """Share of the run that grows from 0 at least, however few steps an epoch has; in all never more than half of the run."""
    final: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Where linear and cosine end, as a share of ``lr``."""
    patch_dropout: Literal["constant", "falling"] = "constant"
    """Whether ``model.patch_dropout`` stays, or falls along a line to 0 at the end of the run."""
    first_image_size: Size | None = None
    """Height and width that images are shrunk to at first; they grow to the model's own, which the last fifth of the run has."""


class TrainingSettings(Settings):
    """The loop."""

    epochs: Positive = 30
    """Passes over the training images."""
    min_steps: Annotated[int, Field(ge=0)] = 0
    """At least so many steps: few images get more epochs; 0 for none. Where ``epochs`` is given over it, that counts alone."""
    batch_size: Positive | Literal["auto"] = 128
    """Images per step of the optimizer, all processes together; auto finds the largest that fits into memory."""
    tune: Literal["all", "head", "lora"] = "all"
    """What a run that starts from a model trains: all of it, its head alone (a linear probe), or adapters and the head."""
    accumulate: Positive = 1
    """Parts a batch is cut into to save memory; the gradient is that of the whole batch, but for dropout."""
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
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Fixes weights, order and augmentation."""
    checkpoint_every_steps: Annotated[int, Field(ge=0)] = 0
    """Steps between checkpoints beside those at the end of each epoch; 0 for none."""
    checkpoint_every_seconds: NotNegative = 300
    """Longest time without a checkpoint; 0 for any."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """What processes that torchrun starts have: each the whole model, or each a share of its parameters."""
    track: Literal["none", "tensorboard"] = "none"
    """Where metrics go beside the run's own files."""
    fast_dev_run: bool = False
    """Two batches, one epoch: does everything work?"""

    @property
    def batch(self) -> int:
        """The batch size, which a run knows before its first step."""
        assert self.batch_size != "auto"
        return self.batch_size


class Expected(Settings):
    """What a recipe promises."""

    result: str = ""
    """On which images, and whether measured here or told by a paper."""
    cost: str = ""
    """Time, and memory where it matters."""
    machine: str = ""
    """What that was measured on."""


class RunSettings(Settings):
    """The complete configuration of a run."""

    about: str = ""
    """What it is for."""
    expected: Expected = Expected()
    """What to expect of it."""
    results: str = "runs"
    """Folder in which a run without one of its own makes it."""
    start: str | None = None
    """A trained model to start from (``--from``)."""
    transform: str = ""
    """The user's own change to training pictures, as it prints; given in Python alone, as ``transform=``."""
    model: Annotated[SerializeAsAny[ModelSettings], BeforeValidator(_model)]
    data: DataSettings
    preparation: Preparation | None = None
    """How images become what the model takes; that of the model to start from, else the paper's."""
    augmentation: Augmentation = Augmentation()
    optimizer: OptimizerSettings = OptimizerSettings()
    lora: LoraSettings = LoraSettings()
    distillation: DistillationSettings = DistillationSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    training: TrainingSettings = TrainingSettings()


Values = dict[str, Any]


def resolve(recipe: Values, file: Values, flags: Values, start: ModelConfig | None = None) -> RunSettings:
    """Add up recipe < file < flags, each a nested dictionary, into checked settings.

    A layer that names a model means that model: of the layers below it, only the size and channels of the images stay.
    A layer that names a number of epochs means that number, whatever ``min_steps`` one below it has.
    ``start`` is the configuration of the model to start from: it takes the place of the recipe's model, and what a
    recipe that names none says of it stands over that. With a teacher the model has a distillation token, if it can and no
    layer says otherwise.
    """
    merged: Values = {}
    if start is not None:
        kept = getattr(start, "distillation_token", False)
        fields = start.model_dump(exclude={"num_classes"} if kept else {"num_classes", "distillation_token"})
        fields = {"name": "custom", "architecture": architecture_of(start).name, **fields}
        over = {
            name: value for name, value in recipe.get("model", {}).items() if name == "name" or name in type(start).model_fields
        }
        recipe = {**recipe, "expected": {}, "model": {**fields, **({} if "name" in over else over)}}
    for layer in (recipe, file, flags):
        model = layer.get("model", {})
        if not isinstance(model, Mapping):
            raise ConfigError(f"model cannot be {brief(model)}", where="model", hint="give model.name and fields below it")
        if isinstance(name := model.get("name"), str) and name != "custom":
            images = {k: v for k, v in merged.get("model", {}).items() if k in ("image_size", "channels")}
            row, fields = named(name)
            merged = {**merged, "about": "", "expected": {}, "model": {**images, "architecture": row.name, **fields}}
        training = layer.get("training", {})
        if isinstance(training, Mapping) and "epochs" in training:
            merged = merge(merged, {"training": {"min_steps": 0}})
        merged = merge(merged, layer)
    if "source" not in merged.get("data", {}):
        raise ConfigError("no data given", where="--data", hint="give a folder of images sorted into folders by class, or digits")
    if "name" not in merged.get("model", {}):
        raise ConfigError("no model given", where="--from", hint="give a trained model with --from, or a name with --model")
    settings = _with_token(RunSettings.read(merged))
    if settings.training.tune != "all" and settings.start is None:
        hint = "give a trained model with --from, or leave training.tune at all"
        raise ConfigError("a model that knows nothing yet is trained as a whole", where="--tune", hint=hint)
    return settings


def _with_token(settings: RunSettings) -> RunSettings:
    """The settings with a distillation token for a teacher, unless they speak of it, or it would not be trained or read."""
    model, spoken = settings.model, settings.model.model_fields_set
    possible = "distillation_token" in type(model).model_fields.keys() - spoken
    if settings.distillation.teacher is None or settings.training.tune != "all" or not possible:
        return settings
    fits = (getattr(model, "pool", ""), getattr(model, "head", "")) == ("class", "linear")
    return settings.changed(model=model.changed(distillation_token=True)) if fits else settings


def check_names(values: Mapping[str, Any], *, path: str = "", settings: type[Settings] = RunSettings) -> None:
    """Refuse a setting that does not exist, by its dotted name below ``path``, with the nearest that does."""
    for name, value in values.items():
        dotted = f"{path}{name}"
        fields = _fields(settings)
        if name not in fields:
            known = _leaves() if settings is RunSettings else {field: field for field in fields}
            error = unknown("setting", name, list(known), where=dotted)
            close = nearest(name, list(known))
            raise ConfigError(error.what, where=dotted, hint=f"did you mean {known[close]!r}?" if close else error.hint)
        kind = None if name not in settings.model_fields else settings.model_fields[name].annotation
        if isinstance(value, Mapping) and isinstance(kind, type) and issubclass(kind, Settings):
            check_names(value, path=f"{dotted}.", settings=kind)


def _fields(settings: type[Settings]) -> list[str]:
    """The names of a section's settings; for the model's section, of the settings of every architecture."""
    kinds = [model_settings(name) for name in ARCHITECTURES] if settings is ModelSettings else [settings]
    return list(dict.fromkeys(field for kind in kinds for field in kind.model_fields))


def _leaves() -> dict[str, str]:
    """Sections by their name, and their settings by name with the dotted name that they are given by."""
    leaves = {name: name for name in RunSettings.model_fields}
    for section, field in RunSettings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Settings):
            leaves |= {name: f"{section}.{name}" for name in _fields(field.annotation) if name not in leaves}
    return leaves


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
    "tune": "training.tune",
    "teacher": "distillation.teacher",
    "lr": "optimizer.lr",
    "seed": "training.seed",
    "image_size": "model.image_size",
    "precision": "training.precision",
    "checkpoint_every_steps": "training.checkpoint_every_steps",
    "checkpoint_every_seconds": "training.checkpoint_every_seconds",
    "parallel": "training.parallel",
    "bad_images": "data.bad_images",
    "fast_dev_run": "training.fast_dev_run",
    "balance": "data.balance",
    "track": "training.track",
}
"""Settings that are asked for so often that they go without their section's name."""


def nested(named: Mapping[str, Any]) -> Values:
    """Settings by short or dotted name to nested ones: ``{"model.dim": 64}`` to ``{"model": {"dim": 64}}``."""
    result: Values = {}
    seen: list[str] = []
    for name, value in named.items():
        if not isinstance(value, Mapping):
            name = SHORT_NAMES.get(name, name)
            clash = next((s for s in seen if s.startswith(f"{name}.") or name.startswith(f"{s}.")), None)
            if clash is not None:
                raise ConfigError(f"{name} contradicts {clash}", where=name, hint="give one of them")
            seen.append(name)
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
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        where = f"{file}, line {line + 1}" if line is not None else file
        raise ConfigError("the configuration is no YAML", where=where, hint="mend the file") from None
    if not isinstance(values, dict):
        raise ConfigError("the configuration holds no settings", where=file, hint="write `section:` and `  key: value` lines")
    _require_names(values, file)
    return values


def _require_names(values: Mapping[Any, Any], file: Path) -> None:
    for name, value in values.items():
        if not isinstance(name, str):
            raise ConfigError(f"the setting {name!r} is no name", where=file, hint="write `name: value` lines")
        if isinstance(value, Mapping):
            _require_names(value, file)


def to_yaml(settings: RunSettings) -> str:
    """The complete settings as YAML that `read_yaml` and ``--config`` take back."""
    values = settings.model_dump(mode="json")
    values["model"] = {"name": settings.model.name, **values["model"]}
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def differences(settings: RunSettings) -> str:
    """How a model was trained, as YAML: what of the settings is not their default."""
    sections = {"about", "augmentation", "optimizer", "lora", "distillation", "schedule", "training"}
    values = settings.model_dump(mode="json", include=sections, exclude_defaults=True)
    return yaml.safe_dump({name: value for name, value in values.items() if value}, sort_keys=False, allow_unicode=True)

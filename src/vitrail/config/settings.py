"""All settings of a training run."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, create_model

from vitrail.data.images.augment import Augmentation
from vitrail.data.images.box_preparation import BoxPreparation
from vitrail.data.images.preparation import Preparation
from vitrail.errors import ConfigError
from vitrail.models.configs.base import ModelConfig, Positive
from vitrail.models.registry import DEFAULT, NAMES, architecture, named
from vitrail.settings import Settings
from vitrail.task_registry import TASKS, task_row
from vitrail.tasks.settings import DistillationSettings, ScheduleSettings, TaskSettings

NotNegative = Annotated[float, Field(ge=0)]


TrackerKind = Literal["none", "tensorboard", "wandb", "mlflow"]
"""Experiment trackers that a run can log to."""


class ModelSettings(ModelConfig):
    """The model: a name, and any field of its architecture's configuration.

    The data set determines ``num_classes``, or for a model of texts ``vocabulary``.
    """

    name: str
    """A name that `vitrail models` lists; it determines all fields that are not set."""
    architecture: str = DEFAULT
    """The kind of model; by default the one of ``name``."""

    @property
    def config(self) -> Any:
        """The configuration without the name: a `ModelConfig` of its architecture."""
        return architecture(self.architecture).config(**self.model_dump(exclude={"name", "architecture"}))


@cache
def model_settings(kind: str) -> type[ModelSettings]:
    """Return the settings class of an architecture: `ModelSettings` with all fields of the architecture's configuration."""
    bases: Any = (ModelSettings, architecture(kind).config)
    return create_model("ModelSettings", __base__=bases)


def _model(values: Any) -> Any:
    """Validate a model section by the settings class of its architecture; raises `ConfigError`."""
    if not isinstance(values, Mapping):
        return values
    kind, name = values.get("architecture"), values.get("name")
    if kind is None and name in NAMES:
        kind = named(name)[0].name
    return model_settings(DEFAULT if kind is None else str(kind)).read(values, where="model")


def _task(values: Any) -> Any:
    """Validate a task section by the settings class of its task; a plain name means its defaults. Raises `ConfigError`."""
    values = {"name": values} if isinstance(values, str) else values
    if not isinstance(values, Mapping):
        return values
    row = task_row(str(values.get("name", TaskSettings().name)))
    for field in values.keys() - row.settings.model_fields.keys():
        if other := next((other.name for other in TASKS.values() if field in other.settings.model_fields), None):
            raise ConfigError(f"{field} is a setting of another task", where=f"task.{field}", hint=f"add --task {other}")
    return row.settings.read(values, where="task")


class DataSettings(Settings):
    """The data: its source, its splits and its loading."""

    source: str
    """``digits``, a folder, ``labels.csv``, ``cifar10:PATH``, ``hf:NAME`` or ``wds:shards-{000..009}.tar``."""
    split_seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed for splitting data without splits into train, val and test."""
    test_share: Annotated[float, Field(ge=0, le=0.5)] | None = None
    """Fraction of data without splits that becomes the test split; 0 for none. Default: 0.2, or 0.05 for sentences."""
    val_share: Annotated[float, Field(gt=0, le=0.5)] | None = None
    """Fraction of data without a validation split that becomes one. Default: 0.1, or 0.05 for sentences."""
    group: str | None = None
    """The table's column that names the site, camera, individual, patient or video of each image. Data without splits is split
    so that all images of a group are in the same split. Default: ``group``, if there is such a column."""
    train_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Fraction of the training images to train on, the same for every class; a smaller fraction is a subset of a larger one."""
    crop_ratio: Annotated[float, Field(gt=0.1, le=1)] | None = None
    """Side of the central crop as a fraction of the resized image's side. Default: that of the model to start from, else 1."""
    workers: Annotated[int, Field(ge=0)] | None = None
    """Worker processes that prepare images, for each training process. Default: on a GPU one for each core, at most 16; on a CPU
    none. The result does not depend on it."""
    bad_images: Literal["stop", "skip"] = "stop"
    """What to do with images that cannot be read: stop the run, or skip them. With skip, every image is read before the first
    step, and at most 1 in 100 or 3 images may be skipped, or a tenth of fewer than 30 images."""
    balance: Literal["none", "sampling", "loss"] = "none"
    """Give rare classes the weight of frequent ones: sampling draws their images more often, loss weighs their loss higher."""

    @property
    def splitting(self) -> dict[str, Any]:
        """Keyword arguments on splitting, for the functions that open data."""
        shares = {"test": self.test_share, "val": self.val_share}
        given = {name: share for name, share in shares.items() if share is not None}
        return {"split_seed": self.split_seed, "shares": given, **({"group": self.group} if self.group else {})}


class LayerSettings(Settings):
    """Optimizer settings of one part of the model."""

    lr: Annotated[float, Field(ge=0, le=1e6)] = 1.0
    """Factor on the learning rate of this part; 0 freezes it."""
    weight_decay: NotNegative | None = None
    """Weight decay of this part, in place of the optimizer's; it applies to matrices of linear layers and convolutions alone."""


class OptimizerSettings(Settings):
    """The optimizer."""

    name: Literal["adamw", "adam", "sgd", "muon"] = "adamw"
    """AdamW decouples weight decay from the gradient; Adam and SGD add it to the gradient; Muon trains the linear layers and
    convolutions between the input layer and the heads, and AdamW the rest."""
    lr: Annotated[float, Field(gt=0, le=1e30)] = 1e-3
    """Peak learning rate of the schedule."""
    weight_decay: NotNegative = 0.05
    """Weight decay of matrices; biases, norms, tokens and positions never decay."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    """Decay of Adam's averages of the gradient and of its square."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Momentum of SGD and Muon."""
    clip_norm: NotNegative = 1.0
    """Largest norm of the gradient; a longer gradient is scaled down. 0 for no limit."""
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Factor on the learning rate from each block to the previous one (layer-wise decay); 1 for none."""
    layers: dict[str, LayerSettings] = Field(default_factory=dict)
    """Learning rate and weight decay of parts of the model. A key is the beginning of parameter names, such as ``head`` or
    ``blocks.0``; ``*`` stands for any text: ``*.relative``. The longest key that matches applies. {} clears the recipe's."""


class LoraSettings(Settings):
    """The low-rank adapters of ``training.tune: lora``."""

    rank: Annotated[int, Field(gt=0, le=2**12)] = 8
    """Rank of an adapter, its inner width."""
    alpha: Annotated[int, Field(gt=0, le=2**16)] = 16
    """The output of an adapter is multiplied by alpha / rank."""
    targets: Annotated[tuple[str, ...], Field(min_length=1)] = ("qkv", "output")
    """Linear layers of the blocks that get an adapter: qkv (one layer, or three), output, expand, contract."""


def _seconds(value: Any) -> Any:
    """Convert a duration such as ``1h30m`` to 5400 seconds; return any other value unchanged."""
    match = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", value) if isinstance(value, str) and value else None
    return (
        value if match is None else sum(int(part or 0) * unit for part, unit in zip(match.groups(), (3600, 60, 1), strict=True))
    )


class TrainingSettings(Settings):
    """The training loop."""

    epochs: Positive = 30
    """Passes over the training images."""
    min_steps: Annotated[int, Field(ge=0)] = 0
    """Least number of steps: small data sets are trained for more epochs; 0 for none. Setting ``epochs`` resets it to 0."""
    batch_size: Positive | Literal["auto"] = 128
    """Images per optimizer step, summed over all processes; for translation, tokens of either language. auto finds the largest
    number of images that fits into memory."""
    tune: Literal["all", "head", "lora"] = "all"
    """Trained part of a model to start from: all of it, head (a linear probe), or lora (adapters and the head). The head of a
    captioner is its decoder."""
    frozen_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Fraction of the layers of a model to start from, counted from the first, that are frozen together with the embedding. It
    saves time and reduces overfitting; 0 for none."""
    probe: bool = False
    """Whether to fit the head of a model to start from to features of the frozen model first, and to train on from there; with
    ``tune: head`` the run ends after the fit. It has no effect unless the head is one linear layer."""
    views: Positive = 1
    """Versions of each training image that the probe is fitted to: the first unchanged, the others augmented."""
    time_limit: Annotated[float, BeforeValidator(_seconds), Field(gt=0)] | None = None
    """Time limit of the run, such as 90s, 10m or 1h30m: the schedule is fitted to it, and the last epoch may be incomplete."""
    keep: Literal["best", "last"] = "best"
    """The epoch whose model is saved: the best on the validation split, or the last. Use last where the validation split is too
    small to compare epochs."""
    patience: Annotated[int, Field(ge=0)] = 0
    """End the run after this number of epochs without improvement (early stopping); 0 for never."""
    accumulate: Positive = 1
    """Number of parts that a batch is computed in, to save memory (gradient accumulation). Apart from dropout the gradient is the
    same."""
    recompute: bool = False
    """Whether to use activation checkpointing: blocks are computed again in the backward pass, which takes far less memory and
    about a quarter more time. The trained model is the same."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Probability that the target spreads evenly over all classes."""
    ema: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Decay of a moving average of the weights, which is evaluated and saved in place of the weights; 0 for none."""
    average: Annotated[int, Field(ge=0, le=100)] = 0
    """Number of last epochs whose weights are averaged at the end. The average is saved if it is better than every epoch on the
    validation split; with ``keep: last``, if its loss there is no higher than the last epoch's. 0 for none. BatchNorm's means
    and variances are averaged, too."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "fp32"
    """Precision of matrix products; auto takes bf16 where the machine is faster with it, else fp32."""
    compile: bool = False
    """Whether to compile the model with torch.compile."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """The device; auto takes a GPU if there is one."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of initial weights, order of images and augmentation."""
    checkpoint_every_steps: Annotated[int, Field(ge=0)] = 0
    """Steps between checkpoints, in addition to those at the end of each epoch; 0 for none."""
    checkpoint_every_seconds: NotNegative = 300
    """Longest time in seconds without a checkpoint; 0 for no limit."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """How torchrun's processes hold the model: with ddp each has all parameters, with fsdp each has a part of them."""
    track: TrackerKind = "none"
    """Experiment tracker to log metrics to, in addition to the files of the run."""
    fast_dev_run: bool = False
    """Whether to run one epoch of two batches, as a quick test that everything works."""

    @property
    def batch(self) -> int:
        """The batch size as a number; ``auto`` has been replaced by one before the first step."""
        assert self.batch_size != "auto"
        return self.batch_size


class Expected(Settings):
    """The expected result and cost of a recipe."""

    result: str = ""
    """The result, with the evaluated images and its source: measured here, or reported in a paper."""
    cost: str = ""
    """The time, and the memory where it matters."""
    machine: str = ""
    """The machine it was measured on."""


class RunSettings(Settings):
    """The complete configuration of a run."""

    about: str = ""
    """The purpose of the run."""
    expected: Expected = Expected()
    """The expected result and cost."""
    results: str = "runs"
    """Parent of the run folder if no ``out`` is given."""
    start: str | None = None
    """A trained model to start from (``--from``)."""
    transform: str = ""
    """The repr of the user's change to training images, which can only be given in Python, as ``transform=``."""
    task: Annotated[SerializeAsAny[TaskSettings], BeforeValidator(_task)] = TaskSettings()
    model: Annotated[SerializeAsAny[ModelSettings], BeforeValidator(_model)]
    data: DataSettings
    preparation: Preparation | BoxPreparation | None = None
    """The preparation of images. Default: that of the model to start from, else that of the model's paper."""
    augmentation: Augmentation = Augmentation()
    optimizer: OptimizerSettings = OptimizerSettings()
    lora: LoraSettings = LoraSettings()
    distillation: DistillationSettings = DistillationSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    training: TrainingSettings = TrainingSettings()

    @property
    def workers(self) -> int:
        """Number of processes that prepare images: `DataSettings.workers`, or its default on this device."""
        from vitrail.runtime.device import pick_device, workers_beside  # importing torch takes seconds

        given = self.data.workers
        return workers_beside(pick_device(self.training.device)) if given is None else given

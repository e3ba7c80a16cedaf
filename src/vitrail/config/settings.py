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
"""Experiment trackers that a run may report to."""


class ModelSettings(ModelConfig):
    """The model: a name, and any field of its architecture's configuration.

    The data set decides ``num_classes``, or of a model of texts ``vocabulary``.
    """

    name: str
    """A name of `vitrail models`; it gives the fields that are not set."""
    architecture: str = DEFAULT
    """What kind of model it is; the name implies it where it is one of `vitrail models`."""

    @property
    def config(self) -> Any:
        """The configuration without the name: a `ModelConfig` of its architecture."""
        return architecture(self.architecture).config(**self.model_dump(exclude={"name", "architecture"}))


@cache
def model_settings(kind: str) -> type[ModelSettings]:
    """Return the class of the settings of a model of one architecture: the two fields above, and all of its configuration."""
    bases: Any = (ModelSettings, architecture(kind).config)
    return create_model("ModelSettings", __base__=bases)


def _model(values: Any) -> Any:
    """Return the settings of a model with the fields of its own architecture; raises `ConfigError`."""
    if not isinstance(values, Mapping):
        return values
    kind, name = values.get("architecture"), values.get("name")
    if kind is None and name in NAMES:
        kind = named(name)[0].name
    return model_settings(DEFAULT if kind is None else str(kind)).read(values, where="model")


def _task(values: Any) -> Any:
    """Return the settings of a task with its own fields; a name stands for the task with its defaults; raises `ConfigError`."""
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
    """Splits the images of a folder without splits into train, val and test."""
    test_share: Annotated[float, Field(ge=0, le=0.5)] | None = None
    """Share of data without splits that is kept for the test, which may be none; by default 0.2, of sentences 0.05."""
    val_share: Annotated[float, Field(gt=0, le=0.5)] | None = None
    """Share of data without a validation split that becomes one; by default 0.1, of sentences 0.05."""
    group: str | None = None
    """Of a table, the column that names the site, camera, individual, patient or video of each image: data without splits is
    split so that each is in one; by default ``group``, if there is such a column."""
    train_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the training images, of every class alike, that are learned from; a smaller share is a part of a larger one."""
    crop_ratio: Annotated[float, Field(gt=0.1, le=1)] | None = None
    """Share of the resized image's side that is kept when its centre is cut out; by default the same as
    in the model to start from, else 1."""
    workers: Annotated[int, Field(ge=0)] | None = None
    """Processes that prepare images, for each that trains; by default as many as it has cores beside a GPU, at most 16, and none
    beside a CPU. The result does not depend on it."""
    bad_images: Literal["stop", "skip"] = "stop"
    """What an image that cannot be read does: end the run, or, found when every image is read before the first step, stay
    out of it, as long as they are no more than 1 in 100, or three; of fewer than 30 images, a tenth."""
    balance: Literal["none", "sampling", "loss"] = "none"
    """Rare classes weigh as much as frequent ones: drawn as often, or with a larger loss."""

    @property
    def splitting(self) -> dict[str, Any]:
        """Options for splitting data without splits, for the functions that open it."""
        shares = {"test": self.test_share, "val": self.val_share}
        given = {name: share for name, share in shares.items() if share is not None}
        return {"split_seed": self.split_seed, "shares": given, **({"group": self.group} if self.group else {})}


class LayerSettings(Settings):
    """Settings of a part of the model."""

    lr: Annotated[float, Field(ge=0, le=1e6)] = 1.0
    """Factor on the learning rate; 0 freezes the part."""
    weight_decay: NotNegative | None = None
    """In place of the optimizer's, for matrices of linear layers and convolutions; nothing else decays."""


class OptimizerSettings(Settings):
    """The optimizer: how weights follow gradients."""

    name: Literal["adamw", "adam", "sgd", "muon"] = "adamw"
    """AdamW decouples weight decay from the gradient; Adam and SGD add it; Muon takes linear layers and convolutions
    between what sees the image and the heads, AdamW the rest."""
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
    """Learning rate and weight decay of parts of the model, by the beginning of their parameters' names: head, blocks.0, or with
    ``*`` for anything: ``*.relative``. The longest name that fits counts. {} puts away what a recipe says."""


class LoraSettings(Settings):
    """The low-rank adapters of ``training.tune: lora``."""

    rank: Annotated[int, Field(gt=0, le=2**12)] = 8
    """Width of an adapter."""
    alpha: Annotated[int, Field(gt=0, le=2**16)] = 16
    """What an adapter adds is multiplied by alpha / rank."""
    targets: Annotated[tuple[str, ...], Field(min_length=1)] = ("qkv", "output")
    """Linear layers of the blocks that get one: qkv (also where query, key and value stand apart), output, expand, contract."""


def _seconds(value: Any) -> Any:
    """Return ``1h30m`` as 5400 seconds, and any other value as it is."""
    match = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", value) if isinstance(value, str) and value else None
    return (
        value if match is None else sum(int(part or 0) * unit for part, unit in zip(match.groups(), (3600, 60, 1), strict=True))
    )


class TrainingSettings(Settings):
    """The loop."""

    epochs: Positive = 30
    """Passes over the training images."""
    min_steps: Annotated[int, Field(ge=0)] = 0
    """Least number of steps: small data sets get more epochs; 0 for none. Has no effect where ``epochs`` is set over it."""
    batch_size: Positive | Literal["auto"] = 128
    """Images per step of the optimizer, or tokens of either language, all processes together; auto finds the largest number of
    images that fits into memory."""
    tune: Literal["all", "head", "lora"] = "all"
    """What a run that starts from a model trains: all of it, its head alone (a linear probe), or adapters and the head. Of a
    captioner the whole decoder is the head."""
    frozen_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the layers, from the first on, that a run that starts from a model leaves as they are, with what stands before
    them: less is computed, and less is learned by heart; 0 for none."""
    probe: bool = False
    """Whether a run that starts from a model first fits a head to features of the frozen model, keeps it as its first model, and
    goes on from there. With ``tune: head`` it ends there. Has no effect on a model whose head is not one linear layer."""
    views: Positive = 1
    """Versions of each training image that the probe learns from: as it is, and others augmented."""
    time_limit: Annotated[float, BeforeValidator(_seconds), Field(gt=0)] | None = None
    """Longest time of a run, such as 90s, 10m or 1h30m: the schedule is fitted to it, and the last epoch may be a part of one."""
    keep: Literal["best", "last"] = "best"
    """The epoch whose model is kept: the best one on the validation split, or the last one, where that split is too small to tell
    epochs apart."""
    patience: Annotated[int, Field(ge=0)] = 0
    """Epochs without a better one after which a run ends; 0 for none."""
    accumulate: Positive = 1
    """Parts a batch is cut into to save memory; the gradient is the whole batch's, apart from dropout."""
    recompute: bool = False
    """Whether layers keep their inputs alone and are computed again in the backward pass, which takes far less memory and about a
    quarter more time (activation or gradient checkpointing); what is learned is the same."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Probability spread over all classes in the target."""
    ema: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Decay of the averaged weights that are evaluated and kept; 0 for none."""
    average: Annotated[int, Field(ge=0, le=100)] = 0
    """Epochs at the end of a run of whose weights the mean is one more model to choose from, kept where it is better than every
    epoch on the validation split, or with ``keep: last`` where its loss there is no higher than the last epoch's; 0 for none.
    BatchNorm's means and variances are averaged like weights."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "fp32"
    """Type of the matrix products; auto takes bf16 where the machine is quicker in it, else fp32."""
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
    track: TrackerKind = "none"
    """Where metrics go beside the run's own files."""
    fast_dev_run: bool = False
    """Two batches, one epoch: does everything work?"""

    @property
    def batch(self) -> int:
        """The batch size as a number, which is known before the first step."""
        assert self.batch_size != "auto"
        return self.batch_size


class Expected(Settings):
    """Results and cost that a recipe promises."""

    result: str = ""
    """On which images, and whether measured here or reported in a paper."""
    cost: str = ""
    """Time, and memory where it matters."""
    machine: str = ""
    """The machine it was measured on."""


class RunSettings(Settings):
    """The complete configuration of a run."""

    about: str = ""
    """What it is for."""
    expected: Expected = Expected()
    """What to expect of it."""
    results: str = "runs"
    """Where a run makes its folder when none is named."""
    start: str | None = None
    """A trained model to start from (``--from``)."""
    transform: str = ""
    """The user's own change to training pictures, as it prints; given in Python alone, as ``transform=``."""
    task: Annotated[SerializeAsAny[TaskSettings], BeforeValidator(_task)] = TaskSettings()
    model: Annotated[SerializeAsAny[ModelSettings], BeforeValidator(_model)]
    data: DataSettings
    preparation: Preparation | BoxPreparation | None = None
    """How images are prepared. A model to start from decides it; without one, as in the paper by default."""
    augmentation: Augmentation = Augmentation()
    optimizer: OptimizerSettings = OptimizerSettings()
    lora: LoraSettings = LoraSettings()
    distillation: DistillationSettings = DistillationSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    training: TrainingSettings = TrainingSettings()

    @property
    def workers(self) -> int:
        """Processes that prepare images, of `DataSettings.workers` or by default."""
        from vitrail.runtime.device import pick_device, workers_beside  # torch takes seconds, and settings are read without it

        given = self.data.workers
        return workers_beside(pick_device(self.training.device)) if given is None else given

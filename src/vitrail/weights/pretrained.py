"""A checkpoint to a model: what the files say, what the tensors tell, and what the user wants otherwise."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from vitrail.data.preparation import Preparation
from vitrail.errors import ConfigError, ModelFileError, unknown
from vitrail.models.configs.base import ModelConfig
from vitrail.models.empty import empty_model
from vitrail.models.registry import ARCHITECTURES
from vitrail.parts.interpolation import Interpolation
from vitrail.settings import brief
from vitrail.weights.folder import FORMAT, PROBLEMS, TrainedModel, distinct, fill
from vitrail.weights.layout import HALF, IMAGENET, Colours, Layout
from vitrail.weights.layouts import LAYOUTS
from vitrail.weights.tensor_files import (
    CARD,
    CONFIG,
    OPEN_CLIP_CONFIG,
    PICKLES,
    PREPROCESSOR,
    PROCESSOR,
    WEIGHTS,
    read_json,
    read_pickle,
    read_tensors,
    require_numbers,
)
from vitrail.weights.transfer import adapt
from vitrail.weights.translate import described, guesses, recognise

OURS = {"embedding.projection.weight", "blocks.0.attention.norm.weight", "norm.weight"}
"""Parameters by which weights under our own names are known."""
Size = tuple[int, int]
TIMM_USUAL = {
    "crop_pct": 0.875,
    "crop_mode": "center",
    "interpolation": "bicubic",
    "mean": IMAGENET.mean,
    "std": IMAGENET.std,
}
"""What timm does where its description says nothing."""


@dataclass(frozen=True)
class Checkpoint:
    """What was found of a model: its tensors, and what stands beside them."""

    file: Path
    """The file of tensors."""
    tensors: dict[str, Tensor]
    config: dict[str, Any] = field(default_factory=dict)
    """``config.json``; empty where there is none."""
    preprocessor: dict[str, Any] | None = None
    """``preprocessor_config.json``, where there is one."""
    card: str = ""
    """The model card."""

    @property
    def prepared(self) -> bool:
        """Whether the files say how images are prepared."""
        return self.preprocessor is not None or "pretrained_cfg" in self.config

    @classmethod
    def read(cls, path: Path, *, trust_pickle: bool = False) -> "Checkpoint":
        """Read a model folder, or a file of tensors with what stands beside it; pickles only where they are trusted.

        Raises:
            ModelFileError: missing, damaged or refused.
        """
        folder = path if path.is_dir() else path.parent
        file = _weights_in(folder, trust_pickle) if path.is_dir() else path
        config = _description(file)
        preprocessor = None if "model_cfg" in config else _preprocessor(folder)  # which OpenCLIP has in one file
        card = (folder / CARD).read_text(encoding="utf-8", errors="replace") if config and (folder / CARD).is_file() else ""
        pickled = trust_pickle and file.suffix.lower() in PICKLES
        return cls(file, read_pickle(file) if pickled else read_tensors(file), config, preprocessor, card)


def _description(file: Path) -> dict[str, Any]:
    """The ``config.json`` beside a file of weights, or what OpenCLIP has in its place."""
    usual, other = file.parent / CONFIG, file.parent / OPEN_CLIP_CONFIG
    if not other.exists() or (usual.exists() and not file.name.startswith("open_clip")):
        return read_json(usual) if usual.exists() else {}
    values = read_json(other)
    prepared = _section(values, "preprocess_cfg")
    modes = {"shortest": "center", "squash": "squash"}
    mode = prepared.get("resize_mode", "shortest")
    if mode not in modes:
        raise ModelFileError(f"resize_mode {brief(mode)} is not known here", where=other, hint=f"known: {', '.join(modes)}")
    names = ("mean", "std", "interpolation")
    told = {name: prepared[name] for name in names if prepared.get(name) is not None}
    return {**values, "pretrained_cfg": {**told, "crop_mode": modes[mode]}}


def _preprocessor(folder: Path) -> dict[str, Any] | None:
    """What a folder of transformers' says of images, which stands in another file from version 5 on."""
    if (folder / PREPROCESSOR).exists():
        return read_json(folder / PREPROCESSOR)
    return (_section(read_json(folder / PROCESSOR), "image_processor") or None) if (folder / PROCESSOR).exists() else None


def _weights_in(folder: Path, trust_pickle: bool) -> Path:
    """The one file of tensors in a folder."""
    usual = folder / "model.safetensors"
    if usual.exists():
        return usual
    files = sorted(file for file in folder.iterdir() if file.is_file())
    found = [file for file in files if file.suffix.lower() in WEIGHTS]
    pickles = [file for file in files if file.suffix.lower() in PICKLES]
    if trust_pickle and not found:
        found = pickles
    if len(found) == 1:
        return found[0]
    if found:
        what, hint = f"several files of weights: {', '.join(file.name for file in found[:5])}", "give one of them"
    elif pickles:
        what = f"model.safetensors is missing, and {pickles[0].name} is a pickle, which can run code when loaded"
        hint = f"if you trust it: vitrail convert {folder} OUT --trust-pickle"
    else:
        what = f"{usual.name if (folder / CONFIG).exists() else CONFIG} is missing"
        hint = "give a model folder, a run folder or a file of weights"
    raise ModelFileError(what, where=folder, hint=hint)


@dataclass(frozen=True)
class Source:
    """A checkpoint that is understood."""

    tensors: dict[str, Tensor]
    """Under our names."""
    config: ModelConfig
    labels: list[str]
    multi_label: bool
    colours: Colours
    interpolation: Interpolation
    about: str
    """What was recognised, for people; nothing where the folder is our own."""


@dataclass(frozen=True)
class Changes:
    """What a model shall have otherwise than its checkpoint; None leaves it."""

    image_size: Size | None = None
    patch_size: Size | None = None
    channels: int | None = None
    num_classes: int | None = None

    def apply(self, config: ModelConfig) -> ModelConfig:
        """The configuration with the changes."""
        return config.changed(**{name: value for name, value in vars(self).items() if value is not None})


def build(
    checkpoint: Checkpoint,
    changes: Changes = Changes(),
    *,
    layout: str | None = None,
    fields: Mapping[str, Any] | None = None,
) -> tuple[TrainedModel, str]:
    """The model of a checkpoint, and what was recognised in it; no text for a folder of our own.

    Args:
        checkpoint: what was read. Its tensors are used up.
        changes: what the model shall have otherwise.
        layout: the name of the layout, where it must not be guessed.
        fields: of the configuration, which the checkpoint has and does not tell.

    Raises:
        ModelFileError: the files contradict each other, or fit no layout.
        ConfigError: a change that cannot be made.
    """
    require_numbers(checkpoint.tensors, checkpoint.file)
    own = checkpoint.config.get("model_type") == FORMAT and not fields and layout in (None, FORMAT)
    source = _own(checkpoint) if own else _foreign(checkpoint, changes, layout, fields or {})
    config = changes.apply(source.config)
    tensors, labels, about = source.tensors, source.labels, source.about
    if config != source.config:
        keep = config.num_classes == source.config.num_classes
        tensors = adapt(tensors, source.config, config, keep_head=keep, interpolation=source.interpolation)
        if not keep:
            labels = [str(i) for i in range(config.num_classes)]
            about += f"\n{source.config.num_classes} classes replaced by {config.num_classes}: the new head starts at zero"
    preparation = _preparation(checkpoint, source, config)
    model = empty_model(config)
    fill(model, tensors, where=checkpoint.file)
    about += f"\nimages: {preparation}" + ("" if checkpoint.prepared else " (usual for these; the files do not say)")
    trained = TrainedModel(model.eval(), labels, preparation, source.multi_label, checkpoint.card)
    return trained, about.strip() if source.about else ""


def _own(checkpoint: Checkpoint) -> Source:
    """A folder of our own says everything."""
    values, where = dict(checkpoint.config), checkpoint.file.parent / CONFIG
    kind = values.pop("architectures", None)
    if not (isinstance(kind, list) and len(kind) == 1 and kind[0] in ARCHITECTURES):
        what = f"architectures is {brief(kind)}, and not one of those known here"
        raise ModelFileError(what, where=where, hint=f"known: {', '.join(ARCHITECTURES)}; else write the folder again")
    names = {name: values.pop(name, None) for name in ("id2label", "label2id", "problem_type")}
    del values["model_type"]
    if checkpoint.preprocessor is None:
        raise ModelFileError(f"{PREPROCESSOR} is missing", where=checkpoint.file.parent, hint="give a complete model folder")
    try:
        config = ARCHITECTURES[kind[0]].config.read(values, where="config")
    except ConfigError as error:
        raise ModelFileError(f"the configuration is damaged: {error}", where=where, hint="write the folder again") from None
    labels = _labels(names["id2label"] or {}, config, where)
    return Source(checkpoint.tensors, config, labels, _multi_label(names, where), HALF, Interpolation(), "")


def _foreign(checkpoint: Checkpoint, changes: Changes, name: str | None, fields: Mapping[str, Any]) -> Source:
    """Recognise the layout by the description or by the tensors, and translate."""
    where = checkpoint.file.parent / CONFIG
    if not checkpoint.config and checkpoint.tensors.keys() >= OURS:
        what = f"{CONFIG} is missing, without which weights of Vitrail's own do not tell what they are"
        raise ModelFileError(what, where=where, hint="give the whole model folder")
    config = {**checkpoint.config, **_section(checkpoint.config, "vision_config"), **_section(checkpoint.config, "model_args")}
    layouts = _of_fields(_candidates(config, name, where), fields)
    try:
        tensors = {name: tensor for name, tensor in checkpoint.tensors.items() if tensor.numel()}
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        found = recognise(
            shapes,
            lambda layout: {
                **_training(config, layout),
                **_described(checkpoint.config, config, layout, where),
                **_of_images(checkpoint, layout),
                **{told: layout.config.read_field(told, value) for told, value in fields.items()},
            },
            layouts=layouts,
            where=checkpoint.file,
            image_size=changes.image_size,
        )
    except ConfigError as error:
        raise ModelFileError(
            f"the configuration is damaged: {error}", where=where, hint="give the one that belongs to it"
        ) from None
    checkpoint.tensors.clear()
    count = sum(math.prod(shape) for shape in shapes.values())
    layout, model = found.match.layout, found.config
    labels = config.get("id2label", _numbered(config.get("label_names")))
    about = "" if FORMAT in config else f"recognised {layout.about}: {count:,} parameters, {model.summary}"
    guessed = "" if checkpoint.config else guesses(model, fields, layout, guessed=name is None)
    if guessed:
        about += f"\nguessed, as the file does not say: {guessed}"
    return Source(
        found.translate(tensors),
        model,
        _labels(labels, model, where),
        _multi_label(config, where),
        layout.colours,
        layout.interpolation,
        about,
    )


def _described(config: Mapping[str, Any], flat: Mapping[str, Any], layout: Layout, where: Path) -> Mapping[str, Any]:
    """What a ``config.json`` tells of the architecture; ``flat`` is the same without the sections of transformers."""
    try:
        return layout.read(config) if layout.read else described(flat, layout) if config else {}
    except ConfigError as error:
        what = f"the configuration is damaged: {error}"
        raise ModelFileError(what, where=where, hint="give the one that belongs to it") from None
    except ModelFileError as error:
        raise ModelFileError(error.what, where=where, hint=error.hint) from None


def _of_images(checkpoint: Checkpoint, layout: Layout) -> dict[str, Any]:
    """The size of the images, where their preparation alone tells it."""
    if not layout.reading.any_size or checkpoint.preprocessor is None:
        return {}
    return {"image_size": _from_processor(checkpoint, checkpoint.preprocessor).image_size}


def _section(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    section = values.get(name)
    return section if isinstance(section, dict) else {}


def _numbered(names: Any) -> dict[str, Any] | None:
    return {str(i): name for i, name in enumerate(names)} if isinstance(names, list) else None


def _candidates(config: Mapping[str, Any], name: str | None, where: Path) -> list[Layout]:
    """The layouts that a checkpoint may be in."""
    if name is not None:
        if name not in LAYOUTS:
            raise unknown("layout", name, list(LAYOUTS), where="layout")
        return [LAYOUTS[name]]
    kind = config.get("model_type")
    if kind is None:
        return [layout for layout in LAYOUTS.values() if layout.read or "architecture" not in config]
    named = [layout for layout in LAYOUTS.values() if kind in layout.model_types]
    if not named:
        known = sorted({kind for layout in LAYOUTS.values() for kind in layout.model_types})
        raise ModelFileError(
            f"model_type {brief(kind)} is none that is known here", where=where, hint=f"known: {FORMAT}, {', '.join(known)}"
        )
    return named


def _training(config: Mapping[str, Any], layout: Layout) -> dict[str, Any]:
    """The settings of training that our own folders keep beside those of transformers."""
    own, known = _section(config, FORMAT), layout.config.training_only
    strange = own.keys() - known
    if strange:
        raise unknown("setting", sorted(strange)[0], sorted(known), where=FORMAT)
    return {name: layout.config.read_field(name, value, where=FORMAT) for name, value in own.items()}


def _of_fields(layouts: list[Layout], fields: Iterable[str]) -> list[Layout]:
    """The layouts of those architectures that have all the fields which the user says something of."""
    for name in fields:
        fitting = [layout for layout in layouts if name in layout.config.model_fields]
        if not fitting:
            raise unknown("field", name, list(layouts[0].config.model_fields), where=layouts[0].about)
        layouts = fitting
    return layouts


def _labels(names: Any, config: ModelConfig, where: Path) -> list[str]:
    """A name for each class: those given, else their numbers; none for a model that gives vectors."""
    if not config.num_classes or getattr(config, "head", "") == "projection":
        return []
    if names is None:
        return [str(i) for i in range(config.num_classes)]
    try:
        labels = [names[str(i)] for i in range(config.num_classes)]
        if not all(isinstance(label, str) and label for label in labels) or len(labels) != len(names):
            raise KeyError
    except (KeyError, TypeError):
        what = f"the labels are no names, one for each of {config.num_classes} classes"
        raise ModelFileError(what, where=where, hint="mend id2label") from None
    return distinct(labels)


def _multi_label(config: Mapping[str, Any], where: Path) -> bool:
    problem = config.get("problem_type") or PROBLEMS[0]
    if problem not in PROBLEMS:
        raise ModelFileError(f"problem_type cannot be {brief(problem)}", where=where, hint=f"known: {', '.join(PROBLEMS)}")
    return problem == PROBLEMS[1]


def _preparation(checkpoint: Checkpoint, source: Source, config: ModelConfig) -> Preparation:
    """How images are prepared: as the files say, for what they leave out as is usual for the layout."""
    colours, own = source.colours, source.config
    usual: dict[str, Any] = {"resampling": colours.resampling, "fit": colours.fit}
    if own.channels == 3:
        usual |= {"mean": colours.mean, "std": colours.std}
    preparation = Preparation.standard(own.image_size, own.channels, colours.crop_ratio, **usual)
    if checkpoint.preprocessor is not None:
        values = checkpoint.preprocessor
        if "max_num_patches" in values:
            values = _squashed(values, own)
        preparation = _from_processor(checkpoint, values)
    elif timm := _section(checkpoint.config, "pretrained_cfg"):
        preparation = _from_timm(timm, own, checkpoint.file.parent / CONFIG)
    other_size = not source.about and preparation.image_size != own.image_size
    if preparation.channels != own.channels or other_size:
        what = "the preparation makes other images than the model takes"
        raise ModelFileError(what, where=checkpoint.file.parent / PREPROCESSOR, hint="write the folder again")
    if config.channels != own.channels:
        mean, std = (sum(values) / own.channels for values in (preparation.mean, preparation.std))
        colour = {"channels": config.channels, "mean": (mean,) * config.channels, "std": (std,) * config.channels}
        preparation = preparation.changed(**colour)
    return preparation.at(config.image_size)


def _from_processor(checkpoint: Checkpoint, values: Mapping[str, Any]) -> Preparation:
    """What a description of transformers' means beside the model of a checkpoint."""
    kind, where = checkpoint.config.get("model_type"), checkpoint.file.parent / PREPROCESSOR
    return Preparation.from_hugging_face(values, model_type=kind, where=where)


def _squashed(values: Mapping[str, Any], config: ModelConfig) -> dict[str, Any]:
    """SigLIP 2's preparation keeps the shape of an image, in so many patches as fit; ours squashes it to the model's grid."""
    rest = {name: value for name, value in values.items() if name not in ("max_num_patches", "patch_size")}
    size = dict(zip(("height", "width"), config.image_size, strict=True))
    return {"resample": 2, **rest, "image_processor_type": "SiglipImageProcessor", "size": size}


def _from_timm(values: Mapping[str, Any], config: ModelConfig, where: Path) -> Preparation:
    """The ``pretrained_cfg`` of timm's ``config.json``; what it leaves out is as in timm's own ``PretrainedCfg``."""
    told = {**TIMM_USUAL, **{name: value for name, value in values.items() if value is not None}}
    try:
        if told["crop_mode"] not in ("center", "squash"):
            raise ValueError(f"'crop_mode' {brief(told['crop_mode'])} is not done here")
        return Preparation.standard(
            config.image_size,
            config.channels,
            told["crop_pct"],
            mean=told["mean"],
            std=told["std"],
            resampling=told["interpolation"],
            fit="squash" if told["crop_mode"] == "squash" else "cover",
        )
    except (ConfigError, TypeError, ZeroDivisionError, OverflowError, ValueError) as error:
        what = f"the description of the preprocessing is incomplete or damaged: {error}"
        raise ModelFileError(what, where=where, hint="mend pretrained_cfg") from None

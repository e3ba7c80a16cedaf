"""The architectures, a row each, and the names of their models."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from vitrail.errors import ConfigError, unknown
from vitrail.lazy import lazily
from vitrail.models.configs import (
    captioner,
    cvt,
    dit,
    mdt,
    mixer,
    pvt,
    pvt_v2,
    resnet,
    segmenter,
    swin,
    t2t,
    texts,
    tnt,
    vit,
    vit_names,
    vitpose,
)
from vitrail.models.configs.base import OF_IMAGES, ImageConfig, ModelConfig

if TYPE_CHECKING:
    from vitrail.models.base import ImageModel, Model


@dataclass(frozen=True)
class Architecture:
    """A kind of model, as the rest of the library knows it."""

    name: str
    """Name of the class, which ``config.json`` calls ``architectures``."""
    about: str
    """A few words for people."""
    module: str
    """The file of `vitrail.models` that holds the class, imported when a model is built."""
    config: type[ModelConfig]
    presets: Mapping[str, Mapping[str, Any]]
    """The names that are listed, with the fields of the configuration that each fixes."""
    aliases: Callable[[str], Mapping[str, Any] | None] | None = None
    """The fields of any name that is understood, listed or not; None if these are the listed ones."""

    def preset_of(self, name: str) -> Mapping[str, Any] | None:
        """Return the fields of the configuration that a name fixes; None for an unknown name."""
        return (self.aliases or self.presets.get)(name)


ROWS = (
    Architecture("ViT", "Vision Transformer", "vision.vit", vit.ViTConfig, vit_names.PRESETS, vit_names.preset_of),
    Architecture("Swin", "Swin Transformer", "vision.swin", swin.SwinConfig, swin.PRESETS, swin.preset_of),
    Architecture("PVT", "Pyramid Vision Transformer", "vision.pvt", pvt.PVTConfig, pvt.PRESETS, pvt.preset_of),
    Architecture("PVTv2", "Pyramid Vision Transformer v2", "vision.pvt_v2", pvt_v2.PVTv2Config, pvt_v2.PRESETS, pvt_v2.preset_of),
    Architecture("CvT", "Convolutional vision Transformer", "vision.cvt", cvt.CvTConfig, cvt.PRESETS, cvt.preset_of),
    Architecture("TNT", "Transformer in Transformer", "vision.tnt", tnt.TNTConfig, tnt.PRESETS, tnt.preset_of),
    Architecture("T2T", "Tokens-to-Token ViT", "vision.t2t", t2t.T2TConfig, t2t.PRESETS, t2t.preset_of),
    Architecture("Mixer", "MLP-Mixer", "vision.mixer", mixer.MixerConfig, mixer.PRESETS, mixer.preset_of),
    Architecture("ResNet", "Residual network", "vision.resnet", resnet.ResNetConfig, resnet.PRESETS, resnet.preset_of),
    Architecture("ViTPose", "ViT for poses", "vision.vitpose", vitpose.ViTPoseConfig, vitpose.PRESETS),
    Architecture(
        "Segmenter", "Segmenter of images", "vision.segmenter", segmenter.SegmenterConfig, segmenter.PRESETS, segmenter.preset_of
    ),
    Architecture("DiT", "Diffusion Transformer", "vision.dit", dit.DiTConfig, dit.PRESETS),
    Architecture("MDT", "Masked Diffusion Transformer", "vision.mdt", mdt.MDTConfig, mdt.PRESETS),
    Architecture("MDTv2", "Masked Diffusion Transformer v2", "vision.mdt", mdt.MDTv2Config, mdt.PRESETS_V2),
    Architecture("Transformer", "Transformer", "text.transformer", texts.TransformerConfig, texts.TRANSFORMERS),
    Architecture("Recurrent", "LSTM, sequence to sequence", "text.recurrent", texts.RecurrentConfig, texts.RECURRENT),
    Architecture(
        "Captioner", "Captioner, ViT and Transformer", "text.captioner", captioner.CaptionerConfig, captioner.CAPTIONERS
    ),
    Architecture(
        "RecurrentCaptioner",
        "Captioner, ViT and LSTM",
        "text.recurrent_captioner",
        captioner.RecurrentCaptionerConfig,
        captioner.RECURRENT_CAPTIONERS,
    ),
)
"""The first is meant where a configuration names none."""

ARCHITECTURES = {row.name: row for row in ROWS}
DEFAULT = ROWS[0].name
USUAL = "ViT-B/16"
"""The name that stands for any model in examples."""
NAMES = [name for row in ROWS for name in row.presets]
"""The names that are listed."""

_class_of = lazily("vitrail.models", {row.name: row.module for row in ROWS})


def named(name: str) -> tuple[Architecture, dict[str, Any]]:
    """Return the architecture of a model's name and the fields of its configuration that the name fixes.

    Raises:
        ConfigError: there is no such name.
    """
    for row in ROWS:
        if (fields := row.preset_of(name)) is not None:
            return row, dict(fields)
    raise unknown("model", name, NAMES, where="model name")


def architecture(name: str) -> Architecture:
    """Return the row of an architecture; raises `ConfigError` where there is none."""
    if name not in ARCHITECTURES:
        raise unknown("architecture", name, list(ARCHITECTURES), where="model.architecture")
    return ARCHITECTURES[name]


def architecture_in(names: Any) -> Architecture | None:
    """Return the row that the ``architectures`` of a ``config.json`` mean; None where they are not one name known here."""
    known = isinstance(names, list) and len(names) == 1 and isinstance(names[0], str)
    return ARCHITECTURES.get(names[0]) if known else None


def architecture_of(config: ModelConfig) -> Architecture:
    """Return the row that a configuration belongs to."""
    return next(row for row in ROWS if row.config is type(config))


def family_of(config: ModelConfig) -> str:
    """Return the name of this kind in figures: its own name for it, else its architecture's."""
    return config.family or architecture_of(config).name


def listed_name(config: ModelConfig) -> str:
    """Return the listed name that says most of a model, whatever its images and classes; its family where there is none."""
    row, free, found = architecture_of(config), {*OF_IMAGES, "num_classes"}, dict[str, int]()
    for name, fields in row.presets.items():
        listed, stated = row.config.read(dict(fields), where=name), fields.keys() - free
        if all(getattr(config, field) == getattr(listed, field) for field in stated):
            found[name] = len(stated)
    return max(found, key=lambda name: found[name], default=family_of(config))


def for_heatmaps(start: ModelConfig, overrides: Mapping[str, Any]) -> ModelConfig:
    """Return the configuration of a model of heatmaps whose backbone is another model's, with ``overrides`` of its fields.

    A model of heatmaps stays as it is; raises `ConfigError` where there is none.
    """
    if not isinstance(start, vit.ViTConfig):
        what = f"there are no heatmaps of a {architecture_of(start).about}"
        raise ConfigError(what, where="--from", hint="start from a ViT")
    if isinstance(start, vitpose.ViTPoseConfig):
        return start
    fields = {name: value for name, value in overrides.items() if name in vitpose.ViTPoseConfig.model_fields}
    return vitpose.pose_config(start, fields.get("image_size")).changed(**fields)


def for_masks(start: ModelConfig, overrides: Mapping[str, Any]) -> ModelConfig:
    """Return the configuration of a segmenter whose backbone is another model, with ``overrides`` of its fields.

    A segmenter stays as it is; raises `ConfigError` for a model that cannot be a backbone.
    """
    if isinstance(start, segmenter.SegmenterConfig):
        return start
    if not isinstance(start, ImageConfig):
        what = f"there is no segmenter of a {architecture_of(start).about}"
        raise ConfigError(what, where="--from", hint="start from a model of images")
    fields = {
        name: value for name, value in overrides.items() if name in segmenter.SegmenterConfig.model_fields and name != "backbone"
    }
    made = segmenter.segmenter_config(start, fields.get("image_size"), maps=fields.get("maps"), head=fields.get("head"))
    return made.changed(**fields)


def for_captions(start: ModelConfig, overrides: Mapping[str, Any]) -> ModelConfig:
    """Return the configuration of a captioner whose encoder is another model, with ``overrides`` of its decoder.

    A captioner stays as it is; raises `ConfigError` where there is none.
    """
    if isinstance(start, captioner.OfImages):
        return start
    if not isinstance(start, vit.ViTConfig):
        what = f"there is no captioner of a {architecture_of(start).about}"
        raise ConfigError(what, where="--from", hint="start from a ViT")
    fields = {
        name: value for name, value in overrides.items() if name in captioner.CaptionerConfig.model_fields and name != "encoder"
    }
    return captioner.caption_config(start).changed(**fields)


def model_config(name: str, **fields: Any) -> ModelConfig:
    """Return the configuration of the model called ``name``, with any of its fields replaced.

    Raises:
        ConfigError: unknown name or field, or a combination that cannot work.
    """
    row, fixed = named(name)
    return row.config.read({**fixed, **fields}, where="model")


@overload
def build(config: ImageConfig) -> "ImageModel": ...


@overload
def build(config: ModelConfig) -> "Model": ...


def build(config: ModelConfig) -> "Model":
    """Return the model of a configuration, with fresh weights."""
    return class_of(config)(config)


def class_of(config: ModelConfig) -> "type[Model]":
    """Return the class of a configuration's model."""
    return _class_of(architecture_of(config).name)


def create_model(name: str, **fields: Any) -> "Model":
    """Build the model called ``name`` with fresh weights; ``fields`` change its configuration.

    >>> model = create_model("ViT-Ti/16", num_classes=10)
    """
    return build(model_config(name, **fields))

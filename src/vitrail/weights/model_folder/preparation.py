"""The preparation of images for a checkpoint: the one in its files, otherwise the usual one of its layout."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitrail.data.images.box_preparation import PROCESSOR, BoxPreparation
from vitrail.data.images.preparation import Preparation
from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.configs.base import ImageConfig
from vitrail.settings import brief
from vitrail.weights.formats.checkpoint import Checkpoint, Source
from vitrail.weights.formats.pipeline import latent_side
from vitrail.weights.formats.safe_files import CONFIG, LATENTS, PREPROCESSOR, section
from vitrail.weights.layout import Size
from vitrail.weights.normalization import IMAGENET

CHANNELS = (1, 3)
"""Supported numbers of channels: grey and colour images."""
TIMM_USUAL = {
    "crop_pct": 0.875,
    "crop_mode": "center",
    "interpolation": "bicubic",
    "mean": IMAGENET.mean,
    "std": IMAGENET.std,
}
"""timm's defaults for entries that a ``pretrained_cfg`` omits."""


def preparation_of(checkpoint: Checkpoint, source: Source, config: ImageConfig) -> Preparation:
    """Return the preparation for a model of ``config``; its image size and channels may differ from the checkpoint's."""
    colours, own = source.colours, source.config
    if own.answer == "heatmaps":
        return _of_boxes(checkpoint, own).at(config.image_size)
    if makes_latents(own):
        return _of_latents(checkpoint, own, config)
    channels = own.channels if own.channels in CHANNELS else config.channels  # others cannot be prepared
    if channels not in CHANNELS:
        what = f"the model takes images of {own.channels} channels; only 1 (grey) and 3 (colour) are supported"
        raise ModelFileError(what, where=checkpoint.file, hint="load it for colour images: from_pretrained(…, channels=3)")
    usual: dict[str, Any] = {"resampling": colours.resampling, "fit": colours.fit}
    if channels == 3:
        usual |= {"mean": colours.mean, "std": colours.std}
    preparation = Preparation.standard(own.image_size, channels, colours.crop_ratio, **usual)
    if checkpoint.preprocessor is not None:
        values = checkpoint.preprocessor
        if "max_num_patches" in values:
            values = _squashed(values, own)
        preparation = from_processor(checkpoint, values)
    elif timm := section(checkpoint.config, "pretrained_cfg"):
        preparation = from_timm(timm, own.image_size, channels, checkpoint.file.parent / CONFIG)
    other_size = not source.about and preparation.image_size != own.image_size
    if preparation.channels != channels or other_size:
        what = "the preparation returns images of another size or number of channels than the model takes"
        raise ModelFileError(what, where=checkpoint.file.parent / PREPROCESSOR, hint="write the folder again")
    if config.channels != channels:
        mean, std = (sum(values) / channels for values in (preparation.mean, preparation.std))
        colour = {"channels": config.channels, "mean": (mean,) * config.channels, "std": (std,) * config.channels}
        preparation = preparation.changed(**colour)
    return preparation.at(config.image_size)


def makes_latents(config: ImageConfig) -> bool:
    """Return whether a model makes latents, as the noise that it gives is of no picture."""
    return config.answer == "noise" and config.channels not in CHANNELS


def for_latents(image_size: Size, vae: str | None) -> Preparation:
    """Return the usual preparation of pictures whose latents are of a size."""
    side = latent_side(vae)
    return Preparation.standard((side * image_size[0], side * image_size[1]))


def _of_latents(checkpoint: Checkpoint, own: ImageConfig, config: ImageConfig) -> Preparation:
    if checkpoint.preprocessor is None:
        return for_latents(config.image_size, checkpoint.config.get(LATENTS))
    preparation = from_processor(checkpoint, checkpoint.preprocessor)
    sides = zip(preparation.image_size, config.image_size, own.image_size, strict=True)
    height, width = (side * new // old for side, new, old in sides)
    return preparation.at((height, width))


def _of_boxes(checkpoint: Checkpoint, config: ImageConfig) -> BoxPreparation:
    if checkpoint.preprocessor is None:
        return BoxPreparation.of_size(config.image_size, config.channels)
    where = checkpoint.file.parent / PREPROCESSOR
    preparation = BoxPreparation.from_hugging_face(checkpoint.preprocessor, where=where)
    if preparation.channels != config.channels:
        raise ModelFileError(
            "the preparation returns images of another number of channels than the model takes",
            where=where,
            hint="write the folder again",
        )
    return preparation


def from_processor(checkpoint: Checkpoint, values: Mapping[str, Any]) -> Preparation:
    """Return the preparation in transformers' ``preprocessor_config.json``, whose content is ``values``."""
    kind, where = checkpoint.config.get("model_type"), checkpoint.file.parent / PREPROCESSOR
    cuts_out = str(values.get("image_processor_type")).startswith(PROCESSOR)
    reader = BoxPreparation if cuts_out else Preparation
    return reader.from_hugging_face(values, model_type=kind, where=where)


def _squashed(values: Mapping[str, Any], config: ImageConfig) -> dict[str, Any]:
    """Replace SigLIP 2's preparation, which keeps the aspect ratio, with a resize to the model's image size."""
    rest = {name: value for name, value in values.items() if name not in ("max_num_patches", "patch_size")}
    size = dict(zip(("height", "width"), config.image_size, strict=True))
    return {"resample": 2, **rest, "image_processor_type": "SiglipImageProcessor", "size": size}


def from_timm(values: Mapping[str, Any], image_size: tuple[int, int], channels: int, where: Path) -> Preparation:
    """Return the preparation in timm's ``pretrained_cfg``; entries that it omits are as in timm's class ``PretrainedCfg``."""
    stated = {**TIMM_USUAL, **{name: value for name, value in values.items() if value is not None}}
    try:
        if stated["crop_mode"] not in ("center", "squash"):
            raise ValueError(f"'crop_mode' {brief(stated['crop_mode'])} is not supported")
        return Preparation.standard(
            image_size,
            channels,
            stated["crop_pct"],
            mean=stated["mean"],
            std=stated["std"],
            resampling=stated["interpolation"],
            fit="squash" if stated["crop_mode"] == "squash" else "cover",
        )
    except (ConfigError, TypeError, ZeroDivisionError, OverflowError, ValueError) as error:
        what = f"pretrained_cfg is incomplete or damaged: {error}"
        raise ModelFileError(what, where=where, hint="correct pretrained_cfg") from None

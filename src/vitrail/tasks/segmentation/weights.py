"""A trained segmenter with its classes, their colours, and its preparation of images."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vitrail.data.images.preparation import Preparation
from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.base import ImageModel
from vitrail.tasks.segmentation.files.coding import Color, default_color, void_of
from vitrail.tasks.segmentation.windows import MOST_WHOLE, Extent, View
from vitrail.weights.formats.checkpoint import Checkpoint, Source
from vitrail.weights.formats.safe_files import CONFIG, PALETTE, PREPROCESSOR
from vitrail.weights.layout import Layout
from vitrail.weights.model_folder.folder import TrainedModel


class TrainedSegmenter(TrainedModel):
    """A trained segmenter: prepared images (B, C, H, W) to logits (B, K, h, w).

    Args:
        model: computes the logits.
        classes: a name for each class.
        colors: the colour of each class in masks and pictures, red, green and blue.
        preparation: normalizes the pixels of an image; its size is that of the crops in training.
        card: the model card, as Markdown.
    """

    def __init__(
        self, model: ImageModel, classes: Sequence[str], colors: Sequence[Color], preparation: Preparation, card: str = ""
    ):
        super().__init__(model, classes, preparation, card=card)
        self.colors = tuple(colors)

    @property
    def facts(self) -> dict[str, Any]:
        return {"labels": self.labels, "masks": True}

    @property
    def uses(self) -> Sequence[str]:
        return "predict {} IMAGES --masks FOLDER --pictures FOLDER", "evaluate {} --data FOLDER", "export {}", "serve {}"

    @property
    def more(self) -> dict[str, Any]:
        """The colours and the value of void, as entries of ``config.json``."""
        return dict(zip(PALETTE, (list(map(list, self.colors)), void_of(len(self.labels))), strict=True))

    def files(self, layout: Layout | None) -> Mapping[str, Mapping[str, Any] | bytes]:
        """Return the preparation, for transformers as that of its segmenters, whose processor also makes masks of logits."""
        own, size = self.preparation.to_hugging_face(), self.preparation.image_size
        if layout is not None and self.preparation.resize_size == size:
            own = {name: value for name, value in own.items() if "crop_size" not in name and "center" not in name}
            own |= {"image_processor_type": "SegformerImageProcessor", "size": {"height": size[0], "width": size[1]}}
            own["fit"] = self.preparation.fit  # our own key, which transformers ignores
        return {PREPROCESSOR: own}


def trained_of(model: ImageModel, source: Source, preparation: Preparation, checkpoint: Checkpoint) -> TrainedSegmenter:
    """Return a checkpoint's model with its classes and colours; raises `ModelFileError`."""
    described = {**checkpoint.config, **checkpoint.metadata}
    colors = colors_of(described, len(source.labels), checkpoint.file.parent / CONFIG)
    return TrainedSegmenter(model, source.labels, colors, preparation, checkpoint.card)


def colors_of(config: Mapping[str, Any], classes: int, where: object) -> list[Color]:
    """Read the colour of each class from a ``config.json``; without any, usual ones. Raises `ModelFileError`."""
    palette = config.get(PALETTE[0])
    if palette is None:
        return [default_color(number) for number in range(classes)]
    try:
        colors = [(int(red), int(green), int(blue)) for red, green, blue in palette]
        if len(colors) != classes or not all(0 <= value <= 255 for color in colors for value in color):
            raise ValueError(f"{len(colors)} colours for {classes} classes, or a value beyond 0…255")
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"the palette is damaged: {error}", where=where, hint="write the folder again") from None
    return colors


def multiple_of(model: Any) -> Extent:
    """Return the height and width that a segmenter takes in whole patches, and gives in whole logits."""
    stride = model.strides[0]
    strides = stride if isinstance(stride, tuple) else (stride, stride)
    down, across = map(math.lcm, model.config.multiple, strides)
    return down, across


def view_of(preparation: Preparation, settings: Any, multiple: Extent, *, any_size: bool = True) -> View:
    """Return the way in which a model sees images of any size.

    Args:
        preparation: that of the model, with its own size.
        settings: ``window``, whose sides are rounded up to ``multiple``, ``overlap`` and ``mirror``.
        multiple: see `multiple_of`.
        any_size: False if the model takes only its own size.

    Raises:
        ConfigError: windows of more than `MOST_WHOLE` pixels, or of another size than the only one that the model takes.
    """
    window, own = settings.window, preparation.image_size
    if window is not None and window[0] * window[1] > MOST_WHOLE:
        what = f"a window of {window[0]:,}×{window[1]:,} pixels is too large"
        raise ConfigError(what, where="--window", hint="take about the size that the model was trained on: --window 512")
    if not any_size and window not in (None, own):
        what = f"windows of {window[0]}×{window[1]} do not fit the model, which takes only {own[0]}×{own[1]}"
        raise ConfigError(what, where="--window", hint=f"give --window {own[0]}x{own[1]}, or leave it out")
    if not any_size:
        window = own
    elif window is not None:
        down, across = (-(-side // each) * each for side, each in zip(window, multiple, strict=True))
        window = (down, across)
    return View(multiple, window, settings.overlap, settings.mirror)


def require_segmenter(trained: TrainedModel, where: object) -> TrainedSegmenter:
    """Return ``trained`` if it is a segmenter; raises `ModelFileError` otherwise."""
    if not isinstance(trained, TrainedSegmenter):
        raise no_masks(where)
    return trained


def no_masks(where: object) -> ModelFileError:
    """Return the error for a model of another kind."""
    hint = "give a model that was trained with --task segment"
    return ModelFileError("the model gives no masks", where=where, hint=hint)

"""Rules to read the weights of segmenters from any library: those of the backbone, and what shapes of the decoder show."""

import re
from collections.abc import Mapping
from typing import Any

from vitrail.errors import ModelFileError
from vitrail.models.configs.segmenter import Head, Maps, SegmenterConfig, architecture_of
from vitrail.parts.vision.map_pyramid import STRIDES
from vitrail.weights.keys import Key, Shape, weight_and_bias
from vitrail.weights.layout import Layout, Reading, Size
from vitrail.weights.layouts.relatives.resnet_reading import batch_norms, convolutions
from vitrail.weights.layouts.shapes import require_shapes
from vitrail.weights.normalization import IMAGENET, Colours

BACKBONE = "backbone."
COLOURS = Colours(IMAGENET.mean, IMAGENET.std, resampling="bilinear", fit="squash")
IMAGE_SIZE = (512, 512)
"""Height and width of images if no file states them: that of most published segmenters."""
MULTIPLE = 32
"""Divisor of images that all libraries compute alike: Vitrail pads others first, the libraries pad in every stage or never."""
CLASSES, AUXILIARY = "classifier.weight", "auxiliary.convolution.weight"
FUSE: Mapping[Head, str] = {"upernet": "decoder.fuse.convolution.weight", "mlp": "decoder.fuse.weight"}
BLOCKS = {
    "decoder.pools.{i}": "decode_head.psp_modules.{i}.1", "decoder.bottleneck": "decode_head.bottleneck",
    "decoder.laterals.{i}": "decode_head.lateral_convs.{i}", "decoder.outputs.{i}": "decode_head.fpn_convs.{i}",
    "decoder.fuse": "decode_head.fpn_bottleneck", "auxiliary": "auxiliary_head.convs.0",
}  # fmt: skip
"""Convolutions of UPerNet and of the auxiliary head, to their names in MMSegmentation and transformers."""


def upernet_keys(norm: str, classifier: str) -> dict[str, Key]:
    """Return the rows of UPerNet and of the auxiliary head, from the names of norms and of the last layers."""
    return {
        **convolutions({f"{ours}.convolution": f"{theirs}.conv" for ours, theirs in BLOCKS.items()}),
        **batch_norms({f"{ours}.norm": f"{theirs}.{norm}" for ours, theirs in BLOCKS.items()}),
        **weight_and_bias({"classifier": f"decode_head.{classifier}", "auxiliary_classifier": f"auxiliary_head.{classifier}"}),
    }


def inside(shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return the shapes of the backbone, under its own names."""
    return {name.removeprefix(BACKBONE): shape for name, shape in shapes.items() if name.startswith(BACKBONE)}


def decoder_fields(shapes: Mapping[str, Shape], head: Head) -> dict[str, Any]:
    """Return the configuration fields of decoder and heads; raises `ModelFileError` if they are missing."""
    auxiliary = AUXILIARY in shapes
    needed = (CLASSES, FUSE[head], *((AUXILIARY,) if auxiliary else ()))
    require_shapes(shapes, dict.fromkeys(needed, 4), "a segmenter")
    wide = {"auxiliary_dim": shapes[AUXILIARY][0]} if auxiliary else {}
    sizes = {"num_classes": shapes[CLASSES][0], "head_dim": shapes[FUSE[head]][0]}
    return {"head": head, "norm": "batch", "auxiliary": auxiliary, **sizes, **wide}


def size_of(known: Mapping[str, Any], image_size: Size | None, layout: Layout) -> Size:
    """Return the size of the images; raises `ModelFileError` for one to which the library computes another output."""
    size: Size = image_size or known.get("image_size") or IMAGE_SIZE
    if any(side % MULTIPLE for side in size):
        what = f"{layout.about} computes another output than Vitrail for images of {size[0]}×{size[1]}"
        raise ModelFileError(what, where="weights", hint=f"give an image size of multiples of {MULTIPLE}")
    return size


def reading_around(inner: Reading, head: Head, defaults: Mapping[str, Any]) -> Reading:
    """Return the rules for a decoder of the stages of a backbone.

    Args:
        inner: rules to read the backbone.
        head: kind of the decoder.
        defaults: fields of the backbone if no ``config.json`` states them.
    """
    maps: Maps = "stages"

    def fields(shapes: Mapping[str, Shape], known: Mapping[str, Any], image_size: Size | None, layout: Layout) -> dict[str, Any]:
        decoder, size = decoder_fields(shapes, head), size_of(known, image_size, layout)
        start = known.get("backbone")
        stated = defaults if start is None else start.model_dump(exclude={"image_size"})
        own = backbone_fields(inner, inside(shapes), stated, layout)
        require_alike(own, size, layout)
        own["image_size"] = (224, 224) if start is None else start.image_size
        backbone = {"architecture": inner.architecture, **own}
        return {**known, **decoder, "maps": maps, "image_size": size, "channels": own["channels"], "backbone": backbone}

    def canonical(config: SegmenterConfig) -> SegmenterConfig:
        unused = [
            "pyramid_dim",
            "tokens",
            "deformable_heads",
            "deformable_ratio",
            *([] if config.auxiliary else ["auxiliary_dim"]),
        ]
        own = config.backbone
        own = inner.canonical(own.changed(image_size=(224, 224), **dict.fromkeys(own.training_only, 0.0)))
        return config.changed(**{name: SegmenterConfig.model_fields[name].default for name in unused}, backbone=own)

    return Reading(
        architecture="Segmenter",
        fields=fields,
        covers=lambda config: (
            config.head == head and architecture_of(config.backbone) == inner.architecture and inner.covers(config.backbone)
        ),
        any_size=True,
        optional=inner.optional,
        canonical=canonical,
        not_in_file=tuple(f"{name} of the backbone" for name in inner.not_in_file),
    )


def backbone_fields(inner: Reading, shapes: Mapping[str, Shape], stated: Mapping[str, Any], layout: Layout) -> dict[str, Any]:
    """Return the configuration fields of a backbone; raises `ModelFileError` if shapes and ``stated`` fields do not suffice."""
    try:
        return inner.fields(shapes, stated, None, layout)
    except ModelFileError as error:  # it knows neither the names outside of the backbone, nor that no field of it can be set
        what = re.sub(r"\w+(\.\w+)+", lambda word: _theirs(word[0], layout), error.what)
        raise ModelFileError(what, where=error.where, hint="put the model's config.json beside the weights") from None


def _theirs(word: str, layout: Layout) -> str:
    """Return the library's key for a parameter of the backbone; any other word as it is."""
    key = layout.in_their_names(BACKBONE + word)
    return word if key == BACKBONE + word else key


def require_alike(backbone: Mapping[str, Any], size: Size, layout: Layout) -> None:
    """Raise `ModelFileError` for a backbone of which Vitrail would make other maps than the library.

    From fewer than four stages, Vitrail makes further maps. Overlapping patches of even sides make a map larger than the image
    divided by its stride, which Vitrail cuts off. If a grid of Swin is not larger than a window, Vitrail makes the
    window smaller and does not shift it; within a segmenter, transformers pads the grid and shifts.
    """
    stages, window = len(backbone["depths"]), backbone.get("window_size", 0)
    if stages != len(STRIDES):
        raise ModelFileError(
            f"{layout.about} has no decoder of {stages} stages", where="weights", hint="give a model of four stages"
        )
    if any(side % 2 == 0 for side in backbone.get("patch_sizes", ())):
        patches = "-".join(map(str, backbone["patch_sizes"]))
        what = f"{layout.about} computes another output than Vitrail for overlapping patches of {patches}"
        raise ModelFileError(what, where="weights", hint="give a model whose patches have odd sides")
    rows, columns = (side // (backbone["patch_size"] * 2 ** (stages - 1)) if window else 1 for side in size)
    if min(rows, columns) <= window:
        about = f"grids of {rows}×{columns} and windows of {window}×{window}"
        what = f"{layout.about} computes another output than Vitrail for {about}"
        raise ModelFileError(what, where="weights", hint="give a larger image size, such as image_size=512")

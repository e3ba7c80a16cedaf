"""The image processors of transformers, by their name in ``preprocessor_config.json``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
OPENAI = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
BILINEAR, BICUBIC = 2, 3
WARPED_FROM = 384
"""From this side on ConvNext's processor squashes images and does not crop."""


@dataclass(frozen=True)
class Processor:
    """An image processor class of transformers."""

    defaults: Mapping[str, Any]
    """Values of keys that a file omits."""
    square: bool = True
    """True if a single number as size means both sides; False if it means the shorter side."""
    floats: bool = False
    """True if it resizes floats of 0…1, without rounding and clipping, and not integers of 0…255."""


def _squashing(side: int, resample: int, colours: Mapping[str, Any], crop: int = 0) -> dict[str, Any]:
    cropped = {"crop_size": {"height": crop, "width": crop}, "do_center_crop": True} if crop else {}
    return {"size": {"height": side, "width": side}, "resample": resample, **colours, **cropped}


COVERING = {"size": {"shortest_edge": 224}, "resample": BICUBIC, "do_center_crop": True, "crop_size": 224}
CLIP = Processor({**COVERING, **OPENAI}, square=False)
VIT = Processor(_squashing(224, BILINEAR, HALF))
BEIT = Processor(_squashing(224, BICUBIC, HALF) | {"crop_size": 224})
PROCESSORS = {
    "ViT": VIT,
    "DeiT": Processor(_squashing(256, BICUBIC, HALF, crop=224)),
    "Beit": BEIT,
    "Blip": Processor(_squashing(384, BICUBIC, OPENAI)),
    "Siglip": Processor(_squashing(224, BICUBIC, HALF), square=False),
    "CLIP": CLIP,
    "ChineseCLIP": CLIP,
    "Bit": CLIP,
    "Levit": Processor({**COVERING, **IMAGENET}, square=False),
    "ConvNext": Processor(
        {"size": {"shortest_edge": WARPED_FROM}, "resample": BICUBIC, "crop_pct": 224 / 256, **HALF}, square=False
    ),
    "Pvt": Processor(_squashing(224, BICUBIC, IMAGENET)),
    "Segformer": Processor(_squashing(512, BILINEAR, IMAGENET)),
    "DINOv3ViT": Processor(_squashing(224, BILINEAR, IMAGENET), floats=True),
}
"""Supported processors, by their names without the ending ImageProcessor."""
PROCESSOR_OF_MODEL = {
    **dict.fromkeys(("vit", "vit_mae", "vit_msn", "ijepa"), "ViT"),
    **dict.fromkeys(("beit", "data2vec-vision"), "Beit"),
    **dict.fromkeys(("clip", "metaclip_2", "mlcd", "aimv2", "aimv2_vision_model"), "CLIP"),
    **dict.fromkeys(("dinov2", "pixio", "hiera", "bit"), "Bit"),
    **dict.fromkeys(("pvt", "pvt_v2"), "Pvt"),
    **dict.fromkeys(("resnet", "cvt"), "ConvNext"),
    **dict.fromkeys(("upernet", "segformer"), "Segformer"),
    "deit": "DeiT",
    "siglip": "Siglip",
    "siglip2": "Siglip2",
    "dinov3_vit": "DINOv3ViT",
}
"""The processor for each ``model_type``, used for older files that name no processor."""

UNDERSTOOD = {
    *("do_resize", "size", "default_to_square", "resample", "crop_pct", "do_center_crop", "crop_size"),
    *("do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std"),
    *("fit", "crop_rounding"),  # our own
}
HARMLESS = {
    *("image_processor_type", "feature_extractor_type", "processor_class", "auto_map", "_valid_processor_keys"),
    *("do_convert_rgb", "do_reduce_labels", "reduce_labels", "pad_size", "image_seq_length", "model_input_names"),
    *("data_format", "input_data_format", "return_tensors", "disable_grouping", "device"),
}
"""Keys that change no pixel: images are always converted to the model's colours, and padded only with ``do_pad``."""


def read_processor(values: Mapping[str, Any], model_type: str | None) -> dict[str, Any]:
    """Read the size, resize and crop of a ``preprocessor_config.json``; missing keys take the defaults of the class.

    Return the fields ``image_size``, ``resize_size``, ``fit`` and ``crop_rounding`` of a preparation, and as ``values`` all keys
    of the file and defaults of its class.

    Raises:
        ValueError: a class or key is not supported, or the input size would depend on the image.
        KeyError, TypeError: a size is incomplete.
    """
    name = _name(values, model_type)
    if name not in PROCESSORS:
        raise ValueError(f"{name}ImageProcessor is not supported; supported are {', '.join(PROCESSORS)}")
    processor = PROCESSORS[name]
    given = {**processor.defaults, **{key: value for key, value in values.items() if value is not None}}
    strange = [key for key, value in given.items() if value is not False and key not in UNDERSTOOD | HARMLESS]
    if strange:
        raise ValueError(f"{strange[0]!r} is not understood")
    for key in ("do_resize", "do_rescale"):
        if not given.get(key, True):
            raise ValueError(f"{key!r} is false: images must be resized and rescaled")
    if processor.floats and given["resample"] not in (0, BILINEAR):
        what = f"does not clip values below 0 and above 1, which 'resample' {given['resample']} produces"
        raise ValueError(f"{name}ImageProcessor {what}")
    resize, covers = _size(given["size"], given.get("default_to_square", processor.square))
    crop = _size(given["crop_size"], square=True)[0] if given.get("do_center_crop") else None
    if name == "ConvNext":
        if not covers or crop:
            raise ValueError("ConvNextImageProcessor needs a 'shortest_edge' and no 'do_center_crop'")
        crop, covers = resize, resize[0] < WARPED_FROM
        resize = (int(crop[0] / given["crop_pct"]),) * 2 if covers else crop
    elif given.get("crop_pct"):
        raise ValueError(f"'crop_pct' is not supported for {name}ImageProcessor")
    if name == "Levit" and covers:
        resize = (int(256 / 224 * resize[0]),) * 2
    if covers and crop is None:
        raise ValueError("'do_center_crop' is not set, and 'size' keeps the aspect ratio: images would have different shapes")
    return {
        "image_size": crop or resize,
        "resize_size": resize,
        "fit": given.get("fit", "cover" if covers else "squash"),
        "crop_rounding": given.get("crop_rounding", "down"),
        "values": given,
    }


def _name(values: Mapping[str, Any], model_type: str | None) -> str:
    """Return the name of the processor class without endings such as ImageProcessor and Fast."""
    name = values.get("image_processor_type") or values.get("feature_extractor_type")
    if name is None:
        if model_type not in PROCESSOR_OF_MODEL:
            raise ValueError("'image_processor_type' is missing")
        return PROCESSOR_OF_MODEL[model_type]
    for ending in ("Fast", "Pil", "ImageProcessor", "FeatureExtractor"):
        name = str(name).removesuffix(ending)
    return name


def _size(size: Any, square: bool) -> tuple[tuple[Any, Any], bool]:
    """Return (height, width), and True if images keep their aspect ratio and cover this size.

    Older files have one or two numbers in place of a mapping.
    """
    if type(size) is int:
        return (size, size), not square
    if isinstance(size, list):
        height, width = size
        return (height, width), False
    parts = {key: value for key, value in size.items() if value is not None}
    if parts.keys() == {"shortest_edge"}:
        return (parts["shortest_edge"],) * 2, True
    if parts.keys() == {"min_height", "min_width"}:  # Vitrail's keys: transformers can cover only a square
        return (parts["min_height"], parts["min_width"]), True
    if parts.keys() == {"height", "width"}:
        return (parts["height"], parts["width"]), False
    raise ValueError(f"a size of {', '.join(map(repr, parts)) or 'nothing'} is not understood")

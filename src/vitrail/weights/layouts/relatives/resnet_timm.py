"""The layouts of timm's and torchvision's ResNet, which have the same keys, and of timm's BiT."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from vitrail.errors import ModelFileError
from vitrail.models.configs.resnet import ResNetConfig, preset_of
from vitrail.weights.keys import Key, weight_and_bias, words
from vitrail.weights.layout import Layout
from vitrail.weights.layouts.relatives import resnet_reading as common
from vitrail.weights.layouts.timm.arguments import Arguments, known_name, own_arguments
from vitrail.weights.layouts.timm.description import inexpressible, named, timm_data
from vitrail.weights.normalization import IMAGENET, Colours

NAMED = words(
    """
    resnet18 resnet34 resnet50 resnet101 resnet152 resnetv2_50x1_bit resnetv2_50x3_bit resnetv2_101x1_bit resnetv2_101x3_bit
    resnetv2_152x2_bit resnetv2_152x4_bit
    """
)
"""timm's names of models that are presets here, too."""
MODELS: dict[str, dict[str, Any]] = {
    name: {"width": 64, "block": "bottleneck", **fields}
    for name, fields in {
        **{name: preset_of(name) or {} for name in sorted(NAMED)},
        "resnet26": {"depths": (2, 2, 2, 2)},
        "resnet200": {"depths": (3, 24, 36, 3)},
    }.items()
}
"""The supported models of timm, and the fields that follow from their names."""
SAME = {"img_size": "image_size", "in_chans": "channels", "num_classes": "num_classes", "layers": "depths"}
WIDTHS = words("channels stem_chs width_factor")
HARMLESS = WIDTHS | words(
    """
    base_width block_reduce_first bottle_ratio cardinality down_kernel_size drop_block_rate drop_path_rate drop_rate stem_width
    zero_init_last
    """
)
"""Arguments that matter only in training, or that shapes show."""
FIXED: dict[str, tuple[Any, ...]] = {
    "global_pool": ("avg",), "output_stride": (32,), "avg_down": (False,), "replace_stem_pool": (False,),
    "act_layer": (None, "relu"), "norm_layer": (None,), "aa_layer": (None, ""), "block_args": (None, {}),
}  # fmt: skip
"""Arguments that are supported with these values only; ``stem_type`` only with the default of its class."""


def _reader(kind: common.Kind) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    known = Arguments(ResNetConfig, SAME, HARMLESS, FIXED | {"stem_type": ("fixed" if kind == "pre-activation" else "",)})

    def read(values: Mapping[str, Any]) -> dict[str, Any]:
        name = known_name(values, MODELS)
        if name is None:
            return {}
        if MODELS[name]["block"] != kind:
            hint = "give weights and config.json of the same model"
            raise ModelFileError(f"{name} has no {kind} blocks", where="config.json", hint=hint)
        own = own_arguments(values)
        usual = {field: value for field, value in MODELS[name].items() if field != "width" or not own.keys() & WIDTHS}
        return {**usual, **known.read(own)}

    return read


def _describe(config: ResNetConfig) -> dict[str, Any]:
    """Return timm's ``config.json``: a name, and arguments if no named model has these depths and this width."""
    fields = {"width": config.width, "block": config.block, "depths": config.depths}
    arguments: dict[str, Any] = {"in_chans": config.channels}
    name = next((name for name, fixed in MODELS.items() if fixed == fields), None)
    if name is None and config.block == "pre-activation":
        name, others = _bit(config)
        arguments |= others
    elif name is None:
        if not_torchvisions(config) or sum(config.depths) == 1:
            raise inexpressible(f"ResNet with {not_torchvisions(config) or 'a single block'}")
        name = "resnet18" if config.block == "basic" else "resnet50"
        arguments |= {"layers": list(config.depths)}
    return named(name, config, arguments, common.widths(config)[-1], global_pool="avg")


def _bit(config: ResNetConfig) -> tuple[str, dict[str, Any]]:
    """Return name and arguments of a BiT of unusual width: the narrowest named model with its depths, and smaller channels.

    timm multiplies the channels in the arguments by the factor in the name.
    """
    fitting = [
        (fixed["width"] // 64, name) for name, fixed in MODELS.items() if fixed["depths"] == config.depths and "bit" in name
    ]
    if not fitting:
        raise inexpressible(f"BiT of depths {'-'.join(map(str, config.depths))}")
    factor, name = min(fitting)
    return name, {"stem_chs": config.width // factor, "channels": [width // factor for width in common.widths(config)]}


def not_torchvisions(config: ResNetConfig) -> str:
    """Return, in a few words, a feature that torchvision's and timm's ResNet cannot have; empty if there is none."""
    if config.width != 64 or len(config.depths) != 4:
        return f"width {config.width} and {len(config.depths)} stages, instead of 64 and 4"
    return common.unusual_root(config)


def _resnet(kind: common.Kind, name: str) -> Layout:
    theirs = "layer{S}.{j}."
    numbered = list(enumerate(common.PARTS[kind], start=1))
    convs = {"shortcut.0": "downsample.0", **{f"{part}.0": f"conv{i}" for i, part in numbered}}
    norms = {"shortcut.1": "downsample.1", **{f"{part}.1": f"bn{i}" for i, part in numbered}}
    return Layout(
        name=name,
        about="timm's ResNet" + common.KINDS[kind],
        family="timm",
        reading=common.READINGS[kind],
        keys={
            **common.convolutions({"features.root.0": "conv1", **common.below(convs, theirs)}),
            **common.batch_norms({"features.root.1": "bn1", **common.below(norms, theirs)}),
            **weight_and_bias({"head.linear": "fc"}),
        },
        fields={"block": kind},
        lacks=common.unusual_root,
        colours=replace(IMAGENET, resampling="bilinear"),
        read=_reader(kind),
        describe=_describe,
        describe_data=timm_data,
    )


RESNET_BASIC = _resnet("basic", "timm-resnet-basic")
RESNET = _resnet("bottleneck", "timm-resnet")


def _torchvision(layout: Layout, name: str) -> Layout:
    return replace(
        layout, name=name, about=layout.about.replace("timm", "torchvision"), family="torchvision", lacks=not_torchvisions,
        read=None, describe=None, describe_data=None,
    )  # fmt: skip


TORCHVISION_BASIC = _torchvision(RESNET_BASIC, "torchvision-resnet-basic")
TORCHVISION = _torchvision(RESNET, "torchvision-resnet")

THEIRS = "stages.{s}.blocks.{j}."
BIT = Layout(
    name="timm-bit",
    about="timm's BiT",
    family="timm",
    reading=common.READINGS["pre-activation"],
    keys={
        **common.convolutions({"features.root.0": "stem.conv", **common.below(common.BIT_CONVOLUTIONS, THEIRS)}),
        **weight_and_bias({"features.norm.0": "norm", **common.below(common.BIT_NORMS, THEIRS)}),
        "head.linear.weight": common.Pointwise("head.fc.weight"),
        "head.linear.bias": Key("head.fc.bias"),
    },
    fields={"block": "pre-activation"},
    lacks=common.odd_groups,
    colours=Colours(crop_ratio=0.875, resampling="bilinear"),
    read=_reader("pre-activation"),
    describe=_describe,
    describe_data=timm_data,
)

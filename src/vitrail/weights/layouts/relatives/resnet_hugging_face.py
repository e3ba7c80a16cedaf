"""The layouts of transformers' ResNet and BiT."""

from vitrail.weights.keys import weight_and_bias, words
from vitrail.weights.layout import Layout
from vitrail.weights.layouts.relatives import resnet_reading as common
from vitrail.weights.normalization import IMAGENET, Colours

DESCRIBED = {"channels": "num_channels", "width": "embedding_size", "depths": "depths"}
HEAD = weight_and_bias({"head.linear": "classifier.1"})
THEIRS = "encoder.stages.{s}.layers.{j}."


def _resnet(kind: common.Kind, name: str) -> Layout:
    parts = {"shortcut": "shortcut", **{part: f"layer.{i}" for i, part in enumerate(common.PARTS[kind])}}
    convs = {f"{ours}.0": f"{theirs}.convolution" for ours, theirs in parts.items()}
    norms = {f"{ours}.1": f"{theirs}.normalization" for ours, theirs in parts.items()}
    return Layout(
        name=name,
        about="transformers' ResNet" + common.KINDS[kind],
        prefix="resnet.",
        reading=common.READINGS[kind],
        keys={
            **common.convolutions({"features.root.0": "embedder.embedder.convolution", **common.below(convs, THEIRS)}),
            **common.batch_norms({"features.root.1": "embedder.embedder.normalization", **common.below(norms, THEIRS)}),
        },
        heads=HEAD,
        fields={"block": kind},
        described=DESCRIBED,
        harmless=words("hidden_sizes"),
        fixed={
            "layer_type": (kind,),
            "hidden_act": ("relu",),
            "downsample_in_first_stage": (False,),
            "downsample_in_bottleneck": (False,),
        },
        lacks=common.unusual_root,
        extra=lambda config: {"hidden_sizes": common.widths(config), "layer_type": config.block, "hidden_act": "relu"},
        model_types=("resnet",),
        classes=("ResNetForImageClassification", "ResNetModel"),
        colours=IMAGENET,
    )


RESNET_BASIC = _resnet("basic", "resnet-basic")
RESNET = _resnet("bottleneck", "resnet")


BIT = Layout(
    name="bit",
    about="transformers' BiT",
    prefix="bit.",
    reading=common.READINGS["pre-activation"],
    keys={
        **common.convolutions({"features.root.0": "embedder.convolution", **common.below(common.BIT_CONVOLUTIONS, THEIRS)}),
        **weight_and_bias({"features.norm.0": "norm", **common.below(common.BIT_NORMS, THEIRS)}),
    },
    heads=HEAD,
    fields={"block": "pre-activation"},
    described=DESCRIBED,
    harmless=words("hidden_sizes drop_path_rate"),
    fixed={
        "layer_type": ("preactivation",),
        "hidden_act": ("relu",),
        "global_padding": (None,),
        "num_groups": (common.GROUPS,),
        "embedding_dynamic_padding": (False,),
        "output_stride": (32,),
        "width_factor": (1,),
    },
    lacks=lambda config: common.odd_groups(config) or ("more than four stages" if len(config.depths) > 4 else ""),
    # width_factor is always 1, and hidden_sizes are wide: with another factor transformers leaves stem and last norm narrow
    extra=lambda config: {
        "hidden_sizes": common.widths(config),
        "layer_type": "preactivation",
        "hidden_act": "relu",
        "width_factor": 1,
    },
    model_types=("bit",),
    classes=("BitForImageClassification", "BitModel"),
    colours=Colours(),
)

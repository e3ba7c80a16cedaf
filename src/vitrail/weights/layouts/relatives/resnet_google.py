"""The layout of Google's BiT, .npz (https://github.com/google-research/big_transfer)."""

from vitrail.weights.keys import Key, Transposed, layers
from vitrail.weights.layout import Layout
from vitrail.weights.layouts.relatives.resnet_reading import READINGS, Pointwise, below, odd_groups
from vitrail.weights.normalization import Colours

UNIT = "resnet/block{S}/unit{J:02}/"
CONVOLUTIONS = {
    "features.root.0": "resnet/root_block",
    **below({"shortcut": "a/proj", "reduce": "a", "spread.2": "b", "expand.2": "c"}, UNIT),
}
NORMS = {"features.norm.0": "resnet", **below({"activate.0": "a", "spread.0": "b", "expand.0": "c"}, UNIT)}

BIT = Layout(
    name="google-bit",
    about="Google's BiT",
    family="google",
    reading=READINGS["pre-activation"],
    keys={
        **{f"{ours}.weight": Transposed(f"{theirs}/standardized_conv2d/kernel") for ours, theirs in CONVOLUTIONS.items()},
        **layers(NORMS, "/group_norm/gamma", "/group_norm/beta"),
        "head.linear.weight": Pointwise("resnet/head/conv2d/kernel", turned=True),
        "head.linear.bias": Key("resnet/head/conv2d/bias"),
    },
    fields={"block": "pre-activation"},
    lacks=odd_groups,
    colours=Colours(resampling="bilinear"),
    suffix=".npz",
)

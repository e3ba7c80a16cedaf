"""The layouts of CvT: its authors' (https://github.com/microsoft/CvT) and transformers'."""

from collections.abc import Mapping
from typing import Any

from vitrail.errors import ModelFileError
from vitrail.models.configs.cvt import CvTConfig
from vitrail.weights.keys import Key, Shape, block, ratio_of, weight_and_bias, words
from vitrail.weights.layout import Layout, Reading, Size
from vitrail.weights.layouts.hugging_face.vit import OUTPUT
from vitrail.weights.layouts.relatives.resnet_reading import batch_norms
from vitrail.weights.layouts.shapes import HEAD_DIM, depths_of
from vitrail.weights.normalization import IMAGENET

STAGE = "stages.{s}"
BLOCK = "stages.{s}.blocks.{j}"
PATCH = "stages.{}.embedding.projection.weight"
USUAL = {7: (4, 2), 3: (2, 1)}
"""Stride and padding of all published models, by the side of a patch."""


def _fields(shapes: Mapping[str, Shape], known: Mapping[str, Any], image_size: Size | None, layout: Layout) -> dict[str, Any]:
    """Return the configuration fields for parameters of these shapes, which show the images' channels but not their size."""
    depths = depths_of(shapes)
    patches = [shapes.get(PATCH.format(stage), ()) for stage in range(len(depths))]
    hidden = shapes.get("stages.0.blocks.0.mlp.layer.expand.weight", ())
    if len(hidden) != 2 or any(len(patch) != 4 for patch in patches):
        raise ModelFileError("no stages of a CvT", where="weights")
    dims, sides = tuple(patch[0] for patch in patches), tuple(patch[2] for patch in patches)
    head = shapes.get("head.linear.weight")
    return {
        "image_size": image_size or (224, 224),
        **_usual(dims, sides, known),
        **known,
        "channels": patches[0][1],
        "dims": dims,
        "depths": depths,
        "patch_sizes": sides,
        "mlp_ratio": ratio_of(hidden[0], hidden[1]),
        "num_classes": head[0] if head else 0,
    }


def _usual(dims: tuple[int, ...], sides: tuple[int, ...], known: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if all(side in USUAL for side in sides):
        fields |= {"strides": tuple(USUAL[side][0] for side in sides), "paddings": tuple(USUAL[side][1] for side in sides)}
    if all(dim % HEAD_DIM == 0 for dim in dims):
        fields["heads"] = tuple(dim // HEAD_DIM for dim in dims)
    for name in ("heads", "strides", "paddings"):
        if name not in known and name not in fields:
            hint = f"put the model's config.json beside the weights, or pass {name}=… in Python"
            raise ModelFileError(f"the weights do not show {name} of the stages", where="weights", hint=hint)
    return fields


READING = Reading(
    architecture="CvT",
    fields=_fields,
    any_size=True,
    optional=r".*\.num_batches_tracked",  # it does not change the output
    not_in_file=("activation", "heads", "strides", "paddings"),
)


def _keys(layers: Mapping[str, str], attention: str, theirs: Mapping[str, tuple[str, str, str]]) -> dict[str, Key]:
    """Return the rows of all layers; queries, keys and values have a linear layer, a convolution and a norm each."""
    keys = weight_and_bias(layers)
    for kind, (linear, convolution, norm) in theirs.items():
        ours = f"{BLOCK}.attention.layer"
        keys |= weight_and_bias({f"{ours}.{kind}": f"{attention}.{linear}"})
        keys |= {f"{ours}.convolved.{kind}.convolution.weight": Key(f"{attention}.{convolution}.weight")}
        keys |= batch_norms({f"{ours}.convolved.{kind}.norm": f"{attention}.{norm}"})
    return keys


THEIR_BLOCK = "stage{s}.blocks.{j}"
ORIGINAL = Layout(
    name="cvt-original",
    written=False,
    about="the authors' CvT",
    reading=READING,
    keys={
        f"{STAGE}.class_token": Key("stage{s}.cls_token"),
        **block(THEIR_BLOCK, "norm1", "", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2", ours=BLOCK),
        **_keys(
            {
                f"{STAGE}.embedding.projection": "stage{s}.patch_embed.proj",
                f"{STAGE}.embedding.norm": "stage{s}.patch_embed.norm",
                "norm": "norm",
                "head.linear": "head",
            },
            f"{THEIR_BLOCK}.attn",
            {
                kind: (f"proj_{kind[0]}", f"conv_proj_{kind[0]}.conv", f"conv_proj_{kind[0]}.bn")
                for kind in ("query", "key", "value")
            },
        ),
    },
    fields={"activation": "quick-gelu", "norm_eps": 1e-5},
    colours=IMAGENET,
)

THEIR_STAGE = "cvt.encoder.stages.{s}"
THEIR_LAYER = f"{THEIR_STAGE}.layers.{{j}}"
THEIR_CONVOLUTION = "convolution_projection_{}.convolution_projection"


def _extra(config: CvTConfig) -> dict[str, Any]:
    stages = len(config.depths)
    alike = {
        "mlp_ratio": config.mlp_ratio, "drop_rate": config.dropout, "attention_drop_rate": config.attention_dropout,
        "qkv_bias": True, "qkv_projection_method": "dw_bn", "kernel_qkv": 3, **ALIKE,
    }  # fmt: skip
    last = {"cls_token": (False, True), "drop_path_rate": (0.0, config.stochastic_depth)}
    return {
        **{name: [value] * stages for name, value in alike.items()},
        **{name: [before] * (stages - 1) + [value] for name, (before, value) in last.items()},
    }


ALIKE = {"stride_q": 1, "stride_kv": 2, "padding_q": 1, "padding_kv": 1}
"""Entries of ``config.json`` that neither keys nor shapes show; they are the same in all stages."""


def _lacks(config: CvTConfig) -> str:
    """Return a few words if a stage has fewer blocks than its number: transformers indexes drop paths by the stage's number."""
    short = [stage for stage, depth in enumerate(config.depths) if depth <= stage]
    return f"stage {short[0] + 1} with fewer than {short[0] + 1} blocks: {config.depths[short[0]]}" if short else ""


HUGGING_FACE = Layout(
    name="cvt",
    about="transformers' CvT",
    reading=READING,
    keys={
        f"{STAGE}.class_token": Key(f"{THEIR_STAGE}.cls_token"),
        **block(THEIR_LAYER, "layernorm_before", "", OUTPUT, "layernorm_after", "intermediate.dense", "output.dense", ours=BLOCK),
        **_keys(
            {
                f"{STAGE}.embedding.projection": f"{THEIR_STAGE}.embedding.convolution_embeddings.projection",
                f"{STAGE}.embedding.norm": f"{THEIR_STAGE}.embedding.convolution_embeddings.normalization",
                "norm": "layernorm",
                "head.linear": "classifier",
            },
            f"{THEIR_LAYER}.attention.attention",
            {
                kind: (
                    f"projection_{kind}",
                    f"{THEIR_CONVOLUTION.format(kind)}.convolution",
                    f"{THEIR_CONVOLUTION.format(kind)}.normalization",
                )
                for kind in ("query", "key", "value")
            },
        ),
    },
    aliases={r"^encoder\.": "cvt.encoder."},  # keys of the class without a last norm: only the norm is then reported missing
    fields={"activation": "gelu", "norm_eps": 1e-5},
    described={
        "channels": "num_channels", "dims": "embed_dim", "depths": "depth", "heads": "num_heads", "patch_sizes": "patch_sizes",
        "strides": "patch_stride", "paddings": "patch_padding",
    },
    harmless=words(
        """
        attention_drop_rate cls_token drop_path_rate drop_rate kernel_qkv layer_norm_eps mlp_ratio qkv_bias
        qkv_projection_method
        """
    ),
    fixed={name: tuple([value] * stages for stages in range(1, 9)) for name, value in ALIKE.items()},
    lacks=_lacks,
    extra=_extra,
    model_types=("cvt",),
    classes=("CvtForImageClassification",) * 2,  # the other class has no last norm
    colours=IMAGENET,
)  # fmt: skip

"""transformers' SegFormer (Xie et al. 2021, https://arxiv.org/abs/2105.15203): a PVT v2 with a light decoder.

Its encoder (MiT) computes what PVT v2 computes with convolutions that make the grid of keys and values coarser. Only the epsilon
differs: transformers has 1e-5 in all norms, whatever ``layer_norm_eps`` in ``config.json`` states.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from vitrail.models.configs.pvt_v2 import PVTv2Config
from vitrail.models.configs.segmenter import SegmenterConfig
from vitrail.weights.formats.safe_files import PALETTE
from vitrail.weights.keys import Key, Shape, weight_and_bias, within, words
from vitrail.weights.layout import Layout
from vitrail.weights.layouts.relatives import pvt_reading as pvt
from vitrail.weights.layouts.relatives.pvt_v2 import EMBEDDING, READING
from vitrail.weights.layouts.relatives.resnet_reading import batch_norms, convolutions
from vitrail.weights.layouts.segmenters.segmenter_reading import BACKBONE, COLOURS, reading_around
from vitrail.weights.model_folder.description import describe, described

EPSILONS = {"norm_eps": 1e-5, "grid_norm_eps": 1e-5}
HEAD = {"head_dim": "decoder_hidden_size", "head_dropout": "classifier_dropout_prob"}
DECODER = {"decoder_hidden_size": 256, "classifier_dropout_prob": 0.1}
"""Entries of the decoder that ``config.json`` may omit."""
ENCODER = Layout(
    name="mit",
    about="transformers' SegFormer",
    reading=READING,
    keys={
        **weight_and_bias(
            {
                f"{EMBEDDING}.projection": "encoder.patch_embeddings.{s}.proj",
                f"{EMBEDDING}.norm": "encoder.patch_embeddings.{s}.layer_norm",
                "stages.{s}.norm": "encoder.layer_norm.{s}",
            }
        ),
        **pvt.blocks(
            "encoder.block.{s}.{j}",
            norm1="layer_norm_1",
            q="attention.self.query",
            kv=("attention.self.key", "attention.self.value"),
            proj="attention.output.dense",
            sr="attention.self.sr",
            sr_norm="attention.self.layer_norm",
            norm2="layer_norm_2",
            fc1="mlp.dense1",
            dwconv="mlp.dwconv.dwconv",
            fc2="mlp.dense2",
        ),
    },
    defaults={
        "hidden_sizes": [32, 64, 160, 256], "depths": [2, 2, 2, 2], "num_attention_heads": [1, 2, 5, 8],
        "sr_ratios": [8, 4, 2, 1], "mlp_ratios": [4, 4, 4, 4], "patch_sizes": [7, 3, 3, 3], "strides": [4, 2, 2, 2],
    },
    described={
        **{ours: theirs for ours, theirs in pvt.DESCRIBED.items() if ours not in ("image_size", "qkv_bias", *EPSILONS)},
        "reductions": "sr_ratios", "strides": "strides",
    },
    harmless=words(f"downsampling_rates image_size layer_norm_eps num_encoder_blocks {' '.join((*HEAD.values(), *PALETTE))}"),
    fixed={"hidden_act": ("gelu",), "reshape_last_stage": (True,)},
    extra=pvt.for_transformers,
    model_types=("segformer",),
)  # fmt: skip
"""The encoder, and the entries of ``config.json``, which has no sections."""


@dataclass(frozen=True)
class Linear(Key):
    """One of our 1×1 convolutions that they store as a linear layer: (out, in)."""

    def shape(self, shapes: list[Shape]) -> Shape:
        outputs, inputs = shapes[0]
        return outputs, inputs, 1, 1

    def read(self, tensors: list[Tensor], config: Any) -> Tensor:
        return tensors[0][..., None, None]

    def write(self, tensor: Tensor, config: Any) -> list[Tensor]:
        return [tensor.flatten(1)]


def _read(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return our fields from ``config.json``; raises `ModelFileError` for entries that are not supported."""
    if not values:
        return {}
    own = PVTv2Config.read({**EPSILONS, **described(values, ENCODER), "num_classes": 0}, where="config")
    stated = {**DECODER, **values}
    decoder = {ours: SegmenterConfig.read_field(ours, stated[theirs], where="config") for ours, theirs in HEAD.items()}
    return {**decoder, "backbone": own}


def _describe(config: SegmenterConfig) -> dict[str, Any]:
    decoder = {theirs: getattr(config, ours) for ours, theirs in HEAD.items()}
    return {**describe(config.backbone, ENCODER), "architectures": [SEGFORMER.classes[0]], **decoder}


def _lacks(config: SegmenterConfig) -> str:
    """Return a few words for another PVT v2 than SegFormer's; else an empty text."""
    own: Any = config.backbone
    return "pooled keys and values" if own.pooled else "" if own.qkv_bias else "projections to queries and keys without a bias"


SEGFORMER = Layout(
    name="segformer",
    about="transformers' SegFormer",
    reading=reading_around(READING, "mlp", EPSILONS),
    keys={
        **within(ENCODER.keys, BACKBONE, "segformer."),
        **weight_and_bias({"decoder.projections.{s}": "decode_head.linear_c.{s}.proj", "classifier": "decode_head.classifier"}),
        "decoder.projections.{s}.weight": Linear("decode_head.linear_c.{s}.proj.weight"),
        **convolutions({"decoder.fuse": "decode_head.linear_fuse"}),
        **batch_norms({"decoder.norm": "decode_head.batch_norm"}),
    },
    described=HEAD,
    read=_read,
    lacks=_lacks,
    model_types=("segformer",),
    classes=("SegformerForSemanticSegmentation", ""),
    describe=_describe,
    colours=COLOURS,
)

"""vit-pytorch's ViT (https://github.com/lucidrains/vit-pytorch), of the current and earlier versions."""

import math
import re
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitrail.models.configs.vit import ViTConfig
from vitrail.weights.keys import Key, Shape, block, weight_and_bias
from vitrail.weights.layouts.vit.keys import Flat, head_width, unusual_parts
from vitrail.weights.layouts.vit.reading import ViTLayout

BLOCK = "transformer.layers.{i}"


@dataclass(frozen=True)
class FlatVector(Key):
    """A vector with one number for each value of a flattened patch, (P_h · P_w · C,); ours has channels first."""

    def read(self, tensors: list[Tensor], config: ViTConfig) -> Tensor:
        return tensors[0].unflatten(0, (*config.patch_size, config.channels)).permute(2, 0, 1).flatten()

    def write(self, tensor: Tensor, config: ViTConfig) -> list[Tensor]:
        return [tensor.reshape(config.channels, *config.patch_size).permute(1, 2, 0).flatten()]


@dataclass(frozen=True)
class Row(Key):
    """A token as a table of one row. vit-pytorch's models without a class token have the same key with zero rows."""

    def shape(self, shapes: list[Shape]) -> Shape:
        rows, dim = shapes[0]
        return rows, dim


@dataclass(frozen=True)
class QueriesOfTheirTime(Key):
    """Queries, keys and values of versions that divided scores by √D, not √D_h; the queries are scaled to correct for it."""

    def read(self, tensors: list[Tensor], config: ViTConfig) -> Tensor:
        query, *rest = tensors[0].chunk(3)
        return torch.cat([query * math.sqrt(head_width(config) / config.dim), *rest])


TOKENS = {"class_token": Key("cls_token", ndim=3), "position.embedding": Key("pos_embedding", ndim=3)}
NORMED_PATCHES = {
    "embedding.patch_norm.weight": FlatVector("to_patch_embedding.1.weight"),
    "embedding.patch_norm.bias": FlatVector("to_patch_embedding.1.bias"),
    "embedding.projection.weight": Flat("to_patch_embedding.2.weight"),
    "embedding.projection.bias": Key("to_patch_embedding.2.bias"),
    **weight_and_bias({"embedding.token_norm": "to_patch_embedding.3"}),
}
PATCHES = {
    "embedding.projection.weight": Flat("to_patch_embedding.1.weight"),
    "embedding.projection.bias": Key("to_patch_embedding.1.bias"),
}
WRAPPED = {
    "blocks.{i}.attention.layer.qkv.weight": Key(f"{BLOCK}.0.fn.to_qkv.weight"),
    **block(BLOCK, "0.norm", "", "0.fn.to_out.0", "1.norm", "1.fn.net.0", "1.fn.net.3"),
    **weight_and_bias({"norm": "mlp_head.0", "head.linear": "mlp_head.1"}),
}
"""Rows of blocks whose layers are wrapped in a norm module, and of a head that begins with the last norm."""
RESIDUAL = {name: replace(key, name=re.sub(r"\.([01])\.(norm|fn)", r".\1.fn.\2", key.name)) for name, key in WRAPPED.items()}
"""The same rows where layers are also wrapped in a module for the residual sum."""
NORM_IN_THE_HEAD = {
    **{f"norm.{part}": Key(f"linear_head.0.{part}", tells={"final_norm": "pooled"}) for part in ("weight", "bias")},
    **weight_and_bias({"head.linear": "linear_head.1"}),
}
FIELDS = {"norm_eps": 1e-5, "head_dim": 64}


def _lacks(config: ViTConfig) -> str:
    if config.heads == 1 and head_width(config) == config.dim:
        return "output projection after a single attention head of width dim"
    return unusual_parts(config)


NORMED = ("position.embedding", "embedding.patch_norm.weight")
VIT_PYTORCH = ViTLayout(
    name="vit-pytorch",
    about="vit-pytorch",
    keys={
        "class_token": Row("cls_token", ndim=2),
        "position.embedding": Key("pos_embedding"),
        **NORMED_PATCHES,
        "blocks.{i}.attention.layer.qkv.weight": Key(f"{BLOCK}.0.to_qkv.weight"),
        **block(BLOCK, "0.norm", "", "0.to_out.0", "1.net.0", "1.net.1", "1.net.4"),
        **weight_and_bias({"norm": "transformer.norm", "head.linear": "mlp_head"}),
    },
    needs=NORMED,
    fields=FIELDS,
    lacks=_lacks,
    empty={"class_token": "cls_token"},
)
SIMPLE_VIT = ViTLayout(
    name="simple-vit",
    about="vit-pytorch's SimpleViT",
    keys={
        **NORMED_PATCHES,
        "blocks.{i}.attention.layer.qkv.weight": Key(f"{BLOCK}.0.to_qkv.weight"),
        "blocks.{i}.attention.layer.output.weight": Key(f"{BLOCK}.0.to_out.weight"),
        **block(BLOCK, "0.norm", "", "", "1.net.0", "1.net.1", "1.net.3"),
        **weight_and_bias({"norm": "transformer.norm", "head.linear": "linear_head"}),
    },
    older=NORM_IN_THE_HEAD,  # up to version 1.2
    needs=("embedding.token_norm.weight", "head.linear.weight"),
    fields={**FIELDS, "pool": "mean", "position": "sincos-2d-simple"},
)
SIMPLE_VIT_EARLY = replace(
    SIMPLE_VIT,
    name="simple-vit-early",
    written=False,
    about="vit-pytorch's first SimpleViT",
    keys={name: key for name, key in SIMPLE_VIT.keys.items() if not name.startswith("embedding.")} | PATCHES | NORM_IN_THE_HEAD,
    older={},
    needs=("head.linear.weight",),
)
VIT_PYTORCH_1_0 = ViTLayout(
    name="vit-pytorch-1.0",
    written=False,
    about="vit-pytorch 1.0",
    keys={**TOKENS, **NORMED_PATCHES, **WRAPPED},
    needs=NORMED,
    fields=FIELDS,
    pools=("class",),
    lacks=_lacks,
)
VIT_PYTORCH_0_16 = ViTLayout(
    name="vit-pytorch-0.16",
    written=False,
    about="vit-pytorch 0.16 to 0.40",
    keys={**TOKENS, **PATCHES, **WRAPPED},
    fields=FIELDS,
    pools=("class",),
    lacks=_lacks,
)
VIT_PYTORCH_EARLY = ViTLayout(
    name="vit-pytorch-early",
    written=False,
    about="vit-pytorch 0.6 to 0.11",
    twin="vit-pytorch-0.5",
    keys={
        **TOKENS,
        "embedding.projection.weight": Flat("patch_to_embedding.weight"),
        "embedding.projection.bias": Key("patch_to_embedding.bias"),
        **RESIDUAL,
    },
    older=PATCHES,  # versions 0.7 to 0.11
    fields=FIELDS,
    lacks=_lacks,
    pools=("class",),  # the mean in these versions includes the class token
)
VIT_PYTORCH_0_5 = replace(
    VIT_PYTORCH_EARLY,
    name="vit-pytorch-0.5",
    about="vit-pytorch 0.5",
    twin="",
    keys={
        **VIT_PYTORCH_EARLY.keys,
        "blocks.{i}.attention.layer.qkv.weight": QueriesOfTheirTime(f"{BLOCK}.0.fn.fn.to_qkv.weight"),
    },
)
"""The layout of version 0.5. Its keys are those of 0.6, so that files are read as 0.6 unless the user names this layout."""

"""Google's Flax weights, .npz (https://github.com/google-research/vision_transformer): ViT, and hybrids with a ResNet."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitrail.models.configs.vit import ViTConfig
from vitrail.weights.keys import Joined, Key, Shape, Transposed, layers
from vitrail.weights.layouts.vit.keys import not_plain_or_no_bias
from vitrail.weights.layouts.vit.reading import ViTLayout
from vitrail.weights.normalization import Colours

BLOCK = "Transformer/encoderblock_{i}"
ATTENTION = f"{BLOCK}/MultiHeadDotProductAttention_1"


@dataclass(frozen=True)
class Heads(Joined):
    """Queries, keys and values: each a kernel (D, heads, D_h) and a bias (heads, D_h)."""

    def shape(self, shapes: list[Shape]) -> Shape:
        return (sum(shape[-2] * shape[-1] for shape in shapes), *shapes[0][:-2])

    def facts(self, shapes: list[Shape]) -> dict[str, Any]:
        return {"heads": shapes[0][-2]}

    def read(self, tensors: list[Tensor], config: ViTConfig) -> Tensor:
        return torch.cat([tensor.flatten(-2).movedim(-1, 0) for tensor in tensors])

    def write(self, tensor: Tensor, config: ViTConfig) -> list[Tensor]:
        return [part.movedim(0, -1).unflatten(-1, (config.heads, -1)) for part in tensor.chunk(len(self.names))]


@dataclass(frozen=True)
class Output(Key):
    """The kernel of the attention's output projection, (heads, D_h, D)."""

    def shape(self, shapes: list[Shape]) -> Shape:
        heads, width, dim = shapes[0]
        return (dim, heads * width)

    def read(self, tensors: list[Tensor], config: ViTConfig) -> Tensor:
        return tensors[0].flatten(0, 1).T.contiguous()

    def write(self, tensor: Tensor, config: ViTConfig) -> list[Tensor]:
        return [tensor.T.unflatten(0, (config.heads, -1))]


@dataclass(frozen=True)
class Channels(Key):
    """A vector that some files store as (1, 1, 1, C)."""

    def shape(self, shapes: list[Shape]) -> Shape:
        return shapes[0][-1:] if set(shapes[0][:-1]) <= {1} else shapes[0]


def _qkv(kind: str) -> Heads:
    first, *rest = [f"{ATTENTION}/{part}/{kind}" for part in ("query", "key", "value")]
    return Heads(first, rest=tuple(rest))


RESNET = "embedding.resnet.stages.{s}.{j}"
UNIT = "block{S}/unit{J}"

GOOGLE = ViTLayout(
    name="google",
    about="Google's Flax",
    lacks=not_plain_or_no_bias,
    keys={
        "class_token": Key("cls", ndim=3),
        "position.embedding": Key("Transformer/posembed_input/pos_embedding", ndim=3),
        "blocks.{i}.attention.layer.qkv.weight": _qkv("kernel"),
        "blocks.{i}.attention.layer.qkv.bias": _qkv("bias"),
        "blocks.{i}.attention.layer.output.weight": Output(f"{ATTENTION}/out/kernel"),
        "blocks.{i}.attention.layer.output.bias": Key(f"{ATTENTION}/out/bias"),
        **layers(
            {
                "embedding.projection": "embedding",
                "blocks.{i}.mlp.layer.expand": f"{BLOCK}/MlpBlock_3/Dense_0",
                "blocks.{i}.mlp.layer.contract": f"{BLOCK}/MlpBlock_3/Dense_1",
                "head.hidden": "pre_logits",
                "head.linear": "head",
            },
            "/kernel",
            "/bias",
            Transposed,
        ),
        **layers(
            {
                "blocks.{i}.attention.norm": f"{BLOCK}/LayerNorm_0",
                "blocks.{i}.mlp.norm": f"{BLOCK}/LayerNorm_2",
                "norm": "Transformer/encoder_norm",
                "embedding.resnet.root.1": "gn_root",
                f"{RESNET}.shortcut.1": f"{UNIT}/gn_proj",
                f"{RESNET}.reduce.1": f"{UNIT}/gn1",
                f"{RESNET}.spread.1": f"{UNIT}/gn2",
                f"{RESNET}.expand.1": f"{UNIT}/gn3",
            },
            "/scale",
            "/bias",
            Channels,
            Channels,
        ),
        "embedding.resnet.root.0.weight": Transposed("conv_root/kernel"),
        f"{RESNET}.shortcut.0.weight": Transposed(f"{UNIT}/conv_proj/kernel"),
        f"{RESNET}.reduce.0.weight": Transposed(f"{UNIT}/conv1/kernel"),
        f"{RESNET}.spread.0.weight": Transposed(f"{UNIT}/conv2/kernel"),
        f"{RESNET}.expand.0.weight": Transposed(f"{UNIT}/conv3/kernel"),
    },
    aliases={r"^(opt/target|params)/": ""},
    fields={"norm_eps": 1e-6},
    colours=Colours(crop_ratio=0.875, resampling="bilinear"),
    suffix=".npz",
)

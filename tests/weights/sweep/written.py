"""Random configurations of our own through every writer."""

import random
from pathlib import Path
from typing import get_args

import torch

from sweep.judging import Asked, Findings, randomized
from sweep.writing import write
from vitrail.data.images.preparation import Preparation
from vitrail.errors import ConfigError
from vitrail.models.configs.base import ImageConfig
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.registry import build
from vitrail.weights.layouts import LAYOUTS
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.model_folder.trained import FORMAT


def choices(field: str) -> list[str]:
    """All values of a field of the configuration."""
    return list(get_args(ViTConfig.model_fields[field].annotation))


SMALL = {"image_size": 40, "patch_size": 8, "num_classes": 5, "dim": 64, "depth": 2, "heads": 2, "mlp_dim": 128}
KINDS: dict[str, dict] = {
    "ViT": {},
    "ViT of transformers": {"norm_eps": 1e-12},
    "DeiT": {"distillation_token": True},
    "DeiT III": {"class_position": False, "layer_scale": 1e-6},
    "mean": {"pool": "mean"},
    "mean before the norm": {"pool": "mean", "final_norm": "pooled"},
    "DINO": {"num_classes": 0},
    "DINOv2": {"num_classes": 0, "layer_scale": 1.0},
    "DINOv2 with registers and SwiGLU": {"num_classes": 0, "layer_scale": 1.0, "registers": 4, "mlp": "swiglu", "mlp_dim": 176},
    "CLIP": {"norm_eps": 1e-5, "embedding_norm": "tokens", "mlp": "quick-gelu", "head": "projection"},
    "SigLIP": {"num_classes": 0, "pool": "attention", "mlp": "gelu-tanh"},
    "vit-pytorch": {"norm_eps": 1e-5, "embedding_norm": "patches", "qkv_bias": False, "head_dim": 64},
    "vit-pytorch, early": {"norm_eps": 1e-5, "qkv_bias": False, "head_dim": 64},
    "DINOv3": {
        "num_classes": 0,
        "layer_scale": 1.0,
        "registers": 4,
        "position": "rotary",
        "rotary_coordinates": "unit",
        "norm_eps": 1e-5,
    },
    "EVA-02": {
        "position": "learned-1d+rotary",
        "rotary_base": 1e4,
        "rotary_grid": 16,
        "mlp": "swiglu",
        "mlp_norm": True,
        "pool": "mean",
        "class_token": True,
        "final_norm": "pooled",
    },
    "BEiT": {
        "position": "relative-per-block",
        "layer_scale": 0.1,
        "pool": "mean",
        "class_token": True,
        "final_norm": "pooled",
    },
    "AIMv2": {
        "norm_kind": "rms",
        "norm_eps": 1e-5,
        "mlp": "swiglu",
        "qkv_bias": False,
        "linear_bias": False,
        "pool": "mean",
        "embedding_norm": "projected",
    },
    "hybrid": {"embedding": "resnet", "resnet_depths": (1, 1), "resnet_width": 32},
}
"""What the layouts are for; a configuration far from all of them would be refused by each at once."""
CHOICES: dict[str, list] = {
    "image_size": [(40, 48), 48, 44],
    "patch_size": [4, (8, 4)],
    "channels": [1, 3],
    "num_classes": [0, 5],
    "dim": [64, 96],
    "depth": [1, 2],
    "heads": [1, 2, 4],
    "head_dim": [None, 16, 64],
    "mlp_dim": [128, 96, 100],
    "embedding": choices("embedding"),
    "resnet_depths": [(), (1,), (1, 1)],
    "resnet_width": [32, 64],
    "resnet_root": ["imagenet", "cifar", "whitened", "whitened-valid"],
    "resnet_block": ["bottleneck", "pooled"],
    "position": choices("position"),
    "rotary_base": [100.0, 1e4],
    "rotary_coordinates": ["patches", "unit"],
    "rotary_grid": [None, 4],
    "rotary_offset": [0.0, 1.0],
    "crop_remainder": [False, True],
    "pool_heads": [None, 4],
    "pool_mlp_dim": [None, 96],
    "norm": ["pre", "post", "residual-post"],
    "norm_kind": ["layer", "rms"],
    "attention_norm": [False, True],
    "mlp_norm": [False, True],
    "linear_bias": [True, False],
    "embedding_norm": ["none", "tokens", "projected", "patches"],
    "pool": ["class", "mean", "attention", "attention-patches", "class+mean"],
    "class_token": [False, True],
    "distillation_token": [False, True],
    "class_position": [True, False],
    "final_norm": ["tokens", "pooled", "none"],
    "head": ["linear", "mlp", "lecture", "projection"],
    "mlp": ["gelu", "gelu-tanh", "quick-gelu", "swiglu"],
    "block": ["sequential", "parallel"],
    "registers": [0, 1, 3],
    "qkv_bias": [True, False],
    "qk_norm": [False, True],
    "layer_scale": [None, 1e-4, 1.0],
    "dropout": [0.0, 0.1],
    "attention_dropout": [0.0, 0.1],
    "head_dropout": [0.0, 0.1],
    "patch_dropout": [0.0, 0.1],
    "stochastic_depth": [0.0, 0.1],
    "token_merging": [0, 2],
    "norm_eps": [1e-6, 1e-5, 1e-12, 1e-3],
}


def names(count: int) -> list[str]:
    """So many configurations."""
    kinds = [*KINDS]
    return [f"{number} {kind}" for number, kind in zip(range(count), kinds * (count // len(kinds) + 1), strict=False)]


def drawn(name: str) -> ImageConfig:
    """A valid configuration: a kind that a layout is for, with up to four fields drawn anew."""
    chance, kind = random.Random(name), name.partition(" ")[2]
    while True:
        fields = {**SMALL, **KINDS[kind]}
        for field in chance.sample(list(CHOICES), chance.randrange(5)):
            fields[field] = chance.choice(CHOICES[field])
        try:
            config = ViTConfig(**fields)
            with torch.device("meta"):
                build(config)
            return config
        except (ValueError, ConfigError):  # a combination that there is not
            continue


def judge(name: str, folder: Path) -> Findings:
    """Write a random model in every layout."""
    config = drawn(name)
    fields = config.model_dump(exclude_defaults=True)
    told = " ".join(f"{field}={value}".replace(" ", "") for field, value in fields.items() if SMALL.get(field) != value)
    result = Findings("written", f"{name}: {told}")
    ours = TrainedModel(
        randomized(build(config)),
        [str(i) for i in range(config.num_classes)] if getattr(config, "head", "") != "projection" else [],
        Preparation.standard(config.image_size, config.channels),
    ).eval()
    asked = Asked(ours, config.image_size, config.channels)
    for layout in (None, FORMAT, *(name for name, layout in LAYOUTS.items() if layout.written)):
        write(result, ours, layout, folder, asked)
    return result

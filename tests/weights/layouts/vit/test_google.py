"""Google's .npz files, held to timm's reading of them."""

import numpy as np
import pytest
import timm
import torch
from timm.models.vision_transformer import VisionTransformer

from vitrail.weights.convert import convert
from vitrail.weights.reference import from_pretrained

SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 128, "depth": 2, "num_heads": 4, "num_classes": 5, "mlp_ratio": 2}


def flax(model: torch.nn.Module, heads: int, width: int) -> dict[str, torch.Tensor]:
    """A state dict of timm's under Google's names and in Google's shapes, written out by hand."""
    state, result = model.state_dict(), {}

    def linear(name: str, ours: str) -> None:
        result[f"{name}/kernel"], result[f"{name}/bias"] = state[f"{ours}.weight"].T, state[f"{ours}.bias"]

    def norm(name: str, ours: str) -> None:
        result[f"{name}/scale"], result[f"{name}/bias"] = state[f"{ours}.weight"], state[f"{ours}.bias"]

    result["cls"] = state["cls_token"]
    result["Transformer/posembed_input/pos_embedding"] = state["pos_embed"]
    result["embedding/kernel"] = state["patch_embed.proj.weight"].permute(2, 3, 1, 0)
    result["embedding/bias"] = state["patch_embed.proj.bias"]
    for i in range(len(model.blocks)):
        theirs, ours = f"Transformer/encoderblock_{i}", f"blocks.{i}"
        norm(f"{theirs}/LayerNorm_0", f"{ours}.norm1")
        norm(f"{theirs}/LayerNorm_2", f"{ours}.norm2")
        linear(f"{theirs}/MlpBlock_3/Dense_0", f"{ours}.mlp.fc1")
        linear(f"{theirs}/MlpBlock_3/Dense_1", f"{ours}.mlp.fc2")
        attention = f"{theirs}/MultiHeadDotProductAttention_1"
        parts = zip(state[f"{ours}.attn.qkv.weight"].chunk(3), state[f"{ours}.attn.qkv.bias"].chunk(3), strict=True)
        for part, (weight, bias) in zip(("query", "key", "value"), parts, strict=True):
            result[f"{attention}/{part}/kernel"] = weight.T.reshape(-1, heads, width)
            result[f"{attention}/{part}/bias"] = bias.reshape(heads, width)
        result[f"{attention}/out/kernel"] = state[f"{ours}.attn.proj.weight"].T.reshape(heads, width, -1)
        result[f"{attention}/out/bias"] = state[f"{ours}.attn.proj.bias"]
    norm("Transformer/encoder_norm", "norm")
    linear("head", "head")
    if hasattr(model.patch_embed, "backbone"):
        backbone = "patch_embed.backbone"
        result["conv_root/kernel"] = state[f"{backbone}.stem.conv.weight"].permute(2, 3, 1, 0)
        norm("gn_root", f"{backbone}.stem.norm")
        for s, stage in enumerate(model.patch_embed.backbone.stages):
            for j, block in enumerate(stage.blocks):
                unit, ours = f"block{s + 1}/unit{j + 1}", f"{backbone}.stages.{s}.blocks.{j}"
                rows = [(f"conv{n}", f"gn{n}", f"conv{n}", f"norm{n}") for n in (1, 2, 3)]
                if block.downsample is not None:
                    rows.append(("conv_proj", "gn_proj", "downsample.conv", "downsample.norm"))
                for conv, group, our_conv, our_norm in rows:
                    result[f"{unit}/{conv}/kernel"] = state[f"{ours}.{our_conv}.weight"].permute(2, 3, 1, 0)
                    norm(f"{unit}/{group}", f"{ours}.{our_norm}")
    return {name: tensor.contiguous() for name, tensor in result.items()}


def test_logits_are_those_of_timms_reading(randomized, kept, recognised, agree):
    file = kept(flax(randomized(VisionTransformer(**SMALL)), 4, 32), ".npz")
    theirs = VisionTransformer(**SMALL).eval()
    theirs.load_pretrained(str(file))
    ours = recognised(file, "Google's Flax")
    assert ours.config.heads == 4
    agree(ours, theirs)


@pytest.mark.parametrize("size", [(48, 48), (24, 24), (32, 64)], ids=str)
def test_at_another_resolution_too(size, randomized, kept, recognised, agree):
    file = kept(flax(randomized(VisionTransformer(**SMALL)), 4, 32), ".npz")
    theirs = VisionTransformer(**SMALL).eval()
    theirs.load_pretrained(str(file))
    theirs.set_input_size(size)
    agree(recognised(file, "Google's Flax", image_size=size), theirs, size=size)


@pytest.mark.parametrize("prefix", ["opt/target/", "params/"])
def test_the_wrappers_of_training_are_known(prefix, randomized, kept, recognised, agree):
    theirs = randomized(VisionTransformer(**SMALL))
    state = {f"{prefix}{name}": tensor for name, tensor in flax(theirs, 4, 32).items()}
    agree(recognised(kept(state, ".npz"), "Google's Flax"), theirs)


def hybrid() -> torch.nn.Module:
    model = timm.create_model("vit_base_r50_s16_224", img_size=64, num_classes=5, depth=1, embed_dim=128, num_heads=4)
    for name, parameter in model.named_parameters():  # convolutions stay as large as they are: so deep a net amplifies rounding
        if parameter.ndim < 4:
            torch.nn.init.normal_(parameter, mean=float(parameter.ndim == 1 and name.endswith("weight")), std=0.02)
    return model


def test_the_hybrid_with_a_resnet_50_is_read(kept, recognised, agree):
    theirs = hybrid().eval()
    state = flax(theirs, 4, 32)
    state["gn_root/scale"] = state["gn_root/scale"].reshape(1, 1, 1, -1)  # as some of the files have it
    ours = recognised(kept(state, ".npz"), "Google's Flax")
    assert ours.config.resnet_depths == (3, 4, 9) and ours.config.patch_size == (16, 16)
    agree(ours, theirs, size=(64, 64))


def test_what_is_written_is_read_by_timm(randomized, kept, tmp_path, agree):
    theirs = randomized(VisionTransformer(**SMALL))
    convert(from_pretrained(kept(flax(theirs, 4, 32), ".npz")), tmp_path / "out.npz", layout="google")
    again = VisionTransformer(**SMALL).eval()
    again.load_pretrained(str(tmp_path / "out.npz"))
    agree(again, theirs)
    with np.load(tmp_path / "out.npz") as arrays:
        assert arrays["Transformer/encoderblock_1/MultiHeadDotProductAttention_1/query/kernel"].shape == (128, 4, 32)


def test_a_written_hybrid_is_read_by_timm(kept, tmp_path, agree):
    theirs = hybrid().eval()
    convert(from_pretrained(kept(flax(theirs, 4, 32), ".npz")), tmp_path / "out.npz", layout="google")
    again = hybrid().eval()
    again.load_pretrained(str(tmp_path / "out.npz"))
    agree(again, theirs, size=(64, 64))

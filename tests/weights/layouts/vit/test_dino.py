"""The originals of DINO and DINOv2, whose names are timm's but for a few: timm's models with random weights, renamed by hand."""

import re

import pytest
import torch
from safetensors.torch import load_file
from timm.layers import SwiGLUPacked
from timm.models.vision_transformer import VisionTransformer

from vitrail.weights.convert import convert
from vitrail.weights.reference import from_pretrained

SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 128, "depth": 2, "num_heads": 2, "num_classes": 0, "mlp_ratio": 2}
DINOV2 = {**SMALL, "init_values": 1e-5}
KINDS = {
    "the original DINOv2": {},
    "the original DINOv2 and SwiGLU": {"mlp_layer": SwiGLUPacked, "act_layer": torch.nn.SiLU},
    "the original DINOv2 with registers": {"reg_tokens": 4, "no_embed_class": False},
    "the original DINOv2 with registers and SwiGLU": {"reg_tokens": 4, "mlp_layer": SwiGLUPacked, "act_layer": torch.nn.SiLU},
}
NAMES = {
    "the original DINOv2": "dinov2-original",
    "the original DINOv2 and SwiGLU": "dinov2-original-swiglu",
    "the original DINOv2 with registers": "dinov2-original-registers",
    "the original DINOv2 with registers and SwiGLU": "dinov2-original-registers-swiglu",
}


def originals(model: VisionTransformer) -> dict[str, torch.Tensor]:
    """timm's state under the names of DINOv2, whose positions are for class token and patches."""
    state = {}
    for name, tensor in model.state_dict().items():
        name = name.replace("reg_token", "register_tokens")
        if isinstance(model.blocks[0].mlp, SwiGLUPacked.func):
            name = name.replace("mlp.fc1", "mlp.w12").replace("mlp.fc2", "mlp.w3")
        state[name] = tensor
    if model.num_reg_tokens:
        rows = state["pos_embed"]
        rows[:, 1 : 1 + model.num_reg_tokens] = 0
        state["pos_embed"] = torch.cat([rows[:, :1], rows[:, 1 + model.num_reg_tokens :]], dim=1)
    return {**state, "mask_token": torch.zeros(1, model.embed_dim)}


@pytest.mark.parametrize("size", [None, (48, 48), (24, 24)], ids=str)
def test_features_are_dinos(size, randomized, kept, recognised, agree):
    theirs = randomized(VisionTransformer(**SMALL))
    ours = recognised(kept(theirs.state_dict()), "the original DINO", image_size=size)
    if size:
        theirs.set_input_size(size)
    agree(ours, theirs, size=size or (32, 32))
    assert ours.preparation.mean == (0.485, 0.456, 0.406)


def test_the_teacher_of_a_training_checkpoint_is_read_without_its_head(randomized, kept, recognised, agree):
    theirs = randomized(VisionTransformer(**SMALL))
    state = {f"module.backbone.{name}": tensor for name, tensor in theirs.state_dict().items()}
    state |= {"module.head.mlp.0.weight": torch.zeros(4, 128), "module.head.last_layer.weight_g": torch.zeros(4, 1)}
    agree(recognised(kept(state), "the original DINO"), theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_features_are_dinov2s(kind, randomized, kept, recognised, agree):
    theirs = randomized(VisionTransformer(**{**DINOV2, **KINDS[kind]}))
    agree(recognised(kept(originals(theirs)), kind), theirs)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "registers" in kind])
def test_with_registers_positions_are_resized_as_timm_does(kind, randomized, kept, recognised, agree):
    theirs = randomized(VisionTransformer(**{**DINOV2, **KINDS[kind]}))
    state = originals(theirs)
    theirs.set_input_size((48, 48))
    agree(recognised(kept(state), kind, image_size=48), theirs, size=(48, 48))


def test_without_registers_positions_are_resized_as_its_authors_do(randomized, kept, recognised, agree):
    theirs = randomized(VisionTransformer(**DINOV2))
    ours = recognised(kept(originals(theirs)), "the original DINOv2", image_size=48)
    rows = theirs.pos_embed.detach()
    grid = rows[:, 1:].reshape(1, 4, 4, 128).permute(0, 3, 1, 2)
    grid = torch.nn.functional.interpolate(grid, size=(6, 6), mode="bicubic").permute(0, 2, 3, 1).reshape(1, 36, 128)
    theirs.set_input_size((48, 48))
    theirs.pos_embed = torch.nn.Parameter(torch.cat([rows[:, :1], grid], dim=1))
    agree(ours, theirs, size=(48, 48))


def test_blocks_in_chunks_are_known(randomized, kept, recognised, agree):
    theirs = randomized(VisionTransformer(**{**DINOV2, "depth": 4}))

    def in_chunks(name: str) -> str:
        return re.sub(r"^blocks\.(\d+)", lambda found: f"blocks.{int(found[1]) // 2}.{found[1]}", name)

    state = {in_chunks(name): tensor for name, tensor in originals(theirs).items()}
    assert "blocks.1.3.norm1.weight" in state
    agree(recognised(kept(state), "the original DINOv2"), theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_the_original_again(kind, randomized, kept, tmp_path):
    state = originals(randomized(VisionTransformer(**{**DINOV2, **KINDS[kind]})))
    convert(from_pretrained(kept(state)), tmp_path / "out.safetensors", layout=NAMES[kind])
    written = load_file(tmp_path / "out.safetensors")
    assert written.keys() == state.keys() - {"mask_token"}
    for name, tensor in written.items():
        torch.testing.assert_close(tensor, state[name], rtol=0, atol=0)

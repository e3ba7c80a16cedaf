"""The original CLIP's model of images: transformers' with random weights, under the original's names by hand."""

import pytest
import torch
from safetensors.torch import load_file
from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

from vitrail.weights.convert import convert
from vitrail.weights.reference import from_pretrained


def build(randomized) -> CLIPVisionModelWithProjection:
    config = CLIPVisionConfig(
        image_size=32, patch_size=8, hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=96,
        projection_dim=24,
    )  # fmt: skip
    return randomized(CLIPVisionModelWithProjection(config))


def original(model: CLIPVisionModelWithProjection) -> dict[str, torch.Tensor]:
    state = {name.removeprefix("vision_model."): tensor for name, tensor in model.state_dict().items()}
    result = {
        "class_embedding": state["embeddings.class_embedding"],
        "positional_embedding": state["embeddings.position_embedding.weight"],
        "conv1.weight": state["embeddings.patch_embedding.weight"],
        "proj": state["visual_projection.weight"].T,
    }
    pairs = {"ln_pre": "pre_layrnorm", "ln_post": "post_layernorm"}
    for i in range(2):
        theirs, block = f"encoder.layers.{i}", f"transformer.resblocks.{i}"
        names = {"ln_1": "layer_norm1", "ln_2": "layer_norm2", "attn.out_proj": "self_attn.out_proj", "mlp.c_fc": "mlp.fc1",
                 "mlp.c_proj": "mlp.fc2"}  # fmt: skip
        pairs |= {f"{block}.{ours}": f"{theirs}.{name}" for ours, name in names.items()}
        for part in ("weight", "bias"):
            result[f"{block}.attn.in_proj_{part}"] = torch.cat([state[f"{theirs}.self_attn.{x}_proj.{part}"] for x in "qkv"])
    for ours, theirs in pairs.items():
        result |= {f"{ours}.{part}": state[f"{theirs}.{part}"] for part in ("weight", "bias")}
    return {f"visual.{name}": tensor for name, tensor in result.items()}


def answers(model):
    return lambda images: model(images, interpolate_pos_encoding=True).image_embeds


def test_embeddings_are_clips(randomized, kept, recognised, agree):
    theirs = build(randomized)
    ours = recognised(kept(original(theirs)), "the original CLIP")
    agree(ours, answers(theirs))
    assert ours.labels == [] and ours.config.mlp == "quick-gelu" and ours.preparation.mean[0] == pytest.approx(0.48145466)


def test_the_model_of_texts_beside_it_is_left_out(randomized, kept, recognised, agree):
    theirs = build(randomized)
    text = {
        "positional_embedding": torch.zeros(7, 16), "token_embedding.weight": torch.zeros(9, 16), "logit_scale": torch.ones(()),
        "ln_final.weight": torch.ones(16), "ln_final.bias": torch.ones(16), "text_projection": torch.zeros(16, 24),
        "transformer.resblocks.0.attn.in_proj_weight": torch.zeros(48, 16), "transformer.resblocks.0.ln_1.weight": torch.ones(16),
    }  # fmt: skip
    agree(recognised(kept({**original(theirs), **text}), "the original CLIP"), answers(theirs))


def test_the_model_of_images_alone_may_have_no_prefix(randomized, kept, recognised, agree):
    theirs = build(randomized)
    bare = {name.removeprefix("visual."): tensor for name, tensor in original(theirs).items()}
    agree(recognised(kept(bare), "the original CLIP"), answers(theirs))


@pytest.mark.parametrize("size", [(48, 48), (24, 24), (32, 64)], ids=str)
def test_at_another_resolution_too(size, randomized, kept, recognised, agree):
    theirs = build(randomized)
    agree(recognised(kept(original(theirs)), "the original CLIP", image_size=size), answers(theirs), size=size)


def test_what_is_written_is_the_original_again(randomized, kept, tmp_path):
    state = original(build(randomized))
    convert(from_pretrained(kept(state)), tmp_path / "out.safetensors", layout="clip-original")
    written = load_file(tmp_path / "out.safetensors")
    assert written.keys() == state.keys()
    for name, tensor in state.items():
        torch.testing.assert_close(written[name], tensor, rtol=0, atol=0)


def test_a_bias_on_patches_goes_into_their_positions(randomized, kept, tmp_path, agree):
    ours = from_pretrained(kept(original(build(randomized))))
    torch.nn.init.normal_(ours.model.embedding.projection.bias)
    convert(ours, tmp_path / "out.safetensors", layout="clip-original")
    agree(from_pretrained(tmp_path / "out.safetensors"), ours)

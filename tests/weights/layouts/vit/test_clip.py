"""The original CLIP's model of images: transformers' with random weights, under the original's names by hand."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torchvision import transforms
from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

from vitrail.errors import ModelFileError
from vitrail.weights.convert import convert
from vitrail.weights.reference import from_pretrained

OPENAI = {"input_resolution": torch.tensor(32), "context_length": torch.tensor(7), "vocab_size": torch.tensor(9)}
"""What stands in OpenAI's files alone."""


def build(randomized, **fields) -> CLIPVisionModelWithProjection:
    config = CLIPVisionConfig(
        image_size=32, patch_size=8, hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=96,
        projection_dim=24, **fields,
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
    own = OPENAI if model.config.hidden_act == "quick_gelu" else {}
    return {f"visual.{name}": tensor for name, tensor in result.items()} | own


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
    bare = {name.removeprefix("visual."): tensor for name, tensor in original(theirs).items() if name not in OPENAI}
    agree(recognised(kept(bare), "the original CLIP", layout="clip-original"), answers(theirs))


@pytest.mark.parametrize("size", [(48, 48), (24, 24), (32, 64)], ids=str)
def test_at_another_resolution_too(size, randomized, kept, recognised, agree):
    theirs = build(randomized)
    agree(recognised(kept(original(theirs)), "the original CLIP", image_size=size), answers(theirs), size=size)


def test_what_is_written_is_the_original_again(randomized, kept, tmp_path):
    state = original(build(randomized))
    convert(from_pretrained(kept(state)), tmp_path / "out.safetensors", layout="clip-original")
    written = load_file(tmp_path / "out.safetensors")
    assert written.keys() == state.keys() - OPENAI.keys()
    for name, tensor in written.items():
        torch.testing.assert_close(tensor, state[name], rtol=0, atol=0)


VISION = {"image_size": 32, "patch_size": 8, "width": 128, "layers": 2, "head_width": 64, "mlp_ratio": 0.75}
PREPARED = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6], "resize_mode": "squash", "interpolation": "bilinear"}


def open_clip(folder, *, quick: bool, prepared=PREPARED, **vision) -> None:
    model = {"embed_dim": 24, "quick_gelu": quick, "vision_cfg": {**VISION, **vision}, "text_cfg": {"width": 16}}
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": model, "preprocess_cfg": prepared}))
    (folder / "weights.safetensors").rename(folder / "open_clip_model.safetensors")


@pytest.mark.parametrize("act", ["gelu", "quick_gelu"])
def test_a_folder_of_open_clip_tells_the_kind_of_gelu(act, randomized, kept, recognised, agree, tmp_path):
    theirs = build(randomized, hidden_act=act)
    kept({name: tensor for name, tensor in original(theirs).items() if name not in OPENAI})
    open_clip(tmp_path, quick=act == "quick_gelu")
    ours = recognised(tmp_path, "OpenCLIP")
    agree(ours, answers(theirs))
    assert ours.config.heads == 2 and ours.preparation.mean == (0.1, 0.2, 0.3) and ours.preparation.fit == "squash"


def test_a_config_of_transformers_beside_an_open_clip_file_is_that_of_another_file(randomized, kept, recognised, agree, tmp_path):
    theirs = build(randomized, hidden_act="gelu")
    theirs.save_pretrained(tmp_path)
    kept(original(theirs))
    open_clip(tmp_path, quick=False)
    agree(recognised(tmp_path / "open_clip_model.safetensors", "OpenCLIP"), answers(theirs))
    agree(recognised(tmp_path, "transformers' CLIPVisionModel"), answers(theirs))


@pytest.mark.parametrize(
    "field",
    [{"attentional_pool": True}, {"no_ln_pre": True}, {"norm_kwargs": {"bias": False}}, {"pool_type": "none"}, {"new": 1}],
    ids=str,
)
def test_what_is_not_understood_of_open_clip_is_refused_by_name(field, randomized, kept, tmp_path):
    kept(original(build(randomized, hidden_act="gelu")))
    open_clip(tmp_path, quick=False, **field)
    with pytest.raises(ModelFileError, match=next(iter(field))):
        from_pretrained(tmp_path)


def as_open_clip_does(told: dict) -> transforms.Compose:
    """What its ``image_transform`` does with an image of a model that takes 32×32."""
    bilinear = told.get("interpolation") == "bilinear"
    how = transforms.InterpolationMode.BILINEAR if bilinear else transforms.InterpolationMode.BICUBIC
    squashed = told.get("resize_mode") == "squash"
    resized = [transforms.Resize((32, 32), how)] if squashed else [transforms.Resize(32, how), transforms.CenterCrop(32)]
    mean = told.get("mean") or (0.48145466, 0.4578275, 0.40821073)
    std = told.get("std") or (0.26862954, 0.26130258, 0.27577711)
    return transforms.Compose([*resized, transforms.ToTensor(), transforms.Normalize(mean, std)])


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6], "resize_mode": "shortest", "interpolation": "bicubic", "size": 224},
        {"mean": None, "std": None, "resize_mode": None, "interpolation": None},
        {"interpolation": "random", "fill_color": 0, "mode": "RGB"},
        {"interpolation": "bilinear"},
        PREPARED,
        {"resize_mode": "squash"},
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", [(61, 83, 3), (90, 40, 3), (32, 32, 3)], ids=str)
def test_images_are_prepared_as_open_clip_prepares_them(told, shape, randomized, kept, tmp_path):
    kept(original(build(randomized, hidden_act="gelu")))
    open_clip(tmp_path, quick=False, prepared=told)
    ours = from_pretrained(tmp_path).preparation
    assert ours.resize_size == ours.image_size == (32, 32)
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8))
    torch.testing.assert_close(ours(image)[0], as_open_clip_does(told)(image))


@pytest.mark.parametrize("told", [{"resize_mode": "longest"}, {"interpolation": "nearest"}, {"interpolation": 3}], ids=str)
def test_a_preparation_of_open_clip_that_is_not_done_here_is_refused_by_name(told, randomized, kept, tmp_path):
    kept(original(build(randomized, hidden_act="gelu")))
    open_clip(tmp_path, quick=False, prepared=told)
    with pytest.raises(ModelFileError, match=f"{next(iter(told))} .* is not known here"):
        from_pretrained(tmp_path)


def test_a_file_alone_is_taken_for_open_clips_aloud(randomized, kept, agree, capsys):
    theirs = build(randomized, hidden_act="gelu")
    ours = from_pretrained(kept(original(theirs)))
    told = capsys.readouterr().err
    assert "recognised OpenCLIP:" in told and "guessed" in told and "mlp gelu" in told
    agree(ours, answers(theirs))

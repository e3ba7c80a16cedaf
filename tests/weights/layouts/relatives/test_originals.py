"""Files of the authors of CvT, PVT v2 and TNT, and of Google's Mixer, are read with the same outputs."""

import re

import numpy as np
import pytest
import timm
import torch
from residual_networks import alike, authors_file, images, random_weights
from safetensors.torch import save_file
from timm.models.pvt_v2 import checkpoint_filter_fn
from torch import nn

import vitrail
from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.configs.cvt import CvTConfig
from vitrail.models.configs.mixer import MixerConfig
from vitrail.models.configs.pvt_v2 import PVTv2Config
from vitrail.models.vision.cvt import CvT
from vitrail.models.vision.mixer import Mixer
from vitrail.models.vision.pvt_v2 import PVTv2
from vitrail.weights.layouts import LAYOUTS
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import from_pretrained


def cvt_originals(ours: nn.Module) -> dict:
    """A model's weights as `lib/models/cls_cvt.py` of microsoft/CvT names them, written down by hand."""
    state = {}
    for name, tensor in ours.state_dict().items():
        for pattern, theirs in (
            (r"^stages\.(\d)", r"stage\1"), (r"class_token$", "cls_token"), (r"embedding\.projection", "patch_embed.proj"),
            (r"embedding\.norm", "patch_embed.norm"), (r"attention\.norm", "norm1"), (r"mlp\.norm", "norm2"),
            (r"attention\.layer\.convolved\.(.)\w+\.convolution", r"attn.conv_proj_\1.conv"),
            (r"attention\.layer\.convolved\.(.)\w+\.norm", r"attn.conv_proj_\1.bn"),
            (r"attention\.layer\.output", "attn.proj"), (r"attention\.layer\.(.)\w+", r"attn.proj_\1"),
            (r"mlp\.layer\.expand", "mlp.fc1"), (r"mlp\.layer\.contract", "mlp.fc2"), (r"head\.linear", "head"),
        ):  # fmt: skip
            name = re.sub(pattern, theirs, name)
        state[name] = tensor.contiguous()
    return state


def small_cvt(**fields) -> TrainedModel:
    config = CvTConfig(**{"dims": (64, 64), "depths": (1, 2), "heads": (1, 1), "patch_sizes": (7, 3), "strides": (4, 2),
                          "paddings": (2, 1), "num_classes": 3, "image_size": 64, **fields})  # fmt: skip
    return TrainedModel(random_weights(CvT(config)), ["ant", "bee", "cat"], vitrail.Preparation.standard((64, 64), 3))


def test_a_file_of_the_authors_of_cvt_is_read_with_quick_gelu(tmp_path, capsys):
    model = small_cvt()
    save_file(cvt_originals(model.model), tmp_path / "theirs.safetensors")
    ours = from_pretrained(tmp_path / "theirs.safetensors", image_size=64)
    told = capsys.readouterr().err
    assert "recognised the authors' CvT" in told
    assert "guessed, as the file does not say: activation quick-gelu, heads 1-1, strides 4-2, paddings 2-1" in told
    assert ours.config == model.config and alike(ours, model, images())
    assert from_pretrained(tmp_path / "theirs.safetensors", activation="gelu").config.activation == "gelu"
    written = authors_file(ours, "cvt-original", tmp_path / "ours.safetensors")
    expected = cvt_originals(model.model)
    assert written.keys() == expected.keys() and all(written[name].equal(expected[name]) for name in expected)


@pytest.mark.parametrize(
    ("fields", "told"),
    [({"dims": (24, 48)}, "do not show heads"), ({"patch_sizes": (5, 3)}, "do not show strides")],
)
def test_what_a_file_of_a_cvt_does_not_tell_must_be_said(fields, told, tmp_path):
    model = small_cvt(**fields)
    save_file(cvt_originals(model.model), tmp_path / "theirs.safetensors")
    with pytest.raises(ModelFileError, match=told):
        from_pretrained(tmp_path / "theirs.safetensors")
    known = {"heads": (1, 1), "strides": (4, 2), "paddings": (2, 1)}
    assert from_pretrained(tmp_path / "theirs.safetensors", **known).config.dims == model.config.dims


@pytest.mark.parametrize("size", [(64, 64), (64, 96)])
def test_a_mixer_alone_is_read_as_far_as_its_weights_tell(size, tmp_path, capsys):
    model = random_weights(timm.create_model("mixer_s32_224", img_size=size, num_classes=5))
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    if size[0] == size[1]:
        assert alike(from_pretrained(tmp_path / "weights.safetensors"), model, images(size=size))
        told = capsys.readouterr().err
        assert "recognised timm's MLP-Mixer" in told and "say: GELU, the mean of all tokens" in told
        return
    with pytest.raises(ModelFileError, match="6 patches form no square"):
        from_pretrained(tmp_path / "weights.safetensors")
    assert alike(from_pretrained(tmp_path / "weights.safetensors", image_size=size), model, images(size=size))


def google(model: Mixer) -> dict[str, np.ndarray]:
    """The arrays of Google's file, by hand: kernels map (in, out), images stand channels last."""
    arrays = {}
    for name, tensor in model.state_dict().items():
        value = tensor.numpy()
        layer, _, kind = name.rpartition(".")
        words = layer.split(".")
        if layer == "embedding.projection":
            arrays[f"stem/{'kernel' if kind == 'weight' else 'bias'}"] = (
                value.transpose(2, 3, 1, 0) if kind == "weight" else value
            )
            continue
        if words[0] == "blocks":
            number = 0 if words[2] == "tokens" else 1
            mixing = f"{('token', 'channel')[number]}_mixing/Dense_{int(words[-1] == 'contract')}"
            key = f"MixerBlock_{words[1]}/" + (f"LayerNorm_{number}" if words[3] == "norm" else mixing)
        else:
            key = {"norm": "pre_head_layer_norm", "head.linear": "head"}[layer]
        matrix = value.ndim == 2
        arrays[f"{key}/{'bias' if kind == 'bias' else 'kernel' if matrix else 'scale'}"] = value.T if matrix else value
    return arrays


def test_a_mixer_of_googles_is_read_as_written_down_by_hand(tmp_path):
    config = MixerConfig(image_size=16, patch_size=4, dim=24, depth=2, token_dim=12, channel_dim=40, num_classes=3)
    model = random_weights(Mixer(config))
    arrays = google(model)
    np.savez(tmp_path / "mixer.npz", **{name: np.ascontiguousarray(value) for name, value in arrays.items()})
    ours = from_pretrained(tmp_path / "mixer.npz")
    assert ours.config == config and alike(ours, model, images(size=(16, 16)))
    written = LAYOUTS["google-mixer"].write(model.state_dict(), config)
    assert written.keys() == arrays.keys() and all(np.array_equal(written[name], arrays[name]) for name in arrays)


def test_fields_that_only_another_architecture_has_are_refused_with_those_that_there_are(tmp_path):
    config = MixerConfig(image_size=16, patch_size=4, dim=24, depth=2, token_dim=12, channel_dim=40, num_classes=3)
    np.savez(tmp_path / "mixer.npz", **google(random_weights(Mixer(config))))
    assert from_pretrained(tmp_path / "mixer.npz", layout="google-mixer", norm_eps=1e-5).config.norm_eps == 1e-5
    with pytest.raises(ConfigError, match="unknown field 'heads'"):
        from_pretrained(tmp_path / "mixer.npz", layout="google-mixer", heads=3)


SMALL_TNT = {
    "img_size": 32,
    "embed_dim": 24,
    "inner_dim": 8,
    "depth": 2,
    "num_heads_outer": 3,
    "num_heads_inner": 2,
    "num_classes": 3,
}
TNT_NAMES = {
    "patch_pos": "outer_pos", "pixel_pos": "inner_pos", "pixel_embed": "patch_embed", "norm1_proj": "proj_norm1",
    "norm2_proj": "proj_norm2", "norm_in": "inner_norm1", "attn_in": "inner_attn", "norm_mlp_in": "inner_norm2",
    "mlp_in": "inner_mlp", "norm_out": "outer_norm1", "attn_out": "outer_attn", "norm_mlp": "outer_norm2", "mlp": "outer_mlp",
}  # fmt: skip
"""timm's names of what the authors call otherwise."""


def tnt_originals(model: torch.nn.Module) -> dict:
    """timm's weights under the authors' names, with the tokens of zeros that they keep beside."""
    state = {}
    for name, tensor in model.state_dict().items():
        place = tensor.flatten(2).mT if name == "pixel_pos" else tensor
        state[".".join(TNT_NAMES.get(part, part) for part in name.split("."))] = place.contiguous()
    return {**state, "outer_tokens": torch.zeros(1, 4, 24)}


def test_a_file_of_the_authors_of_tnt_is_read(tmp_path, capsys):
    model = random_weights(timm.create_model("tnt_s_patch16_224", **{**SMALL_TNT, "num_heads_inner": 4}))
    save_file(tnt_originals(model), tmp_path / "theirs.safetensors")
    with pytest.raises(ModelFileError, match="the number of heads is unknown"):
        from_pretrained(tmp_path / "theirs.safetensors")
    ours = from_pretrained(tmp_path / "theirs.safetensors", heads=3)
    assert "guessed, as the file does not say: word_heads 4, word_stride 4, patch_size" in capsys.readouterr().err
    assert alike(ours, model, images(size=(32, 32)))
    written, expected = authors_file(ours, "tnt-original", tmp_path / "ours.safetensors"), tnt_originals(model)
    assert {*written, "outer_tokens"} == expected.keys() and all(written[name].equal(expected[name]) for name in written)


HEADS = (1, 2, 2, 4)
SMALL_PVT = {"dims": (8, 16, 24, 32), "depths": (1, 1, 2, 1), "heads": HEADS, "mlp_ratios": (2, 2.7, 2, 2)}
TIMM = {"embed_dims": SMALL_PVT["dims"], "depths": SMALL_PVT["depths"], "num_heads": HEADS, "mlp_ratios": SMALL_PVT["mlp_ratios"]}


def pvt_v2(**fields) -> TrainedModel:
    model = random_weights(PVTv2(PVTv2Config(**{**SMALL_PVT, "image_size": 64, "num_classes": 3, **fields})))
    return TrainedModel(model, ["ant", "bee", "cat"], vitrail.Preparation.standard((64, 64), 3))


@pytest.mark.parametrize("pooled", [False, True])
def test_a_file_of_the_authors_of_pvt_v2_is_what_timm_reads_and_is_read(pooled, tmp_path):
    model = pvt_v2(pooled=pooled)
    state = authors_file(model, "pvt-v2-original", tmp_path / "out.safetensors")
    theirs = timm.models.pvt_v2.PyramidVisionTransformerV2(**TIMM, num_classes=3, linear=pooled).eval()
    theirs.load_state_dict(checkpoint_filter_fn(state, theirs))
    assert alike(model, theirs, images())
    again = from_pretrained(tmp_path / "out.safetensors", heads=HEADS)
    assert torch.equal(again(images()), model(images()))
    torch.save({"model": state, "epoch": 300}, tmp_path / "theirs.pth")
    assert from_pretrained(tmp_path / "theirs.pth", trust_pickle=True, heads=HEADS).config.pooled == pooled
    with pytest.raises(ModelFileError, match="do not show the number of heads in stages of width 8-16-24-32"):
        from_pretrained(tmp_path / "theirs.pth", trust_pickle=True)


def test_a_bare_pvt_v2_of_a_size_of_the_paper_is_read_with_its_heads_guessed_aloud(tmp_path, capsys):
    theirs = random_weights(timm.create_model("pvt_v2_b0", num_classes=3, depths=(1, 1, 1, 1)))
    save_file(theirs.state_dict(), tmp_path / "theirs.safetensors")
    assert alike(from_pretrained(tmp_path / "theirs.safetensors"), theirs, images())
    told = capsys.readouterr().err
    assert "recognised timm's PVT v2" in told and "guessed, as the file does not say: heads 1-2-5-8, GELU, norm_eps" in told
    assert "strides 4-2-2-2" in told

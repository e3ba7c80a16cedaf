"""TNT of timm and of its authors is read and written with the same logits, or refused by name."""

import json

import pytest
import timm
import torch
from residual_networks import alike, images, random_weights
from safetensors.torch import load_file, save_file
from timm.models import save_for_hf

import vitrail
from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.configs.tnt import TIMM, TNTConfig
from vitrail.models.registry import model_config
from vitrail.models.vision.tnt import TNT
from vitrail.weights.layouts import LAYOUTS
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import from_pretrained

SMALL = {
    "img_size": 32,
    "embed_dim": 24,
    "inner_dim": 8,
    "depth": 2,
    "num_heads_outer": 3,
    "num_heads_inner": 2,
    "num_classes": 3,
}
THEIRS = {
    "patch_pos": "outer_pos", "pixel_pos": "inner_pos", "pixel_embed": "patch_embed", "norm1_proj": "proj_norm1",
    "norm2_proj": "proj_norm2", "norm_in": "inner_norm1", "attn_in": "inner_attn", "norm_mlp_in": "inner_norm2",
    "mlp_in": "inner_mlp", "norm_out": "outer_norm1", "attn_out": "outer_attn", "norm_mlp": "outer_norm2", "mlp": "outer_mlp",
}  # fmt: skip
"""timm's names of what the authors call otherwise."""


def theirs(name: str = "tnt_s_patch16_224", **arguments) -> torch.nn.Module:
    return random_weights(timm.create_model(name, **{**SMALL, **arguments}))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("tnt_s_patch16_224", {}),
        ("tnt_s_legacy_patch16_224", {"in_chans": 1}),
        ("tnt_b_patch16_224", {"patch_size": (8, 16), "img_size": (72, 144), "first_stride": 4, "qkv_bias": True}),
        ("tnt_s_patch16_224", {"legacy": True, "num_classes": 0}),
    ],
)
def test_a_folder_of_timms_is_read_and_written_and_read_by_timm(name, arguments, tmp_path):
    model = theirs(name, **arguments)
    told = {key: list(value) if isinstance(value, tuple) else value for key, value in {**SMALL, **arguments}.items()}
    save_for_hf(model, tmp_path / "theirs", model_args=told, safe_serialization=True)
    seen = images(arguments.get("in_chans", 3), size=arguments.get("img_size", (32, 32)))
    ours = from_pretrained(tmp_path / "theirs")
    assert alike(ours, model, seen)
    ours.save_pretrained(tmp_path / "ours", layout="timm")
    assert alike(timm.create_model(f"local-dir:{tmp_path / 'ours'}", pretrained=True).eval(), model, seen)
    assert alike(from_pretrained(tmp_path / "ours"), model, seen)


def originals(model: torch.nn.Module) -> dict:
    """timm's weights under the authors' names, with the tokens of zeros that they keep beside."""
    state = {}
    for name, tensor in model.state_dict().items():
        place = tensor.flatten(2).mT if name == "pixel_pos" else tensor
        state[".".join(THEIRS.get(part, part) for part in name.split("."))] = place.contiguous()
    return {**state, "outer_tokens": torch.zeros(1, 4, 24)}


def test_a_file_of_the_authors_is_read_and_written(tmp_path, capsys):
    model = theirs(num_heads_inner=4)
    save_file(originals(model), tmp_path / "theirs.safetensors")
    with pytest.raises(ModelFileError, match="the number of heads is unknown"):
        from_pretrained(tmp_path / "theirs.safetensors")
    ours = from_pretrained(tmp_path / "theirs.safetensors", heads=3)
    assert "guessed, as the file does not say: word_heads 4, word_stride 4, patch_size" in capsys.readouterr().err
    assert alike(ours, model, images(size=(32, 32)))
    vitrail.convert(ours, tmp_path / "ours.safetensors", layout="tnt-original")
    written = load_file(tmp_path / "ours.safetensors")
    assert {**written, "outer_tokens": 0}.keys() == originals(model).keys()
    assert all(written[name].equal(originals(model)[name]) for name in written)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"global_pool": "avg"}, "global_pool='avg' is not known here"),
        ({"norm_layer": "rmsnorm"}, "norm_layer='rmsnorm' is not known here"),
        ({"embed_dim": 48}, "dim is 24, not 48"),
        ({"legacy": True}, "legacy is False, not True"),
    ],
)
def test_an_argument_that_changes_the_answer_is_refused_by_name(arguments, told, tmp_path):
    save_for_hf(theirs(), tmp_path, model_args=SMALL, safe_serialization=True)
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**values, "model_args": {**values["model_args"], **arguments}}))
    with pytest.raises(ModelFileError, match=told):
        from_pretrained(tmp_path)


def small(**fields) -> TrainedModel:
    config = TNTConfig(**{"image_size": 32, "dim": 24, "word_dim": 8, "depth": 1, "heads": 3, "word_heads": 2, "num_classes": 3,
                          **fields})  # fmt: skip
    return TrainedModel(TNT(config), ["ant", "bee", "cat"], vitrail.Preparation.standard((32, 32), 3))


@pytest.mark.parametrize(
    ("layout", "fields", "told"),
    [
        ("timm", {"mlp_ratio": 2}, "MLP ratio 2 and norm epsilon 1e-05, only of 4 and 1e-5"),
        ("timm", {"norm_eps": 1e-6}, "MLP ratio 4 and norm epsilon 1e-06"),
        ("tnt-original", {"legacy": True}, "convolution across the borders of patches"),
        ("tnt-original", {"norm_eps": 1e-6}, "norm_eps is 1e-06, there 1e-05"),
    ],
)
def test_what_a_layout_cannot_hold_is_not_written(layout, fields, told, tmp_path):
    with pytest.raises(ConfigError, match=told):
        vitrail.convert(small(**fields), tmp_path / ("out" if layout == "timm" else "out.safetensors"), layout=layout)
    small(**fields).save_pretrained(tmp_path / "own")
    assert json.loads((tmp_path / "own" / "config.json").read_text())["architectures"] == ["TNT"]


def test_every_size_of_timms_has_its_name():
    describe = LAYOUTS["timm-tnt"].describe
    assert set(TIMM) == set(timm.list_models("tnt_*"))
    assert all(describe(model_config(name))["architecture"] == name for name in TIMM)

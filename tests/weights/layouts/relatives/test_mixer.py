"""MLP-Mixers of timm and of Google are read and written with the same logits, or refused by name."""

import json

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.models import save_for_hf

import vitrail
from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.configs.mixer import PRESETS, MixerConfig, preset_of
from vitrail.models.registry import model_config
from vitrail.models.vision.mixer import Mixer
from vitrail.weights.layouts import LAYOUTS
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import from_pretrained

SMALL = {"img_size": 64, "num_classes": 5}


describe = LAYOUTS["timm-mixer"].describe


def random_weights(model: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(0)
    for name, parameter in model.named_parameters():
        wide = parameter.ndim > 1
        torch.nn.init.normal_(parameter, mean=float(not wide and name.endswith("weight")), std=0.5 / parameter[0].numel() ** 0.5)
    return model.eval()


def theirs(name: str = "mixer_s32_224", **arguments) -> torch.nn.Module:
    return random_weights(timm.create_model(name, **{**SMALL, **arguments}))


def alike(ours, model, images) -> bool:
    with torch.no_grad():
        expected = model(images)
        torch.testing.assert_close(ours(images), expected, rtol=1e-5, atol=1e-5)
    return bool((expected[0] - expected[1]).abs().max() > 1e-3)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("mixer_s16_224", {}),
        ("mixer_s32_224", {}),
        ("mixer_s32_224", {"num_classes": 0}),
        ("mixer_s32_224", {"in_chans": 1}),
        ("mixer_s16_224", {"mlp_ratio": (0.3, 1.7)}),
    ],
)
def test_a_folder_of_timms_is_read_and_written_and_read_by_timm(name, arguments, tmp_path):
    model = theirs(name, **arguments)
    save_for_hf(model, tmp_path / "theirs", model_args={**SMALL, **arguments}, safe_serialization=True)
    images = torch.randn(2, arguments.get("in_chans", 3), 64, 64)
    ours = from_pretrained(tmp_path / "theirs")
    assert alike(ours, model, images)
    ours.save_pretrained(tmp_path / "ours", layout="timm")
    assert alike(timm.create_model(f"local-dir:{tmp_path / 'ours'}", pretrained=True).eval(), model, images)
    assert alike(from_pretrained(tmp_path / "ours"), model, images)


@pytest.mark.parametrize("size", [(64, 64), (64, 96)])
def test_weights_alone_are_read_as_far_as_they_tell(size, tmp_path, capsys):
    model = theirs(img_size=size)
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    if size[0] == size[1]:
        assert alike(from_pretrained(tmp_path / "weights.safetensors"), model, torch.randn(2, 3, *size))
        told = capsys.readouterr().err
        assert "recognised timm's MLP-Mixer" in told and "say: GELU, the mean of all tokens" in told
        return
    with pytest.raises(ModelFileError, match="6 patches form no square"):
        from_pretrained(tmp_path / "weights.safetensors")
    assert alike(from_pretrained(tmp_path / "weights.safetensors", image_size=size), model, torch.randn(2, 3, *size))


@pytest.mark.parametrize("name", ["gmixer_12_224", "resmlp_12_224", "gmlp_ti16_224"])
def test_other_mixers_of_timms_are_refused_by_name(name, tmp_path):
    model = timm.create_model(name, num_classes=5)
    save_for_hf(model, tmp_path / "theirs", safe_serialization=True)
    with pytest.raises(ModelFileError, match=name):
        from_pretrained(tmp_path / "theirs")


def test_an_argument_that_is_not_understood_is_refused_by_name(tmp_path):
    model = theirs()
    save_for_hf(model, tmp_path / "theirs", model_args={**SMALL, "act_layer": "relu"}, safe_serialization=True)
    with pytest.raises(ModelFileError, match="act_layer='relu' is not known here"):
        from_pretrained(tmp_path / "theirs")


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


def test_a_file_of_googles_is_read_and_written(tmp_path):
    config = MixerConfig(image_size=16, patch_size=4, dim=24, depth=2, token_dim=12, channel_dim=40, num_classes=3)
    model, images = random_weights(Mixer(config)), torch.randn(2, 3, 16, 16)
    arrays = google(model)
    np.savez(tmp_path / "mixer.npz", **{name: np.ascontiguousarray(value) for name, value in arrays.items()})
    ours = from_pretrained(tmp_path / "mixer.npz")
    assert ours.config == config and alike(ours, model, images)
    vitrail.convert(ours, tmp_path / "again.npz", layout="google")
    written = np.load(tmp_path / "again.npz")
    assert set(written.files) == set(arrays) and all(np.array_equal(written[name], arrays[name]) for name in arrays)


@pytest.mark.parametrize(("layout", "fields", "told"), [
    ("timm", {"norm_eps": 1e-3}, "epsilon of 0.001, only of 1e-6"),
    ("timm", {}, "timm has no Mixer of width 24, depth 2 and patches of 4×4"),
    ("google", {"norm_eps": 1e-3}, "norm_eps is 0.001, there 1e-06"),
    ("torchvision", {}, "no such layout can hold a MLP-Mixer"),
])  # fmt: skip
def test_what_a_layout_cannot_hold_is_not_written(layout, fields, told, tmp_path):
    config = MixerConfig(image_size=16, patch_size=4, dim=24, depth=2, token_dim=12, channel_dim=40, num_classes=3, **fields)
    trained = TrainedModel(Mixer(config), ["a", "b", "c"], vitrail.Preparation.standard((16, 16), 3), False)
    with pytest.raises(ConfigError, match=told):
        trained.save_pretrained(tmp_path / "out", layout=layout)


def test_every_size_of_timms_has_its_name():
    names = {describe(model_config(name))["architecture"] for name in PRESETS}
    assert names == set(timm.list_models("mixer_*"))
    assert all(preset_of(name) for name in names)


def test_fields_that_only_another_architecture_has_are_refused_with_those_that_there_are(tmp_path):
    config = MixerConfig(image_size=16, patch_size=4, dim=24, depth=2, token_dim=12, channel_dim=40, num_classes=3)
    np.savez(tmp_path / "mixer.npz", **google(random_weights(Mixer(config))))
    assert from_pretrained(tmp_path / "mixer.npz", layout="google-mixer", norm_eps=1e-5).config.norm_eps == 1e-5
    with pytest.raises(ConfigError, match="unknown field 'heads'"):
        from_pretrained(tmp_path / "mixer.npz", layout="google-mixer", heads=3)


def test_our_own_folder_is_the_usual_one(tmp_path):
    config = MixerConfig(image_size=16, patch_size=4, dim=24, depth=2, token_dim=12, channel_dim=40, num_classes=3)
    TrainedModel(Mixer(config), ["a", "b", "c"], vitrail.Preparation.standard((16, 16), 3), False).save_pretrained(
        tmp_path / "out"
    )
    assert json.loads((tmp_path / "out" / "config.json").read_text())["architectures"] == ["Mixer"]

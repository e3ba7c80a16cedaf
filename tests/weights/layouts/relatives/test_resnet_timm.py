"""ResNet and BiT of timm and ResNet of torchvision are read and written with the same logits, or refused by name."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import timm
import torch
import torchvision
from residual_networks import NARROW, alike, batches, images, random_weights, small
from safetensors.torch import load_file, save_file
from timm.models import save_for_hf
from torchvision.models.resnet import BasicBlock, Bottleneck

import vitrail
from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.configs.resnet import ResNetConfig
from vitrail.models.vision.resnet import ResNet
from vitrail.weights.layouts import LAYOUTS
from vitrail.weights.layouts.relatives.resnet_timm import MODELS
from vitrail.weights.reference import from_pretrained

TIMM = [
    ("resnet18", {}),
    ("resnet34", {"layers": (1, 1, 2, 1), "num_classes": 0}),
    ("resnet26", {"layers": (1, 1, 1, 1), "in_chans": 1}),
    ("resnet50", {"layers": (1, 2, 1, 1)}),
    ("resnet18", {"layers": (1, 2, 1, 1), "drop_path_rate": 0.1}),
    ("resnetv2_50x1_bit", NARROW),
    ("resnetv2_50x1_bit", NARROW | {"num_classes": 0, "in_chans": 1}),
]


@pytest.mark.parametrize(("name", "arguments"), TIMM)
def test_a_folder_of_timms_is_read_and_written_and_read_by_timm(name, arguments, tmp_path):
    theirs = random_weights(timm.create_model(name, **{"num_classes": 5, **arguments}))
    save_for_hf(theirs, tmp_path / "theirs", safe_serialization=True)
    seen = images(arguments.get("in_chans", 3), size=(32, 40))
    ours = from_pretrained(tmp_path / "theirs")
    assert alike(ours, theirs, seen) and ours.config.image_size == theirs.pretrained_cfg["input_size"][1:]
    ours.save_pretrained(tmp_path / "ours", layout="timm")
    again = timm.create_model(f"local-dir:{tmp_path / 'ours'}", pretrained=True).eval()
    assert alike(again, theirs, seen) and batches(again.state_dict()) == batches(theirs.state_dict())
    assert alike(from_pretrained(tmp_path / "ours"), theirs, seen)


def test_every_name_of_timms_is_what_it_is_there():
    assert MODELS.keys() <= set(timm.list_models(module="resnet") + timm.list_models(module="resnetv2"))
    for name, fields in MODELS.items():
        with torch.device("meta"):
            ours = ResNet(ResNetConfig(**fields, num_classes=7)).state_dict()
        written = {
            key: tuple(value.shape) for key, value in LAYOUTS[layout_of(fields)].write(ours, ResNetConfig(**fields)).items()
        }
        theirs = timm.create_model(name, num_classes=7, device="meta").state_dict()
        assert written == {key: tuple(value.shape) for key, value in theirs.items()}


def layout_of(fields) -> str:
    return {"basic": "timm-resnet-basic", "bottleneck": "timm-resnet", "pre-activation": "timm-bit"}[fields["block"]]


@pytest.mark.parametrize("name", ["resnet50d", "resnet50_gn", "seresnet18", "wide_resnet50_2", "resnetblur18", "resnetv2_18"])
def test_other_networks_of_timms_are_refused_by_name(name, tmp_path):
    theirs = timm.create_model(name, num_classes=5, layers=(1, 1, 1, 1))
    save_for_hf(theirs, tmp_path / "theirs", safe_serialization=True)
    with pytest.raises(ModelFileError, match=name):
        from_pretrained(tmp_path / "theirs")


@pytest.fixture(scope="module")
def named(tmp_path_factory) -> Callable[[str], Path]:
    """``named("resnet18")``: a folder of that network of timm's, which is built once."""

    @cache
    def folder(name: str) -> Path:
        place = tmp_path_factory.mktemp("named") / name
        save_for_hf(timm.create_model(name, num_classes=5), place, safe_serialization=True)
        return place

    return folder


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"avg_down": True}, "avg_down=True"),
        ({"aa_layer": "blur"}, "aa_layer='blur'"),
        ({"output_stride": 8}, "output_stride=8"),
        ({"stem_type": "deep"}, "stem_type='deep'"),
        ({"act_layer": "silu"}, "act_layer='silu'"),
        ({"global_pool": "max"}, "global_pool='max'"),
        ({"block_args": {"attn_layer": "se"}}, "block_args="),
        ({"something": 1}, "something=1"),
    ],
)
@pytest.mark.parametrize("name", ["resnet18", "resnet26", "resnetv2_50x1_bit"])
def test_an_argument_that_changes_the_answer_is_refused_by_name(name, arguments, told, named, tmp_path):
    (tmp_path / "model.safetensors").symlink_to(named(name) / "model.safetensors")
    values = json.loads((named(name) / "config.json").read_text())
    changed = {**values, "model_args": {**values.get("model_args", {}), **arguments}}
    (tmp_path / "config.json").write_text(json.dumps(changed))
    with pytest.raises(ModelFileError, match=f"{told}.*is not known here"):
        from_pretrained(tmp_path)


@pytest.mark.parametrize(("block", "layers"), [(BasicBlock, (2, 2, 2, 2)), (Bottleneck, (1, 2, 1, 1))])
def test_a_file_of_torchvisions_is_read_and_written(block, layers, tmp_path, capsys):
    theirs = random_weights(torchvision.models.ResNet(block, layers, num_classes=7))
    save_file(theirs.state_dict(), tmp_path / "theirs.safetensors")
    ours = from_pretrained(tmp_path / "theirs.safetensors")
    assert "guessed, as the file does not say: ReLU, strides without blurring" in capsys.readouterr().err
    assert alike(ours, theirs, images())
    vitrail.convert(ours, tmp_path / "ours.safetensors", layout="torchvision")
    again = torchvision.models.ResNet(block, layers, num_classes=7).eval()
    again.load_state_dict(load_file(tmp_path / "ours.safetensors"))
    assert alike(again, theirs, images())


def test_a_file_from_before_batches_were_counted_is_read(tmp_path):
    theirs = random_weights(torchvision.models.resnet18(num_classes=7))
    older = {name: tensor for name, tensor in theirs.state_dict().items() if not name.endswith("num_batches_tracked")}
    save_file(older, tmp_path / "theirs.safetensors")
    assert alike(from_pretrained(tmp_path / "theirs.safetensors"), theirs, images())
    save_file({name: older[name] for name in older if name != "bn1.running_var"}, tmp_path / "less.safetensors")
    with pytest.raises(ModelFileError, match=r"missing: bn1\.running_var"):
        from_pretrained(tmp_path / "less.safetensors")


@pytest.mark.parametrize(
    ("layout", "fields", "told"),
    [
        ("timm", {}, "ResNet with width 32 and 2 stages, in place of 64 and 4"),
        ("timm", {"block": "pre-activation"}, "timm has no BiT of depths 1-1"),
        ("timm", {"width": 64, "depths": (1, 1, 1, 1), "root": "cifar"}, "root of one 3×3 convolution"),
        ("torchvision", {"block": "basic"}, "width 32 and 2 stages"),
        ("torchvision", {"block": "pre-activation"}, "no such layout can hold a Residual network of pre-activation blocks 1-1"),
        ("resnet", {"root": "cifar"}, "root of one 3×3 convolution"),
        ("bit", {"block": "pre-activation", "width": 16}, "width 16, which 32 groups do not divide"),
        ("bit", {"block": "pre-activation", "depths": (1,) * 5}, "more than four stages"),
        ("google", {"block": "pre-activation", "root": "cifar"}, "root of one 3×3 convolution"),
        ("google", {}, "no such layout can hold a Residual network of bottleneck blocks 1-1"),
        ("vit", {}, "no such layout can hold a Residual network"),
    ],
)
def test_what_a_layout_cannot_hold_is_not_written(layout, fields, told, tmp_path):
    with pytest.raises(ConfigError, match=told):
        vitrail.convert(small(**fields), tmp_path / ("out.npz" if layout == "google" else "out"), layout=layout)


def test_a_model_for_small_images_stays_a_folder_of_ours(tmp_path):
    ours = small(root="cifar")
    ours.save_pretrained(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["architectures"] == ["ResNet"]
    again = from_pretrained(tmp_path / "out")
    assert alike(again, ours, images()) and batches(again.state_dict()) == batches(ours.state_dict())
    again.save_pretrained(tmp_path / "again")
    assert load_file(tmp_path / "again" / "model.safetensors")["features.root.1.num_batches_tracked"].dtype == torch.int64

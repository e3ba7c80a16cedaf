"""Folders of timm and transformers are read and written with the same outputs, or refused by name, whatever the architecture."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import timm
import torch
import transformers
from residual_networks import NARROW, alike, batches, images, random_weights
from residual_networks import small as residual
from safetensors.torch import load_file
from sweep.writing import Answering
from timm.models import save_for_hf
from torch import nn

import vitrail
from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.registry import architecture, build
from vitrail.weights.layouts import LAYOUTS
from vitrail.weights.layouts.relatives import mixer, pvt_v2, resnet_timm, swin, tnt
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import from_pretrained

MIXER = {"img_size": 64}
TNT = {"img_size": 32, "embed_dim": 24, "inner_dim": 8, "depth": 2, "num_heads_outer": 3, "num_heads_inner": 2}
PYRAMID = {"embed_dims": (8, 16, 24, 32), "depths": (1, 1, 2, 1), "num_heads": (1, 2, 2, 4), "mlp_ratios": (2, 2.7, 2, 2)}
WINDOWS = {"embed_dim": 8, "depths": (1, 2), "num_heads": (1, 2), "img_size": (112, 224)}
"""Images that windows divide, where timm would pad and roll in another order."""
FLAT = "swin_tiny_patch4_window7_224"
TIMM = [
    ("mixer_s16_224", MIXER | {"mlp_ratio": (0.3, 1.7)}),
    ("mixer_s32_224", MIXER | {"num_classes": 0, "in_chans": 1}),
    ("pvt_v2_b2", PYRAMID),
    ("pvt_v2_b2_li", PYRAMID | {"in_chans": 1, "num_classes": 0}),
    ("pvt_v2_b0", PYRAMID | {"sr_ratios": (4, 2, 1, 1), "qkv_bias": False, "drop_path_rate": 0.1}),
    ("tnt_s_legacy_patch16_224", TNT | {"in_chans": 1}),
    ("tnt_b_patch16_224", TNT | {"patch_size": (8, 16), "img_size": (72, 144), "first_stride": 4, "qkv_bias": True}),
    ("tnt_s_patch16_224", TNT | {"legacy": True, "num_classes": 0}),
    (FLAT, WINDOWS),
    (FLAT, WINDOWS | {"window_size": 14, "in_chans": 1, "num_classes": 0}),
    (FLAT, WINDOWS | {"mlp_ratio": 2.7}),
    ("resnet18", {"layers": (1, 2, 1, 1), "drop_path_rate": 0.1}),
    ("resnet34", {"layers": (1, 1, 2, 1), "num_classes": 0}),
    ("resnet26", {"layers": (1, 1, 1, 1), "in_chans": 1}),
    ("resnetv2_50x1_bit", NARROW | {"num_classes": 0, "in_chans": 1}),
]


@pytest.mark.parametrize(("name", "arguments"), TIMM)
def test_a_folder_of_timms_is_read_and_written_and_read_by_timm(name, arguments, tmp_path):
    theirs = random_weights(timm.create_model(name, **{"num_classes": 5, **arguments}))
    save_for_hf(theirs, tmp_path / "theirs", safe_serialization=True)
    size = arguments.get("img_size", (64, 80))
    seen = images(arguments.get("in_chans", 3), size if isinstance(size, tuple) else (size, size))
    ours = from_pretrained(tmp_path / "theirs")
    assert alike(ours, theirs, seen)
    ours.save_pretrained(tmp_path / "ours", layout="timm")
    sized = {"img_size": size} if name == FLAT else {}
    again = timm.create_model(f"local-dir:{tmp_path / 'ours'}", pretrained=True, **sized).eval()
    assert alike(again, theirs, seen) and batches(again.state_dict()) == batches(theirs.state_dict())
    assert alike(from_pretrained(tmp_path / "ours"), theirs, seen)


NAMES = {"id2label": {0: "ant", 1: "bee", 2: "cat"}, "label2id": {"ant": 0, "bee": 1, "cat": 2}}
CVT = {"embed_dim": [8, 16, 24], "num_heads": [1, 2, 3], "depth": [1, 2, 3]}
CVT_OF_TWO = {
    "embed_dim": [8, 12], "num_heads": [2, 4], "depth": [1, 2], "mlp_ratio": [2.0, 2.0], "patch_sizes": [4, 2],
    "patch_stride": [4, 2], "patch_padding": [0, 1], "num_channels": 1,
    **{name: [value] * 2 for name, value in {
        "drop_rate": 0.0, "attention_drop_rate": 0.0, "drop_path_rate": 0.0, "qkv_bias": True, "kernel_qkv": 3, "stride_q": 1,
        "stride_kv": 2, "padding_q": 1, "padding_kv": 1, "qkv_projection_method": "dw_bn"}.items()},
    "cls_token": [False, True],
}  # fmt: skip
"""Two stages with patches of other sides."""
PVT = {
    "image_size": 64, "hidden_sizes": [8, 16], "depths": [1, 2], "num_attention_heads": [2, 4], "num_labels": 3,
    "sequence_reduction_ratios": [4, 1], "mlp_ratios": [2, 3], "patch_sizes": [4, 2], "strides": [4, 2], "num_encoder_blocks": 2,
}  # fmt: skip
PVT_V2 = {
    "hidden_sizes": [8, 16], "depths": [1, 2], "num_attention_heads": [2, 4], "sr_ratios": [4, 1], "mlp_ratios": [2, 3],
    "patch_sizes": [5, 3], "strides": [3, 2], "num_encoder_blocks": 2,
}  # fmt: skip
SWIN = {"embed_dim": 8, "depths": [1, 2], "num_heads": [1, 2]}
RESNET = {"embedding_size": 32, "hidden_sizes": [128, 256, 512], "depths": [1, 2, 1]}
BASIC = RESNET | {"layer_type": "basic", "hidden_sizes": [32, 64, 128]}
TRANSFORMERS = [
    ("CvtForImageClassification", CVT),
    ("CvtForImageClassification", CVT_OF_TWO),
    ("PvtForImageClassification", PVT | {"layer_norm_eps": 1e-3}),
    ("PvtModel", PVT | {"num_channels": 1, "qkv_bias": False}),
    ("PvtV2ForImageClassification", PVT_V2 | {"linear_attention": True, "image_size": [64, 80]}),
    ("PvtV2Model", PVT_V2 | {"num_channels": 1, "layer_norm_eps": 1e-3}),
    ("SwinModel", SWIN | {"window_size": 4, "num_channels": 1}),
    ("SwinForImageClassification", SWIN | {"patch_size": 2, "qkv_bias": False, "mlp_ratio": 2.7, "image_size": 96}),
    ("ResNetModel", RESNET),
    ("ResNetForImageClassification", BASIC | {"num_channels": 1}),
    ("ResNetForImageClassification", BASIC | {"depths": [2, 2, 2]}),
    ("BitForImageClassification", RESNET),
    ("BitModel", RESNET | {"num_channels": 1}),
]


def of_transformers(kind: str, **fields) -> nn.Module:
    made = getattr(transformers, kind)
    return random_weights(made(made.config_class(**{**NAMES, **fields})))


@pytest.mark.parametrize(("kind", "fields"), TRANSFORMERS)
def test_a_folder_of_transformers_is_read_and_written_and_read_by_transformers(kind, fields, tmp_path):
    theirs = of_transformers(kind, **fields)
    theirs.save_pretrained(tmp_path / "theirs")
    seen = images(fields.get("num_channels", 3), (64, 64) if "Pvt" in kind else (112, 224))
    ours = from_pretrained(tmp_path / "theirs")
    assert alike(ours, Answering(theirs), seen)
    assert ours.labels == (["ant", "bee", "cat"] if "Classification" in kind else [])
    ours.save_pretrained(tmp_path / "ours")
    again, report = getattr(transformers, kind).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    assert alike(Answering(again.eval()), Answering(theirs), seen)
    assert batches(again.state_dict()) == batches(theirs.state_dict())
    assert alike(from_pretrained(tmp_path / "ours"), Answering(theirs), seen)


@pytest.mark.parametrize(
    ("kind", "fields", "changed"),
    [
        ("CvtForImageClassification", CVT, {"stride_kv": [1, 1, 1]}),
        ("CvtForImageClassification", CVT, {"padding_q": [1, 1, 2]}),
        ("PvtModel", PVT, {"hidden_act": "relu"}),
        ("PvtV2Model", PVT_V2, {"hidden_act": "relu"}),
        ("SwinModel", SWIN, {"use_absolute_embeddings": True}),
        ("SwinModel", SWIN, {"layer_norm_eps": 1e-6}),
        ("ResNetModel", RESNET, {"downsample_in_bottleneck": True}),
        ("ResNetModel", RESNET, {"downsample_in_first_stage": True}),
        ("BitModel", RESNET, {"global_padding": "SAME"}),
        ("BitModel", RESNET, {"num_groups": 16}),
        ("BitModel", RESNET, {"layer_type": "bottleneck"}),
        ("BitModel", RESNET, {"output_stride": 8}),
        ("BitModel", RESNET, {"embedding_dynamic_padding": True}),
        ("BitModel", RESNET, {"width_factor": 2}),
        ("PvtModel", PVT, {"something": 1}),
        ("PvtModel", PVT, {"patch_sizes": [2, 2]}),
        ("PvtV2Model", PVT_V2, {"linear_attention": True}),
        ("SwinModel", SWIN, {"window_size": 4}),
    ],
)
def test_a_field_of_transformers_that_changes_the_answer_is_refused_by_name(kind, fields, changed, tmp_path):
    of_transformers(kind, **fields).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **changed}))
    (name,) = changed
    told = {
        "something": "unknown entry something",
        "patch_sizes": r"patch_sizes is \(4, 2\), not \(2, 2\)",
        "window_size": "window_size is 7, not 4",
        "linear_attention": "pooled is False, not True",
    }
    with pytest.raises(ModelFileError, match=told.get(name, f"{name} .* is not supported")):
        from_pretrained(tmp_path)


@pytest.fixture(scope="module")
def named(tmp_path_factory) -> Callable[[str], Path]:
    """``named("resnet18")``: a folder of that network of timm's, which is built once."""
    small = {"pvt_v2_b0": PYRAMID, "tnt_s_patch16_224": TNT, "mixer_s32_224": MIXER}

    @cache
    def folder(name: str) -> Path:
        place = tmp_path_factory.mktemp("named") / name
        save_for_hf(timm.create_model(name, num_classes=5, **small.get(name, {})), place, safe_serialization=True)
        return place

    return folder


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("resnet18", {"avg_down": True}, "avg_down=True is not supported"),
        ("resnet26", {"aa_layer": "blur"}, "aa_layer='blur' is not supported"),
        ("resnet18", {"output_stride": 8}, "output_stride=8 is not supported"),
        ("resnetv2_50x1_bit", {"stem_type": "deep"}, "stem_type='deep' is not supported"),
        ("resnetv2_50x1_bit", {"global_pool": "max"}, "global_pool='max' is not supported"),
        ("resnet18", {"block_args": {"attn_layer": "se"}}, "block_args=.* is not supported"),
        ("mixer_s32_224", {"act_layer": "relu"}, "act_layer='relu' is not supported"),
        ("mixer_s32_224", {"embed_dim": 48}, "dim is 512, not 48"),
        ("pvt_v2_b0", {"norm_layer": "rmsnorm"}, "norm_layer='rmsnorm' is not supported"),
        ("pvt_v2_b0", {"linear": True}, "pooled is False, not True"),
        ("pvt_v2_b0", {"sr_ratios": [4, 4, 2, 1]}, r"reductions is \(8, 4, 2, 1\), not \(4, 4, 2, 1\)"),
        ("tnt_s_patch16_224", {"global_pool": "avg"}, "global_pool='avg' is not supported"),
        ("tnt_s_patch16_224", {"embed_dim": 48}, "dim is 24, not 48"),
        ("tnt_s_patch16_224", {"legacy": True}, "legacy is False, not True"),
    ],
)
def test_an_argument_that_changes_the_answer_is_refused_by_name(name, arguments, told, named, tmp_path):
    (tmp_path / "model.safetensors").symlink_to(named(name) / "model.safetensors")
    values = json.loads((named(name) / "config.json").read_text())
    changed = {**values, "model_args": {**values.get("model_args", {}), **arguments}}
    (tmp_path / "config.json").write_text(json.dumps(changed))
    with pytest.raises(ModelFileError, match=told):
        from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "name", ["gmixer_12_224", "resmlp_12_224", "swinv2_tiny_window8_256", "resnet50d", "seresnet18", "resnetblur18"]
)
def test_other_networks_of_timms_are_refused_by_name(name, named, tmp_path):
    (tmp_path / "model.safetensors").symlink_to(named("resnet18") / "model.safetensors")
    values = json.loads((named("resnet18") / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**values, "architecture": name}))
    with pytest.raises(ModelFileError, match=f"unknown architecture '{name}'"):
        from_pretrained(tmp_path)


RESIDUAL = {"basic": "timm-resnet-basic", "bottleneck": "timm-resnet", "pre-activation": "timm-bit"}
TABLES = {"timm-mixer": mixer.MODELS, "timm-pvt-v2": pvt_v2.MODELS, "timm-tnt": tnt.MODELS, "timm-swin": swin.MODELS}
NAMED = [(table, name) for table, models in TABLES.items() for name in models]
NAMED += [(RESIDUAL[fields["block"]], name) for name, fields in resnet_timm.MODELS.items()]


@pytest.mark.parametrize(("layout", "name"), NAMED)
def test_every_name_of_timms_is_what_it_is_there(layout, name):
    with torch.device("meta"):
        fields = resnet_timm.MODELS.get(name)
        config = architecture("ResNet").config(**fields, num_classes=7) if fields else vitrail.create_model(name).config
        ours = build(config.changed(num_classes=7)).state_dict()
    written = {key: tuple(value.shape) for key, value in LAYOUTS[layout].write(ours, config.changed(num_classes=7)).items()}
    theirs = timm.create_model(name, num_classes=7, device="meta").state_dict()
    assert written == {key: tuple(value.shape) for key, value in theirs.items()}
    assert LAYOUTS[layout].describe(config)["architecture"] in (name, next(iter(swin.MODELS)))


def small(kind: str, **fields) -> TrainedModel:
    """A small model of an architecture with three classes."""
    if kind == "ResNet":
        return residual(**fields)
    four = {"dims": (8, 16, 24, 32), "depths": (1, 1, 2, 1), "heads": (1, 2, 2, 4), "mlp_ratios": (2, 2, 2, 2)}
    usual = {
        "CvT": {
            "dims": (64, 64),
            "depths": (1, 2),
            "heads": (1, 1),
            "patch_sizes": (7, 3),
            "strides": (4, 2),
            "paddings": (2, 1),
        },
        "Mixer": {"image_size": 16, "patch_size": 4, "dim": 24, "depth": 2, "token_dim": 12, "channel_dim": 40},
        "PVT": four,
        "PVTv2": four,
        "Swin": {"dim": 8, "depths": (1, 2), "heads": (1, 2), "image_size": 224},
        "TNT": {"image_size": 32, "dim": 24, "word_dim": 8, "depth": 1, "heads": 3, "word_heads": 2},
        "T2T": {"dim": 128, "depth": 2, "heads": 2, "mlp_dim": 48, "token_dim": 8, "random_features": 4},
    }[kind]
    config = architecture(kind).config(**{"image_size": 64, "num_classes": 3, **usual, **fields})
    model = random_weights(build(config))
    return TrainedModel(model, ["ant", "bee", "cat"], vitrail.Preparation.standard(config.image_size, 3))


ONE = {"width": 64, "depths": (1, 1, 1, 1), "root": "cifar"}


@pytest.mark.parametrize(
    ("kind", "layout", "fields", "told"),
    [
        ("CvT", "cvt", {}, "activation is quick-gelu, would be read as gelu"),
        ("CvT", "cvt", {"activation": "gelu", "depths": (1, 1)}, "stage 2 with fewer than 2 blocks: 1"),
        ("Mixer", "timm", {"norm_eps": 1e-3}, "epsilon of 0.001, only of 1e-6"),
        ("Mixer", "timm", {}, "timm has no Mixer of width 24, depth 2 and patches of 4×4"),
        ("Mixer", "torchvision", {}, "the layout cannot hold a MLP-Mixer"),
        ("PVT", "pvt", {}, "grid_norm_eps is 1e-05, would be read as 1e-06"),
        ("PVT", "pvt", {"image_size": (64, 96)}, "images that are not square"),
        ("PVT", "pvt", {"image_size": 16, "grid_norm_eps": 1e-6}, "positions for patches of 4-2-2-2 in images of 16 pixels"),
        ("PVT", "pvt", {"mlp_ratios": (2, 2.5, 2, 2)}, "integer MLP ratios, not 2-2.5-2-2"),
        ("PVTv2", "timm", {"patch_sizes": (3, 3, 3, 3), "strides": (2, 2, 2, 2)}, "patches of 3-3-3-3"),
        ("PVTv2", "timm", {"strides": (4, 2, 2, 1)}, r"strides is \(4, 2, 2, 1\), would be read as \(4, 2, 2, 2\)"),
        ("PVTv2", "pvt-v2", {}, "grid_norm_eps is 1e-05, would be read as 1e-06"),
        ("Swin", "timm", {"norm_eps": 1e-6}, "norm_eps is 1e-06, would be read as 1e-05"),
        ("Swin", "swin", {"norm_eps": 1e-6}, "norm_eps is 1e-06, would be read as 1e-05"),
        ("TNT", "timm", {"mlp_ratio": 2}, "MLP ratio 2 and norm epsilon 1e-05, only of 4 and 1e-5"),
        ("ResNet", "timm", {}, "ResNet with width 32 and 2 stages, instead of 64 and 4"),
        ("ResNet", "timm", {"block": "pre-activation"}, "timm has no BiT of depths 1-1"),
        ("ResNet", "timm", ONE, "root of one 3×3 convolution"),
        ("ResNet", "torchvision", {"block": "basic"}, "width 32 and 2 stages"),
        ("ResNet", "bit", {"block": "pre-activation", "width": 16}, "width 16, which 32 groups do not divide"),
        ("ResNet", "bit", {"block": "pre-activation", "depths": (1,) * 5}, "more than four stages"),
        ("ResNet", "google", {"block": "pre-activation", "root": "cifar"}, "root of one 3×3 convolution"),
        ("ResNet", "google", {}, "the layout cannot hold a Residual network of bottleneck blocks 1-1"),
        *((LAYOUTS[name].reading.architecture, name, {}, "can be read but not written") for name in (
            "cvt-original", "google-mixer", "pvt-original", "pvt-v2-original", "swin-original", "tnt-original", "t2t",
        )),
    ],
)  # fmt: skip
def test_what_a_layout_cannot_hold_is_not_written_and_our_own_holds_it(kind, layout, fields, told, tmp_path):
    model = small(kind, **fields)
    with pytest.raises(ConfigError, match=told):
        vitrail.convert(model, tmp_path / f"out{'.npz' if 'google' in layout else '.safetensors'}", layout=layout)
    model.save_pretrained(tmp_path / "own", layout="vitrail")
    assert json.loads((tmp_path / "own" / "config.json").read_text())["architectures"] == [kind]
    seen = images(size=model.config.image_size)
    assert alike(from_pretrained(tmp_path / "own"), model, seen)


@pytest.mark.parametrize(("kind", "fields"), [("SwinForImageClassification", SWIN), ("ResNetModel", BASIC), ("BitModel", RESNET)])
def test_a_file_alone_of_transformers_tells_the_same(kind, fields, tmp_path):
    theirs = of_transformers(kind, **fields)
    theirs.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "alone.safetensors")
    (tmp_path / "config.json").unlink()
    assert alike(from_pretrained(tmp_path / "alone.safetensors"), Answering(theirs), images(3, (112, 224)))


def test_a_cvt_without_the_last_norm_is_refused_by_name(tmp_path):
    transformers.CvtModel(transformers.CvtConfig(**CVT)).save_pretrained(tmp_path)
    for reference in (tmp_path, tmp_path / "model.safetensors"):
        with pytest.raises(
            ModelFileError, match=r"nearest to transformers' CvT: .*missing: layernorm\.bias; layernorm\.weight\n"
        ):
            from_pretrained(reference)


def test_counters_of_batches_keep_their_type(tmp_path):
    residual(root="cifar").save_pretrained(tmp_path / "out")
    from_pretrained(tmp_path / "out").save_pretrained(tmp_path / "again")
    assert load_file(tmp_path / "again" / "model.safetensors")["features.root.1.num_batches_tracked"].dtype == torch.int64

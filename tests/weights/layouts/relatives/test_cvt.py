"""CvT of transformers and of its authors is read and written with the same logits, or refused by name."""

import json
import re

import pytest
import transformers
from residual_networks import alike, batches, images, random_weights
from safetensors.torch import load_file, save_file
from sweep.writing import Answering
from torch import nn

import vitrail
from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.configs.cvt import CvTConfig
from vitrail.models.vision.cvt import CvT
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import from_pretrained

SMALL = {"embed_dim": [8, 16, 24], "num_heads": [1, 2, 3], "depth": [1, 2, 3], "id2label": {0: "ant", 1: "bee", 2: "cat"}}
TWO = {
    "embed_dim": [8, 12], "num_heads": [2, 4], "depth": [1, 2], "mlp_ratio": [2.0, 2.0], "patch_sizes": [4, 2],
    "patch_stride": [4, 2], "patch_padding": [0, 1], "num_channels": 1,
    **{name: [value] * 2 for name, value in {
        "drop_rate": 0.0, "attention_drop_rate": 0.0, "drop_path_rate": 0.0, "qkv_bias": True, "kernel_qkv": 3, "stride_q": 1,
        "stride_kv": 2, "padding_q": 1, "padding_kv": 1, "qkv_projection_method": "dw_bn"}.items()},
    "cls_token": [False, True],
}  # fmt: skip
"""Two stages with patches of other sides."""


def of_transformers(**fields) -> nn.Module:
    return random_weights(transformers.CvtForImageClassification(transformers.CvtConfig(**{**SMALL, **fields})))


@pytest.mark.parametrize("fields", [{}, TWO, {"id2label": {}}])
def test_a_folder_of_transformers_is_read_and_written_and_read_by_transformers(fields, tmp_path):
    theirs = of_transformers(**fields)
    theirs.save_pretrained(tmp_path / "theirs")
    seen = images(fields.get("num_channels", 3))
    ours = from_pretrained(tmp_path / "theirs")
    assert alike(ours, Answering(theirs), seen) and ours.config.activation == "gelu"
    ours.save_pretrained(tmp_path / "ours")
    again, report = transformers.CvtForImageClassification.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    assert alike(Answering(again.eval()), Answering(theirs), seen)
    assert batches(again.state_dict()) == batches(theirs.state_dict())
    assert alike(from_pretrained(tmp_path / "ours"), Answering(theirs), seen)


def originals(ours: nn.Module) -> dict:
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


def small(**fields) -> TrainedModel:
    config = CvTConfig(**{"dims": (64, 64), "depths": (1, 2), "heads": (1, 1), "patch_sizes": (7, 3), "strides": (4, 2),
                          "paddings": (2, 1), "num_classes": 3, "image_size": 64, **fields})  # fmt: skip
    return TrainedModel(random_weights(CvT(config)), ["ant", "bee", "cat"], vitrail.Preparation.standard((64, 64), 3))


def test_a_file_of_the_authors_is_read_with_quick_gelu_and_written(tmp_path, capsys):
    model = small()
    save_file(originals(model.model), tmp_path / "theirs.safetensors")
    ours = from_pretrained(tmp_path / "theirs.safetensors", image_size=64)
    told = capsys.readouterr().err
    assert "recognised the authors' CvT" in told
    assert "guessed, as the file does not say: activation quick-gelu, heads 1-1, strides 4-2, paddings 2-1" in told
    assert ours.config == model.config and alike(ours, model, images())
    assert from_pretrained(tmp_path / "theirs.safetensors", activation="gelu").config.activation == "gelu"
    vitrail.convert(ours, tmp_path / "ours.safetensors", layout="cvt-original")
    written, expected = load_file(tmp_path / "ours.safetensors"), originals(model.model)
    assert written.keys() == expected.keys() and all(written[name].equal(expected[name]) for name in expected)


@pytest.mark.parametrize(
    ("fields", "told"),
    [({"dims": (24, 48)}, "do not tell heads"), ({"patch_sizes": (5, 3)}, "do not tell strides")],
)
def test_what_a_file_does_not_tell_must_be_said(fields, told, tmp_path):
    model = small(**fields)
    save_file(originals(model.model), tmp_path / "theirs.safetensors")
    with pytest.raises(ModelFileError, match=told):
        from_pretrained(tmp_path / "theirs.safetensors")
    known = {"heads": (1, 1), "strides": (4, 2), "paddings": (2, 1)}
    assert from_pretrained(tmp_path / "theirs.safetensors", **known).config.dims == model.config.dims


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"stride_kv": [1, 1, 1]}, r"stride_kv \[1, 1, 1\] is not known here"),
        ({"padding_q": [1, 1, 2]}, r"padding_q \[1, 1, 2\] is not known here"),
        ({"something": 3}, "something is not understood"),
        ({"num_heads": [1, 5, 3]}, "heads"),
    ],
)
def test_a_field_of_transformers_that_changes_the_answer_is_refused_by_name(fields, told, tmp_path):
    of_transformers().save_pretrained(tmp_path / "theirs")
    values = json.loads((tmp_path / "theirs" / "config.json").read_text())
    (tmp_path / "theirs" / "config.json").write_text(json.dumps({**values, **fields}))
    with pytest.raises((ModelFileError, ConfigError), match=told):
        from_pretrained(tmp_path / "theirs")


def test_a_model_without_the_last_norm_is_refused_by_name(tmp_path):
    transformers.CvtModel(transformers.CvtConfig(**SMALL)).save_pretrained(tmp_path)
    for reference in (tmp_path, tmp_path / "model.safetensors"):
        with pytest.raises(
            ModelFileError, match=r"nearest to transformers' CvT, .*missing: layernorm\.bias; layernorm\.weight\n"
        ):
            from_pretrained(reference)


def test_what_a_layout_cannot_hold_is_not_written(tmp_path):
    with pytest.raises(ConfigError, match="activation is quick-gelu, there gelu"):
        vitrail.convert(small(), tmp_path / "out", layout="cvt")
    with pytest.raises(ConfigError, match="activation is gelu, there quick-gelu"):
        vitrail.convert(small(activation="gelu"), tmp_path / "out.safetensors", layout="cvt-original")
    with pytest.raises(ConfigError, match="no stage 2 of 1 blocks"):
        vitrail.convert(small(activation="gelu", depths=(1, 1)), tmp_path / "out", layout="cvt")
    small().save_pretrained(tmp_path / "own")
    assert json.loads((tmp_path / "own" / "config.json").read_text())["architectures"] == ["CvT"]
    small(activation="gelu").save_pretrained(tmp_path / "theirs")
    assert json.loads((tmp_path / "theirs" / "config.json").read_text())["model_type"] == "cvt"

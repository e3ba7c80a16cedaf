"""PVT v2 of its authors, timm and transformers is read and written with the same logits, or refused by name."""

import json

import pytest
import timm
import torch
import transformers
from residual_networks import alike, images, random_weights
from safetensors.torch import load_file, save_file
from sweep.writing import Answering
from timm.models import save_for_hf
from timm.models.pvt_v2 import checkpoint_filter_fn

import vitrail
from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.configs.pvt_v2 import PVTv2Config
from vitrail.models.vision.pvt_v2 import PVTv2
from vitrail.weights.layouts import LAYOUTS
from vitrail.weights.layouts.relatives.pvt_v2 import MODELS
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import from_pretrained

HEADS = (1, 2, 2, 4)
SMALL = {"dims": (8, 16, 24, 32), "depths": (1, 1, 2, 1), "heads": HEADS, "mlp_ratios": (2, 2.7, 2, 2)}
TIMM = {"embed_dims": SMALL["dims"], "depths": SMALL["depths"], "num_heads": HEADS, "mlp_ratios": SMALL["mlp_ratios"]}
THEIRS = {
    "hidden_sizes": [8, 16], "depths": [1, 2], "num_attention_heads": [2, 4], "sr_ratios": [4, 1], "mlp_ratios": [2, 3],
    "patch_sizes": [5, 3], "strides": [3, 2], "num_encoder_blocks": 2,
}  # fmt: skip
NAMES = {"id2label": {0: "ant", 1: "bee", 2: "cat"}, "label2id": {"ant": 0, "bee": 1, "cat": 2}}


def trained(**fields) -> TrainedModel:
    model = random_weights(PVTv2(PVTv2Config(**{**SMALL, "image_size": 64, "num_classes": 3, **fields})))
    return TrainedModel(model, ["ant", "bee", "cat"], vitrail.Preparation.standard((64, 64), 3))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("pvt_v2_b2", {}),
        ("pvt_v2_b2_li", {"in_chans": 1, "num_classes": 0}),
        ("pvt_v2_b0", {"sr_ratios": (4, 2, 1, 1), "qkv_bias": False, "drop_path_rate": 0.1}),
        ("pvt_v2_b0", {"linear": True}),
    ],
)
def test_a_folder_of_timms_is_read_and_written_and_read_by_timm(name, arguments, tmp_path):
    theirs = random_weights(timm.create_model(name, **{**TIMM, "num_classes": 3, **arguments}))
    save_for_hf(theirs, tmp_path / "theirs", safe_serialization=True)
    seen = images(arguments.get("in_chans", 3))
    ours = from_pretrained(tmp_path / "theirs")
    assert alike(ours, theirs, seen) and ours.config.image_size == (224, 224)
    ours.save_pretrained(tmp_path / "ours", layout="timm")
    again = timm.create_model(f"local-dir:{tmp_path / 'ours'}", pretrained=True).eval()
    assert alike(again, theirs, seen)
    assert alike(from_pretrained(tmp_path / "ours"), theirs, seen)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("PvtV2ForImageClassification", {}),
        ("PvtV2ForImageClassification", {"linear_attention": True, "image_size": [64, 80]}),
        ("PvtV2Model", {"num_channels": 1, "layer_norm_eps": 1e-3}),
    ],
)
def test_a_folder_of_transformers_is_read_and_written_and_read_by_transformers(kind, fields, tmp_path):
    made = getattr(transformers, kind)
    theirs = random_weights(made(made.config_class(**{**THEIRS, **NAMES, **fields})))
    theirs.save_pretrained(tmp_path / "theirs")
    seen = images(fields.get("num_channels", 3))

    def answers(model) -> Answering | Mean:
        return Answering(model) if "Classification" in kind else Mean(model)

    ours = from_pretrained(tmp_path / "theirs")
    assert alike(ours, answers(theirs), seen)
    assert ours.config.image_size == tuple(fields.get("image_size", (224, 224)))
    ours.save_pretrained(tmp_path / "ours")
    again, report = made.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    assert alike(answers(again.eval()), answers(theirs), seen)
    assert alike(from_pretrained(tmp_path / "ours"), answers(theirs), seen)


class Mean(torch.nn.Module):
    """What a head would read of a model of transformers without one."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.model(images).last_hidden_state.mean(dim=(2, 3))


@pytest.mark.parametrize("pooled", [False, True])
def test_a_file_of_the_authors_is_written_as_timm_reads_theirs_and_read(pooled, tmp_path):
    model = trained(pooled=pooled)
    vitrail.convert(model, tmp_path / "out.safetensors", layout="pvt-v2-original")
    state = load_file(tmp_path / "out.safetensors")
    theirs = timm.models.pvt_v2.PyramidVisionTransformerV2(**TIMM, num_classes=3, linear=pooled).eval()
    theirs.load_state_dict(checkpoint_filter_fn(state, theirs))
    assert alike(model, theirs, images())
    again = from_pretrained(tmp_path / "out.safetensors", heads=HEADS)
    assert torch.equal(again(images()), model(images()))
    torch.save({"model": state, "epoch": 300}, tmp_path / "theirs.pth")
    assert from_pretrained(tmp_path / "theirs.pth", trust_pickle=True, heads=HEADS).config.pooled == pooled
    with pytest.raises(ModelFileError, match="do not tell how many heads there are in stages of 8-16-24-32"):
        from_pretrained(tmp_path / "theirs.pth", trust_pickle=True)


def test_a_bare_file_of_a_size_of_the_paper_is_read_with_its_heads_guessed_aloud(tmp_path, capsys):
    theirs = random_weights(timm.create_model("pvt_v2_b0", num_classes=3, depths=(1, 1, 1, 1)))
    save_file(theirs.state_dict(), tmp_path / "theirs.safetensors")
    assert alike(from_pretrained(tmp_path / "theirs.safetensors"), theirs, images())
    told = capsys.readouterr().err
    assert "recognised timm's PVT v2" in told and "guessed, as the file does not say: 1-2-5-8 heads, GELU, norm_eps" in told
    assert "strides 4-2-2-2" in told


def test_every_name_of_timms_is_what_it_is_there():
    assert sorted(MODELS) == sorted(timm.list_models("pvt_v2_*"))
    for name in MODELS:
        with torch.device("meta"):
            ours = vitrail.create_model(name)
        written = {key: tuple(value.shape) for key, value in LAYOUTS["timm-pvt-v2"].write(ours.state_dict(), ours.config).items()}
        theirs = timm.create_model(name, device="meta").state_dict()
        assert written == {key: tuple(value.shape) for key, value in theirs.items()}


@pytest.mark.parametrize(
    ("layout", "fields", "told"),
    [
        ("timm", {"patch_sizes": (3, 3, 3, 3), "strides": (2, 2, 2, 2)}, "patches of 3-3-3-3"),
        ("pvt-v2-original", {"strides": (4, 2, 2, 1)}, r"strides is \(4, 2, 2, 1\), there \(4, 2, 2, 2\)"),
        ("timm", {"norm_eps": 1e-5}, "norm_eps is 1e-05, there 1e-06"),
        ("pvt-v2", {"mlp_ratios": (2, 2, 2, 2)}, "grid_norm_eps is 1e-05, there 1e-06"),
        (
            "pvt-v2-original",
            {"dims": (8, 16), "depths": (1, 1), "heads": (1, 2), "reductions": (2, 1), "mlp_ratios": (2, 2),
             "patch_sizes": (7, 3), "strides": (4, 2)},
            "2 stages, in place of 4",
        ),
    ],
)  # fmt: skip
def test_what_a_layout_cannot_hold_is_not_written(layout, fields, told, tmp_path):
    with pytest.raises(ConfigError, match=told):
        vitrail.convert(trained(**fields), tmp_path / "out", layout=layout)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"norm_layer": "rmsnorm"}, "norm_layer='rmsnorm' is not known here"),
        ({"global_pool": ""}, "global_pool='' is not known here"),
        ({"linear": True}, "pooled is False, not True"),
        ({"sr_ratios": [4, 4, 2, 1]}, r"reductions is \(8, 4, 2, 1\), not \(4, 4, 2, 1\)"),
    ],
)
def test_an_argument_that_changes_the_answer_is_refused_by_name(arguments, told, tmp_path):
    save_for_hf(timm.create_model("pvt_v2_b0", **TIMM), tmp_path, safe_serialization=True)
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**values, "model_args": {**values.get("model_args", {}), **arguments}}))
    with pytest.raises(ModelFileError, match=told):
        from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("fields", "told"),
    [({"hidden_act": "relu"}, "hidden_act 'relu' is not known here"), ({"linear_attention": True}, "pooled is False, not True")],
)
def test_a_field_of_transformers_that_changes_the_answer_is_refused_by_name(fields, told, tmp_path):
    transformers.PvtV2Model(transformers.PvtV2Config(**THEIRS)).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **fields}))
    with pytest.raises(ModelFileError, match=told):
        from_pretrained(tmp_path)

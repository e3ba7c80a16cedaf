"""PVT of its authors and of transformers is read and written with the same logits, or refused by name."""

import json

import pytest
import torch
import transformers
from residual_networks import alike, images, random_weights
from safetensors.torch import load_file, save_file
from sweep.writing import Answering

import vitrail
from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.configs.pvt import PVTConfig
from vitrail.models.vision.pvt import PVT
from vitrail.weights.convert import convert
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import from_pretrained

SMALL = {"dims": (8, 16, 24, 32), "depths": (1, 1, 2, 1), "heads": (1, 2, 2, 4), "mlp_ratios": (2, 2, 2, 2), "image_size": 64}
THEIRS = {
    "image_size": 64, "hidden_sizes": [8, 16], "depths": [1, 2], "num_attention_heads": [2, 4],
    "sequence_reduction_ratios": [4, 1], "mlp_ratios": [2, 3], "patch_sizes": [4, 2], "strides": [4, 2],
    "num_encoder_blocks": 2,
}  # fmt: skip
NAMES = {"num_labels": 3, "id2label": {0: "ant", 1: "bee", 2: "cat"}, "label2id": {"ant": 0, "bee": 1, "cat": 2}}


def trained(**fields) -> TrainedModel:
    config = PVTConfig(**{**SMALL, "num_classes": 3, **fields})
    return TrainedModel(random_weights(PVT(config)), ["ant", "bee", "cat"], vitrail.Preparation.standard(config.image_size, 3))


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("PvtForImageClassification", {}),
        ("PvtModel", {"num_channels": 1, "qkv_bias": False}),
        ("PvtForImageClassification", {"layer_norm_eps": 1e-3}),
    ],
)
def test_a_folder_of_transformers_is_read_and_written_and_read_by_transformers(kind, fields, tmp_path):
    made = getattr(transformers, kind)
    theirs = random_weights(made(made.config_class(**{**THEIRS, **NAMES, **fields})))
    theirs.save_pretrained(tmp_path / "theirs")
    seen = images(fields.get("num_channels", 3), (64, 64))

    def answers(model) -> Answering | ClassToken:
        return Answering(model) if "Classification" in kind else ClassToken(model)

    ours = from_pretrained(tmp_path / "theirs")
    assert alike(ours, answers(theirs), seen)
    ours.save_pretrained(tmp_path / "ours")
    again, report = made.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    assert alike(answers(again.eval()), answers(theirs), seen)
    assert alike(from_pretrained(tmp_path / "ours"), answers(theirs), seen)


class ClassToken(torch.nn.Module):
    """What a head would read of a model of transformers without one."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.model(images).last_hidden_state[:, 0]


def test_one_epsilon_for_all_norms_is_what_a_folder_of_transformers_can_say(tmp_path):
    with pytest.raises(ConfigError, match="grid_norm_eps is 1e-05, there 1e-06"):
        vitrail.convert(trained(), tmp_path / "out", layout="pvt")
    trained().save_pretrained(tmp_path / "own")
    assert json.loads((tmp_path / "own" / "config.json").read_text())["architectures"] == ["PVT"]
    trained(grid_norm_eps=1e-6).save_pretrained(tmp_path / "theirs")
    assert json.loads((tmp_path / "theirs" / "config.json").read_text())["architectures"] == ["PvtForImageClassification"]


BLOCK = ["norm1", "attn.q", "attn.kv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2"]
BOTH = ("weight", "bias")
AUTHORS = {
    "cls_token", *(f"pos_embed{stage}" for stage in (1, 2, 3, 4)),
    *(f"{layer}.{kind}" for layer in ("head", "norm") for kind in BOTH),
    *(f"patch_embed{stage}.{layer}.{kind}" for stage in (1, 2, 3, 4) for layer in ("proj", "norm") for kind in BOTH),
    *(
        f"block{stage}.{block}.{layer}.{kind}"
        for stage, block in ((1, 0), (2, 0), (3, 0), (3, 1), (4, 0))
        for layer in (*BLOCK, *(("attn.sr", "attn.norm") if stage < 4 else ()))
        for kind in BOTH
    ),
}  # fmt: skip
"""The keys of their files."""


def test_a_file_of_the_authors_is_written_and_read(tmp_path, capsys):
    model = trained()
    vitrail.convert(model, tmp_path / "out.safetensors", layout="pvt-original")
    state = load_file(tmp_path / "out.safetensors")
    assert state.keys() == AUTHORS
    assert state["pos_embed1"].shape == (1, 256, 8) and state["pos_embed4"].shape == (1, 5, 32)
    again = from_pretrained(tmp_path / "out.safetensors")
    assert again.config == model.config and torch.equal(again(images(size=(64, 64))), model(images(size=(64, 64))))
    save_file(state, tmp_path / "theirs.safetensors")
    with pytest.raises(ModelFileError, match="do not tell how many heads there are in stages of 8-16-24-32"):
        from_pretrained(tmp_path / "theirs.safetensors")
    torch.save({"model": state, "epoch": 300}, tmp_path / "theirs.pth")
    assert from_pretrained(tmp_path / "theirs.pth", trust_pickle=True, heads=(1, 2, 2, 4)).config == model.config


def test_the_command_line_takes_the_heads_of_every_stage(tmp_path, vitrail):
    convert(trained(), tmp_path / "ours.safetensors", layout="pvt-original")
    save_file(load_file(tmp_path / "ours.safetensors"), tmp_path / "x.safetensors")
    answer = vitrail("convert", tmp_path / "x.safetensors", tmp_path / "y")
    assert answer.code == 4 and "--heads 1,2,5,8" in answer.err
    assert vitrail("convert", tmp_path / "x.safetensors", tmp_path / "y", "--heads", "1,2,2,4").code == 0
    assert from_pretrained(tmp_path / "y").config.heads == (1, 2, 2, 4)
    for text in ("1,2,", "1,x", "2.5"):
        answer = vitrail("convert", tmp_path / "x.safetensors", tmp_path / "z", "--heads", text)
        assert answer.code == 2 and "is no whole number" in answer.err


def test_heads_of_the_papers_widths_are_guessed_aloud(tmp_path, capsys):
    model = trained(dims=(64, 128, 320, 512), heads=(1, 2, 5, 8), depths=(1, 1, 1, 1), mlp_ratios=(0.5, 0.5, 0.5, 0.5))
    vitrail.convert(model, tmp_path / "out.safetensors", layout="pvt-original")
    save_file(load_file(tmp_path / "out.safetensors"), tmp_path / "bare.safetensors")
    assert from_pretrained(tmp_path / "bare.safetensors").config == model.config
    assert "guessed, as the file does not say: 1-2-5-8 heads, GELU, norm_eps 1e-06, grid_norm_eps" in capsys.readouterr().err


def test_images_of_another_size_have_positions_as_a_pass_would_resize_them(tmp_path):
    model = trained()
    vitrail.convert(model, tmp_path / "out.safetensors", layout="pvt-original")
    again = from_pretrained(tmp_path / "out.safetensors", heads=(1, 2, 2, 4), image_size=(96, 32))
    seen = images(size=(96, 32))
    assert again.config.image_size == (96, 32)
    torch.testing.assert_close(again(seen), model(seen), rtol=0, atol=1e-5 * model(seen).abs().max().item())


@pytest.mark.parametrize(
    ("layout", "fields", "told"),
    [
        ("pvt-original", {"image_size": (64, 96)}, "images that are not square"),
        ("pvt-original", {"patch_sizes": (2, 2, 2, 2)}, "positions for patches of 2-2-2-2 in images of 64 pixels"),
        ("pvt", {"image_size": 16, "grid_norm_eps": 1e-6}, "positions for patches of 4-2-2-2 in images of 16 pixels"),
        ("pvt", {"mlp_ratios": (2, 2.5, 2, 2)}, "transformers has no MLPs of 2-2.5-2-2 times the width"),
        ("pvt-original", {"norm_eps": 1e-5}, "norm_eps is 1e-05, there 1e-06"),
        (
            "pvt-original",
            {
                "dims": (8, 16),
                "depths": (1, 1),
                "heads": (1, 2),
                "reductions": (2, 1),
                "mlp_ratios": (2, 2),
                "patch_sizes": (4, 2),
            },
            r"it has no place for stages\.1\.embedding\.class_token",
        ),
        ("timm", {}, "no such layout can hold a Pyramid Vision Transformer"),
    ],
)
def test_what_a_layout_cannot_hold_is_not_written(layout, fields, told, tmp_path):
    with pytest.raises(ConfigError, match=told):
        vitrail.convert(trained(**fields), tmp_path / "out", layout=layout)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"hidden_act": "relu"}, "hidden_act 'relu' is not known here"),
        ({"patch_sizes": [2, 2]}, r"patch_sizes is \(4, 2\), not \(2, 2\)"),
        ({"num_attention_heads": [3, 4]}, "not divisible by heads 3"),
        ({"something": 1}, "something is not understood"),
    ],
)
def test_a_field_that_changes_the_answer_is_refused_by_name(fields, told, tmp_path):
    transformers.PvtModel(transformers.PvtConfig(**THEIRS)).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **fields}))
    with pytest.raises(ModelFileError, match=told):
        from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda state: state.pop("cls_token"), "missing: cls_token"),
        (lambda state: state.pop("pos_embed1"), "no pos_embed1"),
        (
            lambda state: state.update({"block1.0.attn.sr.weight": torch.zeros(8, 8)}),
            r"block1\.0\.attn\.sr\.weight of the shape \(8, 8\)",
        ),
        (lambda state: state.update({"pos_embed1": torch.zeros(1, 255, 8)}), "255 positions form no square"),
        (lambda state: state.update({"pos_embed2": torch.zeros(1, 63, 16)}), r"wrong shape: pos_embed2 \(1, 63, 16\)"),
        (lambda state: [state.pop(name) for name in list(state) if "block2" in name], "stage 1 has no blocks"),
    ],
)
def test_a_damaged_file_is_refused(change, told, tmp_path):
    vitrail.convert(trained(), tmp_path / "out.safetensors", layout="pvt-original")
    state = load_file(tmp_path / "out.safetensors")
    change(state)
    save_file(state, tmp_path / "bad.safetensors")
    with pytest.raises(ModelFileError, match=told):
        from_pretrained(tmp_path / "bad.safetensors", heads=(1, 2, 2, 4))

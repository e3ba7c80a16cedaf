"""PVT of its authors and of transformers is read and written with the same logits, or refused by name."""

import pytest
import torch
from residual_networks import authors_file, images, random_weights
from safetensors.torch import save_file

import vitrail
from vitrail.errors import ModelFileError
from vitrail.models.configs.pvt import PVTConfig
from vitrail.models.vision.pvt import PVT
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import from_pretrained

SMALL = {"dims": (8, 16, 24, 32), "depths": (1, 1, 2, 1), "heads": (1, 2, 2, 4), "mlp_ratios": (2, 2, 2, 2), "image_size": 64}


def trained(**fields) -> TrainedModel:
    config = PVTConfig(**{**SMALL, "num_classes": 3, **fields})
    return TrainedModel(random_weights(PVT(config)), ["ant", "bee", "cat"], vitrail.Preparation.standard(config.image_size, 3))


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
    state = authors_file(model, "pvt-original", tmp_path / "theirs.safetensors")
    assert state.keys() == AUTHORS
    assert state["pos_embed1"].shape == (1, 256, 8) and state["pos_embed4"].shape == (1, 5, 32)
    again = from_pretrained(tmp_path / "theirs.safetensors", heads=(1, 2, 2, 4))
    assert again.config == model.config and torch.equal(again(images(size=(64, 64))), model(images(size=(64, 64))))
    with pytest.raises(ModelFileError, match="do not show the number of heads in stages of width 8-16-24-32"):
        from_pretrained(tmp_path / "theirs.safetensors")
    torch.save({"model": state, "epoch": 300}, tmp_path / "theirs.pth")
    assert from_pretrained(tmp_path / "theirs.pth", trust_pickle=True, heads=(1, 2, 2, 4)).config == model.config


def test_the_command_line_takes_the_heads_of_every_stage(tmp_path, vitrail):
    authors_file(trained(), "pvt-original", tmp_path / "x.safetensors")
    answer = vitrail("convert", tmp_path / "x.safetensors", tmp_path / "y")
    assert answer.code == 4 and "--heads 1,2,5,8" in answer.err
    assert vitrail("convert", tmp_path / "x.safetensors", tmp_path / "y", "--heads", "1,2,2,4").code == 0
    assert from_pretrained(tmp_path / "y").config.heads == (1, 2, 2, 4)
    for text in ("1,2,", "1,x", "2.5"):
        answer = vitrail("convert", tmp_path / "x.safetensors", tmp_path / "z", "--heads", text)
        assert answer.code == 2 and "is no whole number" in answer.err


def test_heads_of_the_papers_widths_are_guessed_aloud(tmp_path, capsys):
    model = trained(dims=(64, 128, 320, 512), heads=(1, 2, 5, 8), depths=(1, 1, 1, 1), mlp_ratios=(0.5, 0.5, 0.5, 0.5))
    authors_file(model, "pvt-original", tmp_path / "bare.safetensors")
    assert from_pretrained(tmp_path / "bare.safetensors").config == model.config
    assert "guessed, as the file does not say: heads 1-2-5-8, GELU, norm_eps 1e-06, grid_norm_eps" in capsys.readouterr().err


def test_images_of_another_size_have_positions_as_a_pass_would_resize_them(tmp_path):
    model = trained()
    authors_file(model, "pvt-original", tmp_path / "out.safetensors")
    again = from_pretrained(tmp_path / "out.safetensors", heads=(1, 2, 2, 4), image_size=(96, 32))
    seen = images(size=(96, 32))
    assert again.config.image_size == (96, 32)
    torch.testing.assert_close(again(seen), model(seen), rtol=0, atol=1e-5 * model(seen).abs().max().item())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda state: state.pop("cls_token"), "missing: cls_token"),
        (lambda state: state.pop("pos_embed1"), "no pos_embed1"),
        (
            lambda state: state.update({"block1.0.attn.sr.weight": torch.zeros(8, 8)}),
            r"block1\.0\.attn\.sr\.weight has the shape \(8, 8\)",
        ),
        (lambda state: state.update({"pos_embed1": torch.zeros(1, 255, 8)}), "255 patches form no square"),
        (lambda state: state.update({"pos_embed2": torch.zeros(1, 63, 16)}), r"wrong shape: pos_embed2 \(1, 63, 16\)"),
        (lambda state: [state.pop(name) for name in list(state) if "block2" in name], "stage 1 has no blocks"),
    ],
)
def test_a_damaged_file_is_refused(change, told, tmp_path):
    state = authors_file(trained(), "pvt-original", tmp_path / "out.safetensors")
    change(state)
    save_file(state, tmp_path / "bad.safetensors")
    with pytest.raises(ModelFileError, match=told):
        from_pretrained(tmp_path / "bad.safetensors", heads=(1, 2, 2, 4))

"""The authors' T2T-ViTs are read and written with the same numbers, or refused by name.

That the numbers mean the same as in the authors' code, tests/models/vision/test_t2t.py holds.
"""

import re

import pytest
import torch
from safetensors.torch import save_file

from vitrail.errors import ModelFileError
from vitrail.models.configs.t2t import T2TConfig
from vitrail.models.vision.t2t import T2T
from vitrail.weights.layouts import LAYOUTS
from vitrail.weights.reference import from_pretrained

SMALL = {
    "image_size": 64,
    "dim": 128,
    "depth": 2,
    "heads": 2,
    "mlp_dim": 48,
    "token_dim": 8,
    "random_features": 4,
    "num_classes": 3,
}
BOTH = ("weight", "bias")
PERFORMER = {"w", *(f"{layer}.{part}" for layer in ("kqv", "proj", "mlp.0", "mlp.2") for part in BOTH)}
TRANSFORMER = {"attn.qkv.weight", *(f"{layer}.{part}" for layer in ("attn.proj", "mlp.fc1", "mlp.fc2") for part in BOTH)}


def model(**fields) -> T2T:
    """A model whose numbers all differ from those it was made with."""
    torch.manual_seed(0)
    made = T2T(T2TConfig.read({**SMALL, **fields})).eval()
    for tensor in made.state_dict().values():
        tensor.copy_(tensor + 0.2 * torch.randn(tensor.shape))
    return made


def theirs(made: T2T) -> dict[str, torch.Tensor]:
    return LAYOUTS["t2t"].write(made.state_dict(), made.config)


@pytest.mark.parametrize("mixer", ["performer", "transformer"])
def test_the_authors_checkpoint_is_read(mixer, tmp_path, capsys):
    made = model(token_mixer=mixer)
    tensors = theirs(made)
    layers = {name.split(".", 2)[2] for name in tensors if name.startswith("tokens_to_token.attention")}
    assert layers - {f"norm{i}.{p}" for i in (1, 2) for p in ("weight", "bias")} == (
        PERFORMER if mixer == "performer" else TRANSFORMER
    )
    assert tensors["pos_embed"].shape == (1, 17, 128)
    before = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
    torch.save({"epoch": 3, "state_dict": before, "state_dict_ema": tensors}, tmp_path / "model.pth")
    ours = from_pretrained(tmp_path / "model.pth", trust_pickle=True)
    told = capsys.readouterr().err
    assert "recognised the authors' T2T-ViT" in told and "heads 2, strides 4-2-2, attention_scale width" in told
    assert ours.config.changed(token_dropout=0.1) == made.config.changed(random_features=ours.config.random_features)
    images = torch.randn(2, 3, 64, 64)
    assert torch.equal(ours(images), made(images))
    assert ours.preparation.crop_ratio == pytest.approx(0.9, abs=0.01) and ours.preparation.mean == (0.485, 0.456, 0.406)


def test_a_file_of_grey_images_that_are_no_square_and_of_other_heads_is_read_where_that_is_said(tmp_path):
    made = model(image_size=(64, 96), channels=1, heads=4)
    save_file(theirs(made), tmp_path / "weights.safetensors")
    with pytest.raises(ModelFileError, match="no square image has 24 tokens"):
        from_pretrained(tmp_path / "weights.safetensors")
    ours = from_pretrained(tmp_path / "weights.safetensors", image_size=(64, 96), heads=4, attention_scale="width")
    images = torch.randn(2, 1, 64, 96)
    assert torch.equal(ours(images), made(images))


def test_keys_come_first_in_their_fused_layer():
    made = model()
    weight = theirs(made)["tokens_to_token.attention1.kqv.weight"]
    queries, keys, values = made.embedding.layers[0].mixer.qkv.weight.split(8)
    assert torch.equal(weight, torch.cat([keys, queries, values]))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda name, tensor: None if name == "pos_embed" else tensor, "no pos_embed"),
        (lambda name, tensor: None if name.endswith("attention1.w") else tensor, re.escape("tokens_to_token.attention1.w")),
        (lambda name, tensor: tensor[:99] if "attention1.norm1" in name else tensor, "not square"),
        (lambda name, tensor: tensor[..., :100] if name == "norm.weight" else tensor, r"norm.weight \(100\), expected \(128\)"),
    ],
)
def test_damaged_files_are_refused_by_name(change, told, tmp_path):
    tensors = {name: change(name, tensor) for name, tensor in theirs(model()).items()}
    save_file({name: t.contiguous() for name, t in tensors.items() if t is not None}, tmp_path / "weights.safetensors")
    with pytest.raises(ModelFileError, match=told):
        from_pretrained(tmp_path / "weights.safetensors")


def test_a_width_of_other_heads_must_be_said(tmp_path):
    save_file(theirs(model(dim=24, heads=2)), tmp_path / "weights.safetensors")
    with pytest.raises(ModelFileError, match="the width 24 of tokens is not a multiple of 64"):
        from_pretrained(tmp_path / "weights.safetensors")

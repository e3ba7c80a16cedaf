"""The layout of DiT's authors: read and written with the same outputs as a reference by hand, or refused by name."""

import argparse
import math
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tiny_dit import TINY, batch, ours, trained

from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.configs.dit import PRESETS, DiTConfig
from vitrail.weights.convert import convert
from vitrail.weights.layouts import LAYOUTS
from vitrail.weights.reference import from_pretrained
from vitrail.weights.state_dict import meta_shapes, recognise

SHAPES = [
    {},
    {"channels": 3, "learned_variance": False},
    {"channels": 1, "image_size": 12, "patch_size": 4, "depth": 1},
    {"num_classes": 0},
    {"num_classes": 1000, "heads": 2, "mlp_dim": 48},
]


@torch.no_grad()
def by_hand(state, config, images, times, labels):
    """The authors' forward pass, out of their tensors."""
    size = config.patch_size[0]

    def linear(name, x):
        return F.linear(x, state[f"{name}.weight"], state[f"{name}.bias"])

    def shifted(x, shift, scale):
        return F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale[:, None]) + shift[:, None]

    angles = times[:, None] * torch.exp(-math.log(10000) * torch.arange(128) / 128)
    waves = torch.cat([angles.cos(), angles.sin()], dim=1)
    c = linear("t_embedder.mlp.2", F.silu(linear("t_embedder.mlp.0", waves))) + state["y_embedder.embedding_table.weight"][labels]
    x = F.conv2d(images, state["x_embedder.proj.weight"], state["x_embedder.proj.bias"], stride=size)
    side, x = x.shape[-1], x.flatten(2).transpose(1, 2) + state["pos_embed"]
    for block in (f"blocks.{number}" for number in range(config.depth)):
        vectors = linear(f"{block}.adaLN_modulation.1", F.silu(c)).chunk(6, dim=1)
        q, k, v = linear(f"{block}.attn.qkv", shifted(x, *vectors[:2])).unflatten(2, (3, config.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + vectors[2][:, None] * linear(f"{block}.attn.proj", mixed)
        hidden = F.gelu(linear(f"{block}.mlp.fc1", shifted(x, *vectors[3:5])), approximate="tanh")
        x = x + vectors[5][:, None] * linear(f"{block}.mlp.fc2", hidden)
    x = linear("final_layer.linear", shifted(x, *linear("final_layer.adaLN_modulation.1", F.silu(c)).chunk(2, dim=1)))
    x = x.reshape(len(x), side, side, size, size, -1)
    return torch.einsum("nhwpqc->nchpwq", x).reshape(len(x), -1, side * size, side * size)


@pytest.mark.parametrize("fields", SHAPES, ids=str)
def test_a_file_is_written_and_read_with_the_authors_outputs(fields, tmp_path, capsys):
    model = trained(**fields)
    assert convert(model, tmp_path / "dit.safetensors", layout="dit") == "dit"
    state = load_file(tmp_path / "dit.safetensors")
    inputs = batch(model.config)
    torch.testing.assert_close(ours(model.model, *inputs), by_hand(state, model.config, *inputs), atol=1e-5, rtol=1e-5)
    save_file(state, tmp_path / "bare.safetensors")  # without what we say beside it
    again = from_pretrained(tmp_path / "bare.safetensors", heads=model.config.heads)
    assert again.config == model.config
    assert "recognised its authors' DiT" in capsys.readouterr().err
    torch.testing.assert_close(ours(again.model, *inputs), ours(model.model, *inputs), atol=0, rtol=0)
    whole = from_pretrained(tmp_path / "dit.safetensors")
    assert whole.config == model.config and whole.labels == model.labels and whole.preparation == model.preparation


def test_a_table_of_one_label_is_added_to_every_image(tmp_path):
    state = state_of(tmp_path, num_classes=0)
    state["y_embedder.embedding_table.weight"] = torch.randn(1, 32)
    save_file(state, tmp_path / "one.safetensors")
    model = from_pretrained(tmp_path / "one.safetensors", heads=4)
    inputs = batch(model.config)
    torch.testing.assert_close(ours(model.model, *inputs), by_hand(state, model.config, *inputs), atol=1e-5, rtol=1e-5)


def test_their_keys_are_all_known():
    """The names that their ``models.py`` gives, counted out."""
    written = LAYOUTS["dit"].write(state_in_rows(depth=3), DiTConfig(**{**TINY, "depth": 3}))
    ends = Counter(name.split(".", 2)[2] for name in written if name.startswith("blocks."))
    layers = ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2", "adaLN_modulation.1")
    assert ends == {f"{layer}.{end}": 3 for layer in layers for end in ("weight", "bias")}
    pairs = ("x_embedder.proj", "t_embedder.mlp.0", "t_embedder.mlp.2", "final_layer.linear", "final_layer.adaLN_modulation.1")
    others = {f"{name}.{end}" for name in pairs for end in ("weight", "bias")}
    found = {name for name in written if not name.startswith("blocks.")}
    assert found == others | {"pos_embed", "y_embedder.embedding_table.weight"}
    assert written["pos_embed"].shape == (1, 16, 32) and written["blocks.1.adaLN_modulation.1.weight"].shape == (6 * 32, 32)


def state_in_rows(**fields):
    model = trained(**fields).model
    return LAYOUTS["dit"].reading.share_out(model.state_dict(), model.config, LAYOUTS["dit"])


PUBLISHED = {"DiT-S/2": 32_963_360, "DiT-B/2": 130_512_416, "DiT-L/2": 458_102_816, "DiT-XL/2": 675_129_632}
"""Numbers in the authors' models, with the table of positions."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_sizes_are_recognised_by_their_shapes_alone(name):
    config = DiTConfig.read({**PRESETS[name], "image_size": 32})
    shapes = {name: torch.empty(shape, device="meta") for name, shape in meta_shapes(config).items()}
    layout = LAYOUTS["dit"]
    theirs = {k: tuple(t.shape) for k, t in layout.write(layout.reading.share_out(shapes, config, layout), config).items()}
    assert sum(map(math.prod, theirs.values())) == PUBLISHED[name]
    found = recognise(theirs, lambda layout: {}, layouts=list(LAYOUTS.values()), where="file")
    assert found.match.layout is layout and found.config == config and found.config.num_classes == 1000


def state_of(tmp_path, **fields):
    convert(trained(**fields), tmp_path / "written.safetensors", layout="dit")
    return load_file(tmp_path / "written.safetensors")


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16])
def test_their_positions_are_compared_with_ours_in_every_precision(kind, tmp_path):
    state = {name: tensor.to(kind) for name, tensor in state_of(tmp_path).items()}
    save_file(state, tmp_path / "good.safetensors")
    from_pretrained(tmp_path / "good.safetensors", heads=4)
    save_file({**state, "pos_embed": state["pos_embed"] + 0.01}, tmp_path / "other.safetensors")
    with pytest.raises(ModelFileError, match="positions are not the fixed"):
        from_pretrained(tmp_path / "other.safetensors", heads=4)


def test_a_pickle_is_refused_with_the_command_that_converts_it(tmp_path):
    state = state_of(tmp_path)
    averaged = {name: tensor + (name != "pos_embed") for name, tensor in state.items()}
    file = tmp_path / "0400000.pt"
    torch.save({"model": state, "ema": averaged, "opt": {"state": {}}, "args": argparse.Namespace(model="DiT-S/2")}, file)
    with pytest.raises(ModelFileError, match="pickle") as refusal:
        from_pretrained(file)
    assert f"vitrail convert {file} 0400000 --trust-pickle" in refusal.value.hint
    model = from_pretrained(file, trust_pickle=True, heads=4)
    table = averaged["y_embedder.embedding_table.weight"]
    torch.testing.assert_close(model.model.label.weight.detach(), table)  # the average of training, as the authors sample


WRONG = {
    "x_embedder.proj.weight": (None, "no x_embedder.proj.weight"),
    "pos_embed": (None, "no pos_embed"),
    "t_embedder.mlp.2.bias": (None, "missing: t_embedder.mlp.2.bias"),
    "blocks.1.adaLN_modulation.1.weight": ((96, 32), "wrong shape: blocks.1.adaLN_modulation.1.weight"),
    "final_layer.linear.weight": ((17, 32), "final_layer.linear.weight (17, 32), expected (16, 32)"),
    "y_embedder.embedding_table.weight": ((6, 16), "wrong shape: y_embedder.embedding_table.weight"),
    "blocks.0.attn.q_norm.weight": ((8,), "unexpected: blocks.0.attn.q_norm.weight"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_missing_unknown_or_of_another_shape_is_named(name, tmp_path):
    state, (shape, expected) = state_of(tmp_path), WRONG[name]
    state.pop(name, None)
    save_file(state if shape is None else {**state, name: torch.zeros(shape)}, tmp_path / "wrong.safetensors")
    with pytest.raises(ModelFileError) as refusal:
        from_pretrained(tmp_path / "wrong.safetensors", heads=4)
    assert expected in str(refusal.value)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"time_shift": 1}, "time_shift is 1, would be read as 0"),
        ({"norm_eps": 1e-5}, "norm_eps"),
        ({"mlp_norm_eps": 1e-5}, "mlp_norm_eps"),
        ({"objective": "velocity"}, "objective is velocity, would be read as noise"),
        ({"null_class": False}, "null_class is False, would be read as True"),
    ],
    ids=str,
)
def test_what_their_code_would_compute_otherwise_is_not_written(fields, reason, tmp_path):
    with pytest.raises(ConfigError, match=reason):
        convert(trained(**fields), tmp_path / "dit.safetensors", layout="dit")
    assert not list(tmp_path.iterdir())

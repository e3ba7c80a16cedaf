"""Costs against calculations by hand."""

import json
from typing import Any, Literal, get_args, get_origin

import pytest
import torch

from vitrail.models.configs.vit import ViTConfig
from vitrail.models.cost import Cost, cost, totals
from vitrail.models.registry import model_config
from vitrail.models.vision.vit import ViT

TINY: dict[str, Any] = {
    "image_size": (8, 12), "patch_size": 4, "channels": 2, "num_classes": 5, "dim": 8, "depth": 3, "heads": 2, "mlp_dim": 20,
}  # fmt: skip
PATCHES, PIXELS, DIM, MLP, DEPTH, CLASSES = 6, 4 * 4 * 2, 8, 20, 3, 5


def tiny(**fields: Any) -> Cost:
    return cost(ViTConfig.read({**TINY, **fields}))


def attention(queries: int, keys: int) -> int:
    """Multiply-adds of the projections, the scores, the weighted sum and the output."""
    return queries * DIM * DIM + keys * DIM * 2 * DIM + 2 * queries * keys * DIM + queries * DIM * DIM


def mlp(tokens: int, *, gated: bool = False) -> int:
    return tokens * DIM * MLP * (3 if gated else 2)


def blocks(tokens: int, *, gated: bool = False) -> int:
    return DEPTH * (attention(tokens, tokens) + mlp(tokens, gated=gated))


EMBEDDING, HEAD = PATCHES * PIXELS * DIM, DIM * CLASSES
STEM = 4 * 6 * (2 * 9 * 8) + 2 * 3 * (8 * 9 * 8) + PATCHES * DIM * DIM  # two convolutions to 8 channels, a 1×1 projection


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, EMBEDDING + blocks(7) + HEAD),
        ({"embedding": "linear"}, EMBEDDING + blocks(7) + HEAD),
        ({"embedding": "stem"}, STEM + blocks(7) + HEAD),
        ({"block": "parallel"}, EMBEDDING + blocks(7) + HEAD),
        ({"mlp": "swiglu"}, EMBEDDING + blocks(7, gated=True) + HEAD),
        ({"pool": "mean"}, EMBEDDING + blocks(6) + HEAD),
        ({"pool": "attention"}, EMBEDDING + blocks(6) + attention(1, 6) + mlp(1) + HEAD),
        ({"registers": 2}, EMBEDDING + blocks(9) + HEAD),
        ({"head": "mlp"}, EMBEDDING + blocks(7) + DIM * DIM + HEAD),
        ({"head": "lecture"}, EMBEDDING + blocks(7) + HEAD),
        ({"position": "relative"}, EMBEDDING + blocks(7) + HEAD),
        ({"position": "rotary"}, EMBEDDING + blocks(7) + HEAD),
        ({"qkv_bias": False, "qk_norm": True, "patch_dropout": 0.5}, EMBEDDING + blocks(7) + HEAD),
        ({"image_size": (12, 8)}, EMBEDDING + blocks(7) + HEAD),
    ],
    ids=str,
)
def test_multiply_adds_equal_those_by_hand(fields, expected):
    assert tiny(**fields).macs == expected


CHOICES = [
    {name: choice}
    for name, field in ViTConfig.model_fields.items()
    if get_origin(field.annotation) is Literal
    for choice in get_args(field.annotation)
]


@pytest.mark.parametrize(
    "fields", [*CHOICES, {"registers": 2}, {"layer_scale": 0.1}, {"qk_norm": True}, {"qkv_bias": False}], ids=str
)
def test_parameters_are_those_of_the_model_and_every_one_has_a_row(fields):
    counted, model = tiny(**fields), ViT(ViTConfig.read({**TINY, **fields}))
    assert counted.parameters == sum(p.numel() for p in model.parameters())
    own = {name or "(tokens)": sum(p.numel() for p in m.parameters(recurse=False)) for name, m in model.named_modules()}
    rows = {layer.name: layer.parameters for layer in counted.layers}
    assert rows == {name: own[name] for name in rows}
    assert {name for name, count in own.items() if count} <= rows.keys()
    assert all(layer.macs >= 0 for layer in counted.layers) and len(rows) == len(counted.layers)


def test_every_layer_counts_only_its_own_multiply_adds():
    rows = {layer.name: layer for layer in tiny().layers}
    assert rows["embedding.projection"].macs == EMBEDDING
    assert rows["blocks.0.attention.layer.qkv"].macs == 7 * DIM * 3 * DIM
    assert rows["blocks.0.attention.layer"].macs == 2 * 7 * 7 * DIM  # the two products of equations (6) and (7)
    assert rows["blocks.0.attention.layer"].parameters == 0
    assert rows["blocks.0.attention.layer.output"].macs == 7 * DIM * DIM
    assert rows["blocks.2.mlp.layer.expand"].macs == 7 * DIM * MLP
    assert rows["head.linear"].macs == HEAD
    assert rows["norm"].macs == 0


def test_modules_that_another_than_their_parent_calls_are_not_counted_twice():
    layers = {layer.name: layer.macs for layer in cost(model_config("ViT-Adapter-Ti")).layers}
    assert min(layers.values()) == 0 and "(tokens)" not in layers and layers["neck"] == 0
    assert layers["backbone.blocks.0.mlp.layer.expand"] == 32 * 32 * 192 * 768


def test_every_layer_shows_its_shapes_for_one_image():
    rows = {layer.name: layer for layer in tiny().layers}
    assert (rows["embedding.projection"].input, rows["embedding.projection"].output) == ([1, 2, 8, 12], [1, 8, 2, 3])
    assert (rows["blocks.0.attention.layer.qkv"].input, rows["blocks.0.attention.layer.qkv"].output) == ([1, 7, 8], [1, 7, 24])
    assert (rows["head.linear"].input, rows["head.linear"].output) == ([1, 8], [1, 5])
    assert rows["head.linear"].kind == "Linear"


def test_counting_leaves_the_random_numbers_and_the_default_device_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    tiny()
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.zeros(1).device.type == "cpu"


def test_the_dictionary_is_json_with_the_totals_and_a_row_per_layer():
    counted = tiny()
    document = json.loads(json.dumps(counted.to_dict("tiny")))
    assert (document["model"], document["parameters"], document["macs"]) == ("tiny", counted.parameters, counted.macs)
    assert len(document["layers"]) == len(counted.layers)
    assert document["layers"][0].keys() >= {"name", "input", "output", "parameters", "macs"}


def test_the_table_has_a_row_per_layer_and_the_totals():
    counted = tiny()
    lines = counted.to_text("tiny").splitlines()
    assert len({len(line) for line in lines}) == 1
    assert len(lines) == len(counted.layers) + 4
    for layer, line in zip(counted.layers, lines[2:-2], strict=True):
        assert line.startswith(layer.name)
        assert line.endswith(f"{layer.macs:,}")
    assert lines[-1].startswith("total")
    assert f"{counted.parameters:,}" in lines[-1]
    assert lines[-1].endswith(f"{counted.macs:,}")


@pytest.mark.parametrize("fields", [{}, {"token_merging": 8}, {"position": "relative", "registers": 2}])
def test_totals_are_those_of_all_layers(fields):
    config = model_config("ViT-Ti/16").changed(**fields)
    counted = cost(config)
    assert totals(config) == (counted.parameters, counted.macs)

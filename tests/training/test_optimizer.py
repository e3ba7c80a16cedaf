"""Which parameters decay, and that the optimizers are torch's."""

import pytest
import torch
from torch import nn

from vitrail.models.config import ViTConfig
from vitrail.models.vit import ViT
from vitrail.training.optimizer import create_optimizer, parameter_groups
from vitrail.training.settings import OptimizerSettings

BASE = {"image_size": 8, "patch_size": 4, "channels": 1, "num_classes": 3, "dim": 16, "depth": 2, "heads": 2, "mlp_dim": 32}
POSITIONS = ["none", "learned-1d", "learned-2d", "sincos-1d", "sincos-2d", "relative", "rotary"]
POOLS = ["class", "mean", "attention"]
EVERYTHING = {"registers": 2, "layer_scale": 0.1, "qk_norm": True, "mlp": "swiglu", "head": "mlp"}


def vit(**fields) -> ViT:
    return ViT(ViTConfig(**{**BASE, **fields}))


def decays(model) -> dict[str, bool]:
    """Whether each parameter decays, by name."""
    decaying, free = parameter_groups(model, 0.3)
    assert (decaying["weight_decay"], free["weight_decay"]) == (0.3, 0.0)
    ids = {id(p): True for p in decaying["params"]} | {id(p): False for p in free["params"]}
    return {name: ids[id(p)] for name, p in model.named_parameters()}


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("more", [{}, EVERYTHING, {**EVERYTHING, "embedding": "stem", "block": "parallel", "head": "lecture"}])
def test_every_parameter_is_in_exactly_one_group(position, pool, more):
    model = vit(position=position, pool=pool, **more)
    grouped = [id(p) for group in parameter_groups(model, 0.1) for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in model.parameters())


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("more", [{}, EVERYTHING, {**EVERYTHING, "embedding": "stem", "block": "parallel", "head": "lecture"}])
def test_exactly_the_matrices_of_layers_decay(position, pool, more):
    model = vit(position=position, pool=pool, **more)
    matrices = {f"{name}.weight" for name, m in model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)}
    assert {name for name, decay in decays(model).items() if decay} == matrices


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({}, "class_token"),
        ({}, "position.embedding"),
        ({"position": "learned-2d"}, "position.rows"),
        ({"position": "learned-2d"}, "position.columns"),
        ({"position": "learned-2d"}, "position.prefix"),
        ({"position": "relative"}, "relative.table"),
        ({"pool": "attention"}, "pool.query"),
        ({"registers": 3}, "registers"),
        ({"layer_scale": 0.1}, "gamma"),
        ({}, "norm"),
        ({"qk_norm": True}, "query_norm"),
        ({}, "bias"),
    ],
)
def test_what_is_no_matrix_of_a_layer_does_not_decay(fields, part):
    chosen = {name: decay for name, decay in decays(vit(**fields)).items() if part in name}
    assert chosen, "the model has no such parameter"
    assert not any(chosen.values())


def test_frozen_parameters_are_in_no_group():
    model = vit()
    model.embedding.requires_grad_(False)
    grouped = {id(p) for group in parameter_groups(model, 0.1) for p in group["params"]}
    assert grouped == {id(p) for p in model.parameters() if p.requires_grad}


TORCHS = {
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=0.02, betas=(0.8, 0.9)),
    "adam": lambda groups: torch.optim.Adam(groups, lr=0.02, betas=(0.8, 0.9)),
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.02, momentum=0.7),
}


@pytest.mark.parametrize("name", TORCHS)
def test_the_steps_are_those_of_torchs_optimizer(name):
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2))
    theirs = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2))
    theirs.load_state_dict(ours.state_dict())
    settings = OptimizerSettings(name=name, lr=0.02, weight_decay=0.3, betas=(0.8, 0.9), momentum=0.7)
    decayed = [theirs[0].weight, theirs[2].weight]
    rest = [theirs[0].bias, theirs[1].weight, theirs[1].bias, theirs[2].bias]
    optimizers = [
        create_optimizer(ours, settings),
        TORCHS[name]([{"params": decayed, "weight_decay": 0.3}, {"params": rest, "weight_decay": 0.0}]),
    ]
    images = torch.randn(5, 4)
    for _ in range(3):
        for model, optimizer in zip((ours, theirs), optimizers, strict=True):
            optimizer.zero_grad()
            model(images).square().sum().backward()
            optimizer.step()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_adamw_shrinks_a_matrix_without_a_gradient_and_nothing_else():
    model = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = create_optimizer(model, OptimizerSettings(lr=0.1, weight_decay=0.5))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        expected = before[name] * (1 - 0.1 * 0.5) if name == "0.weight" else before[name]
        torch.testing.assert_close(parameter.detach(), expected)

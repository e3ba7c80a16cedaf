"""Which parameters decay, and that the optimizers are torch's."""

import pytest
import torch
from torch import nn

from test_contract import TINY, tiny
from vitrail.config.settings import OptimizerSettings
from vitrail.errors import ConfigError
from vitrail.models.base import Model
from vitrail.models.configs.base import ImageConfig
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.registry import build, model_config
from vitrail.models.vision.vit import ViT
from vitrail.training.loop.optimizer import (
    create_optimizers,
    freeze,
    layer_settings,
    named_state,
    parameter_groups,
    state_names,
)
from vitrail.training.loop.parallel import load_optimizer_tensors, optimizer_tensors

BASE = {"image_size": 8, "patch_size": 4, "channels": 1, "num_classes": 3, "dim": 16, "depth": 2, "heads": 2, "mlp_dim": 32}
POSITIONS = ["none", "learned-1d", "learned-2d", "sincos-1d", "sincos-2d", "sincos-2d-simple", "relative", "rotary"]
EVERYTHING = {"registers": 2, "layer_scale": 0.1, "qk_norm": True, "mlp": "swiglu", "head": "mlp"}


class Stack(Model):
    """Layers of torch's, one behind the other."""

    def __init__(self, *layers: nn.Module):
        super().__init__()
        self.stack, self.config = nn.Sequential(*layers), ImageConfig()

    def layers(self) -> list[nn.Module]:
        return list(self.stack)

    def heads(self) -> dict[str, nn.Module]:
        return {}

    def forward(self, x):
        return self.stack(x)

    def __getitem__(self, number: int) -> nn.Module:
        return self.stack[number]


def vit(**fields) -> ViT:
    return ViT(ViTConfig(**{**BASE, **fields}))


def decays(model) -> dict[str, bool]:
    """Whether each parameter decays, by name."""
    groups = parameter_groups(model, OptimizerSettings(weight_decay=0.3))
    assert {group["weight_decay"] for group in groups} == {0.3, 0.0}
    ids = {id(p): group["weight_decay"] > 0 for group in groups for p in group["params"]}
    return {name: ids[id(p)] for name, p in model.named_parameters()}


EVERY_PART = {**EVERYTHING, "embedding": "stem", "block": "parallel", "head": "lecture"}


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("more", [{}, {**EVERYTHING, "pool": "mean"}, {**EVERY_PART, "pool": "attention"}])
def test_every_parameter_is_in_one_group_and_exactly_the_matrices_of_layers_decay(position, more):
    model = vit(position=position, **more)
    grouped = [id(p) for group in parameter_groups(model, OptimizerSettings()) for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in model.parameters())
    matrices = {f"{name}.weight" for name, m in model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)}
    assert {name for name, decay in decays(model).items() if decay} == matrices


def test_frozen_parameters_are_in_no_group():
    model = vit()
    model.embedding.requires_grad_(False)
    grouped = {id(p) for group in parameter_groups(model, OptimizerSettings()) for p in group["params"]}
    assert grouped == {id(p) for p in model.parameters() if p.requires_grad}


TORCHS = {
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=0.02, betas=(0.8, 0.9)),
    "adam": lambda groups: torch.optim.Adam(groups, lr=0.02, betas=(0.8, 0.9)),
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.02, momentum=0.7),
}


@pytest.mark.parametrize("name", TORCHS)
def test_the_steps_are_those_of_torchs_optimizer(name):
    torch.manual_seed(0)
    ours = Stack(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2))
    theirs = Stack(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2))
    theirs.load_state_dict(ours.state_dict())
    settings = OptimizerSettings(name=name, lr=0.02, weight_decay=0.3, betas=(0.8, 0.9), momentum=0.7)
    decayed = [theirs[0].weight, theirs[2].weight]
    rest = [theirs[0].bias, theirs[1].weight, theirs[1].bias, theirs[2].bias]
    optimizers = [
        *create_optimizers(ours, settings),
        TORCHS[name]([{"params": decayed, "weight_decay": 0.3}, {"params": rest, "weight_decay": 0.0}]),
    ]
    images = torch.randn(5, 4)
    for _ in range(3):
        for model, optimizer in zip((ours, theirs), optimizers, strict=True):
            optimizer.zero_grad()
            model(images).square().sum().backward()
            optimizer.step()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-7)  # fused, ours add up in another order


def rates(model: nn.Module, settings: OptimizerSettings) -> dict[str, float]:
    """The learning rate of every parameter, by name."""
    rate = {id(p): group["lr"] for group in parameter_groups(model, settings) for p in group["params"]}
    return {name: rate[id(p)] for name, p in model.named_parameters() if p.requires_grad}


def test_the_learning_rate_falls_from_the_head_to_the_images_by_the_layer_decay():
    found = rates(vit(depth=3, registers=1), OptimizerSettings(lr=1.0, layer_decay=0.5))
    expected = {"head": 1, "norm": 1, "blocks.2": 1 / 2, "blocks.1": 1 / 4, "blocks.0": 1 / 8}
    expected |= dict.fromkeys(("embedding", "class_token", "registers", "position"), 1 / 16)
    for name, rate in found.items():
        part = next(part for part in expected if name == part or name.startswith(f"{part}."))
        assert rate == expected[part], name


def test_both_heads_learn_alike_and_both_tokens():
    found = rates(vit(distillation_token=True), OptimizerSettings(lr=1.0, layer_decay=0.5))
    assert found["head.linear.weight"] == found["head_distillation.linear.weight"] == 1
    assert found["class_token"] == found["distillation_token"] == 1 / 8


def test_a_part_has_its_own_learning_rate_and_decay_and_the_longest_name_counts():
    layers = {"blocks": {"lr": 0.1}, "blocks.1": {"lr": 2, "weight_decay": 0.7}, "head": {"weight_decay": 0}}
    model, settings = vit(), OptimizerSettings(lr=1.0, weight_decay=0.3, layers=layers)
    found = rates(model, settings)
    decay = {id(p): group["weight_decay"] for group in parameter_groups(model, settings) for p in group["params"]}
    for name, parameter in model.named_parameters():
        assert found[name] == (2 if name.startswith("blocks.1.") else 0.1 if name.startswith("blocks.") else 1)
        own = 0.7 if name.startswith("blocks.1.") else 0 if name.startswith("head.") else 0.3
        assert decay[id(parameter)] in (0, own)


def test_a_star_stands_for_anything_in_the_name_of_a_part():
    settings = OptimizerSettings(layers={"*.relative": {"lr": 4}, "stages.*.norm": {"lr": 3}, "stages.1": {"lr": 2}})
    for name, lr in (
        ("stages.0.blocks.1.attention.layer.relative.table", 4), ("stages.1.blocks.0.attention.norm.weight", 3),
        ("stages.1.embedding.reduction.weight", 2), ("stages.0.relatives.table", 1), ("relative.table", 1),
    ):  # fmt: skip
        assert layer_settings(name, settings).lr == lr, name
    freeze(model := tiny("Swin"), OptimizerSettings(layers={"*.relative": {"lr": 0}}))
    assert {name.split(".")[-2] for name, p in model.named_parameters() if not p.requires_grad} == {"relative"}


def test_a_name_that_only_begins_alike_is_another_part():
    settings = OptimizerSettings(layers={"blocks.1": {"lr": 0.5}})
    assert layer_settings("blocks.1.mlp.norm.bias", settings).lr == 0.5
    assert layer_settings("blocks.10.mlp.norm.bias", settings).lr == 1


def test_a_learning_rate_of_zero_freezes_a_part():
    model = vit()
    freeze(model, OptimizerSettings(layers={"embedding": {"lr": 0}, "blocks.0": {"lr": 0}}))
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    assert frozen == {name for name, _ in model.named_parameters() if name.startswith(("embedding.", "blocks.0."))}


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_model_of_which_nothing_is_left_to_train_is_refused(name):
    parts = {name.split(".")[0]: {"lr": 0} for name, _ in vit().named_parameters()}
    with pytest.raises(ConfigError, match="every part of the model is frozen"):
        freeze(vit(), OptimizerSettings(name=name, layers=parts))


def test_a_part_that_the_model_does_not_have_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'embedding'"):
        freeze(vit(), OptimizerSettings(layers={"embeding": {"lr": 0}}))


def names_of(optimizer, model) -> set[str]:
    own = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return {name for name, parameter in model.named_parameters() if id(parameter) in own}


def first_called(model, images) -> nn.Module:
    """The layer that sees the image."""
    called: list[nn.Module] = []
    handles = [m.register_forward_hook(lambda m, *_: called.append(m)) for m in model.modules() if isinstance(m, MATRICES)]
    model(images)
    for handle in handles:
        handle.remove()
    return called[0]


MATRICES = (nn.Linear, nn.Conv2d)
MODELS = {**{kind: (kind, {}) for kind in TINY}, "BiT": ("ResNet", {"block": "pre-activation"})} | {
    f"ViT, {embedding}": ("ViT", {"embedding": embedding}) for embedding in ("stem", "pooled-stem", "resnet")
}


@pytest.mark.parametrize("name", MODELS)
def test_muon_takes_all_between_what_sees_the_image_and_the_head_but_depthwise_convolutions(name):
    kind, fields = MODELS[name]
    model = tiny(kind, **fields)
    muon, adamw = create_optimizers(model, OptimizerSettings(name="muon"))
    first = first_called(model, torch.randn(2, 3, 8, 8))
    others = {f"{name}.weight" for name, m in model.named_modules()
              if isinstance(m, MATRICES) and m is not first and getattr(m, "groups", 1) == 1}  # fmt: skip
    ends = {f"{head}.{name}" for head, module in model.heads().items() for name, _ in module.named_parameters()}
    assert names_of(muon, model) == others - ends and len(others) > 2 and others & ends
    assert names_of(adamw, model) == dict(model.named_parameters()).keys() - names_of(muon, model)


def test_of_a_model_of_texts_muon_takes_the_first_layer_too():
    model = build(model_config("Transformer-tiny", dim=16, depth=1, heads=2, mlp_dim=24, vocabulary=9, tied=False))
    muon, adamw = create_optimizers(model, OptimizerSettings(name="muon"))
    linear = {f"{name}.weight" for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    assert names_of(muon, model) == linear - {"output.weight"}
    assert names_of(adamw, model) == dict(model.named_parameters()).keys() - names_of(muon, model)


def stepped(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> None:
    """Make a step with random gradients, so that each parameter has a state of its own."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    for optimizer in optimizers:
        optimizer.step()


def numbered(optimizers: list[torch.optim.Optimizer]) -> dict[str, torch.Tensor]:
    """Return the state under the numbers that torch gives the parameters, as earlier versions saved it."""
    states = [optimizer.state_dict()["state"] for optimizer in optimizers]
    return {f"{i}.{n}.{key}": t for i, s in enumerate(states) for n, entries in s.items() for key, t in entries.items()}


def former_groups(model: ViT) -> list[dict]:
    """Return AdamW's groups of November 21, 2026: other matrices, vectors, then the linear layers of blocks."""
    matrices = {m.weight for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)}
    inner = [p for n, p in model.named_parameters() if n.startswith("blocks.") and p in matrices and p.ndim == 2]
    outer = [p for p in model.parameters() if p in matrices and not any(p is q for q in inner)]
    vectors = [p for p in model.parameters() if p not in matrices]
    first, second = (outer, vectors) if next(model.parameters()) in matrices else (vectors, outer)
    return [{"params": params, "lr": 0.01} for params in (first, second, inner)]


@pytest.mark.parametrize("name", ["adamw", "muon"])
@pytest.mark.parametrize("fields", [{}, {"embedding": "stem", "image_size": 16}, {"registers": 2, "layer_scale": 0.1}])
def test_a_state_under_numbers_is_that_under_names(name, fields):
    model, settings = vit(**fields), OptimizerSettings(name=name)
    optimizers = create_optimizers(model, settings)
    stepped(model, optimizers)
    by_name = optimizer_tensors(optimizers, state_names(model))
    read = named_state(numbered(optimizers), model, settings)
    assert read.keys() == by_name.keys() and all(torch.equal(read[key], by_name[key]) for key in read)


@pytest.mark.parametrize("fields", [{}, {"embedding": "stem", "image_size": 16}, {"registers": 2, "layer_scale": 0.1}])
def test_a_state_is_read_in_the_order_of_the_first_version(fields):
    model = vit(**fields)
    former = torch.optim.AdamW(former_groups(model))
    stepped(model, [former])
    read = named_state(numbered([former]), model, OptimizerSettings())
    names = state_names(model)
    assert all(torch.equal(read[f"{names[p]}.exp_avg"], state["exp_avg"]) for p, state in former.state.items())


def test_numbers_of_another_model_are_refused():
    model, other, settings = vit(), vit(depth=3), OptimizerSettings()
    optimizers = create_optimizers(other, settings)
    stepped(other, optimizers)
    with pytest.raises(ValueError, match="an earlier version of Vitrail"):
        named_state(numbered(optimizers), model, settings)


def test_parameters_of_one_name_in_the_model_and_beside_it_keep_their_own_states():
    model, beside, settings = vit(), vit(), OptimizerSettings()
    optimizers = create_optimizers(model, settings, beside)
    stepped(nn.ModuleList([model, beside]), optimizers)
    saved = optimizer_tensors(optimizers, state_names(model, beside))
    again = create_optimizers(model, settings, beside)
    load_optimizer_tensors(again, saved, state_names(model, beside))
    for old, new in zip(optimizers, again, strict=True):
        assert all(torch.equal(old.state[p]["exp_avg"], new.state[p]["exp_avg"]) for p in old.state)

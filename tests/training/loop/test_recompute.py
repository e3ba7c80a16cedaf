"""Runs whose layers are computed again in the backward pass are the same runs.

The gradients of every architecture, and that less is kept for them, stand in test_contract.py and test_text_contract.py.
"""

import copy

import pytest
import torch

from recomputed import step
from vitrail.models.configs.resnet import ResNetConfig
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.vision.resnet import ResNet
from vitrail.models.vision.vit import ViT
from vitrail.training.loop.recompute import recompute_layers

RANDOM = {"model.dropout": 0.1, "model.stochastic_depth": 0.2, "model.patch_dropout": 0.25, "augmentation.crop": "resized"}
DEEP = ViTConfig(image_size=32, patch_size=4, num_classes=3, dim=16, depth=8, heads=2, mlp_dim=64)
RESNET = ResNetConfig(image_size=32, num_classes=3, depths=(1, 1), width=8, root="cifar")


def learned(trainer) -> dict[str, torch.Tensor]:
    return {f"{file} {name}": tensor for file, found in trainer.state()[0].items() for name, tensor in found.items()}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"training.precision": "bf16"},
        {"training.precision": "fp16"},
        {"training.accumulate": 3, "training.ema": 0.9},
        {"training.tune": "lora"},
        {"model.embedding": "pooled-stem"},
        {"model.token_merging": 1, "model.stochastic_depth": 0.0},
    ],
    ids=lambda changes: " ".join(map(str, changes.values())) or "plain",
)
def test_a_run_is_the_same_to_the_bit(make_trainer, changes):
    plain = make_trainer.finished("plain", **RANDOM | changes)
    again = make_trainer.finished("again", **RANDOM | changes, **{"training.recompute": True})
    one, other = learned(plain), learned(again)
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert all(a["val_loss"] == b["val_loss"] for a, b in zip(plain.rows, again.rows, strict=True))


@pytest.mark.parametrize("model", [ViT(DEEP.changed(depth=2)), ResNet(RESNET)], ids=["ViT", "ResNet"])
def test_compiled_layers_learn_the_same_and_take_a_batch_up_into_their_running_statistics_once(model):
    images, found = torch.randn(4, 3, 32, 32), []
    for again in (False, True):
        own = copy.deepcopy(model).train()
        if again:
            recompute_layers(own)
        forward = torch.compile(own, backend="aot_eager") if again else own
        forward(images).square().sum().backward()
        found.append({**dict(own.named_buffers()), **{f"gradient of {name}": p.grad for name, p in own.named_parameters()}})
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


def test_of_many_layers_little_more_than_their_inputs_is_kept():
    images, tokens = torch.randn(4, 3, 32, 32), 4 * 65 * 16 * 4
    (much, _), (little, _) = (step(ViT(DEEP), images, recompute=again) for again in (False, True))
    assert 8 * tokens <= little < 14 * tokens < much / 10


def test_an_answer_without_gradients_is_made_once():
    model, seen = ViT(DEEP), []
    recompute_layers(model)
    for layer in model.layers():
        layer.attention.register_forward_hook(lambda *_: seen.append(1))
    with torch.no_grad():
        model.train()(torch.randn(1, 3, 32, 32))
    model.eval()(torch.randn(1, 3, 32, 32)).sum().backward()
    assert len(seen) == 16
    seen.clear()
    model.train()(torch.randn(1, 3, 32, 32)).sum().backward()
    assert len(seen) == 16

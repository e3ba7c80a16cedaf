"""Muon takes torch's steps in bf16, the same in fp32 where that is quicker, and convolutions as matrices."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from vitrail.config.settings import OptimizerSettings
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.vision.vit import ViT
from vitrail.parts.cpu import kernels
from vitrail.parts.cpu.kernels import likely
from vitrail.training.loop.muon import ITERATIONS, Muon, orthogonal
from vitrail.training.loop.optimizer import create_optimizers

BASE = {"image_size": 8, "patch_size": 4, "channels": 1, "num_classes": 3, "depth": 2, "heads": 2}


def vit(**fields) -> ViT:
    return ViT(ViTConfig(**BASE, **fields))


@pytest.fixture
def machine(monkeypatch):
    """Sets whether bf16 is the quicker way, until the test ends."""

    def multiplies(*, bf16: bool) -> None:
        monkeypatch.setattr(kernels, "_used", replace(likely(), bf16=bf16))

    return multiplies


@pytest.mark.parametrize("shape", [(16, 8, 3, 3), (8, 40), (40, 8)])
def test_in_bf16_the_steps_are_torchs_and_convolutions_are_matrices_of_their_filters(shape, machine):
    machine(bf16=True)
    random = torch.Generator().manual_seed(0)
    weight = nn.Parameter(torch.randn(shape, generator=random))
    matrix = nn.Parameter(weight.detach().clone().flatten(1))
    ours = Muon([{"params": [weight], "lr": 0.1, "weight_decay": 0.3}], momentum=0.8)
    theirs = torch.optim.Muon([matrix], lr=0.1, weight_decay=0.3, momentum=0.8, adjust_lr_fn="match_rms_adamw")
    for _ in range(3):
        weight.grad = torch.randn(shape, generator=random)
        matrix.grad = weight.grad.flatten(1)
        ours.step()
        theirs.step()
        assert torch.equal(weight.flatten(1), matrix)
    assert ours.state[weight]["momentum_buffer"].shape == weight.shape == shape


@pytest.mark.parametrize("of_gradient", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("of_weight", [torch.contiguous_format, torch.channels_last])
def test_how_the_weights_of_a_convolution_lie_in_memory_changes_no_step(of_weight, of_gradient):
    random = torch.Generator().manual_seed(0)
    given, gradients = torch.randn(16, 8, 3, 3, generator=random), torch.randn(3, 16, 8, 3, 3, generator=random)

    def learned(of_weight: torch.memory_format, of_gradient: torch.memory_format) -> torch.Tensor:
        weight = nn.Parameter(given.clone(memory_format=of_weight))
        muon = Muon([{"params": [weight], "lr": 0.1, "weight_decay": 0.3}], momentum=0.8)
        for gradient in gradients:
            weight.grad = gradient.clone(memory_format=of_gradient)
            muon.step()
        return weight.detach()

    usual = learned(torch.contiguous_format, torch.contiguous_format)
    torch.testing.assert_close(learned(of_weight, of_gradient), usual)


@pytest.mark.parametrize("shape", [(7, 20), (20, 7), (9, 9), (1, 5)])
def test_in_fp32_singular_values_follow_the_polynomial_and_singular_vectors_stay(shape, machine):
    machine(bf16=False)
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    u, s, vt = np.linalg.svd(matrix.double().numpy(), full_matrices=False)
    s = s / np.linalg.norm(s)
    for _ in range(ITERATIONS):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    found = orthogonal(matrix)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), u @ np.diag(s) @ vt, atol=1e-4)


def test_a_matrix_without_a_gradient_stays_and_one_of_zeros_takes_no_step_but_decays():
    still, decaying = nn.Parameter(torch.ones(3, 4)), nn.Parameter(torch.ones(3, 4))
    decaying.grad = torch.zeros(3, 4)
    muon = Muon([{"params": [still, decaying], "lr": 0.1, "weight_decay": 0.5}], momentum=0.9)
    assert muon.step(lambda: 7) == 7 and muon.step() is None
    assert torch.equal(still, torch.ones(3, 4))
    torch.testing.assert_close(decaying.detach(), torch.full((3, 4), 0.95**2))


def test_the_step_of_muon_is_an_orthogonal_matrix_as_long_as_a_step_of_adam():
    model = vit(dim=32, mlp_dim=32)
    before = model.blocks[0].attention.layer.output.weight.detach().clone()
    muon, _ = create_optimizers(model, OptimizerSettings(name="muon", lr=0.1, weight_decay=0.0))
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    output = model.blocks[0].attention.layer.output.weight
    u, _, v = torch.linalg.svd(output.grad)
    output.grad = u @ torch.diag(torch.linspace(0.05, 1, 32)) @ v  # five iterations leave what is next to nothing behind
    muon.step()
    step = (before - model.blocks[0].attention.layer.output.weight.detach()) / 0.1
    singular = torch.linalg.svdvals(step)
    assert singular.max() < 2 * singular.min() + 0.5
    assert 0.1 < step.square().mean().sqrt() < 0.3  # 0.2, the root mean square of AdamW's steps

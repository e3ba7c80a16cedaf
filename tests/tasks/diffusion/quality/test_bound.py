"""Bits per dimension beside the sum of divergences that torch's distributions give."""

import math

import pytest
import torch
from torch.distributions import Normal, kl_divergence

import vitrail
from vitrail.tasks.diffusion.process import Process
from vitrail.tasks.diffusion.quality.bound import bits_per_value, prior_bound
from vitrail.tasks.diffusion.settings import DiffusionSettings
from vitrail.tasks.diffusion.task import Diffusion

STEPS = 12


def task(objective):
    torch.manual_seed(0)
    fields = {"dim": 32, "depth": 1, "heads": 4, "mlp_dim": 64, "image_size": 8, "channels": 1, "num_classes": 3, "steps": STEPS}
    network = vitrail.create_model("DiT-S/2", **fields, learned_variance=True, objective=objective)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    preparation = vitrail.Preparation.standard((8, 8), 1)
    return Diffusion(network.eval(), preparation, ["a", "b", "c"], DiffusionSettings())


def batch():
    pixels = torch.randint(0, 256, (5, 1, 8, 8), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    return {"images": pixels, "labels": torch.tensor([0, 1, 2, 0, 1]), "dropped": torch.zeros(5, dtype=torch.bool)}


@torch.no_grad()
def reference(task, batch, objective):
    """The loop of Ho et al. and of Nichol and Dhariwal, with a clipped estimate, in other words than ours."""
    x0 = batch["images"].double() / 127.5 - 1
    bars = torch.tensor(task.process.alpha_bar)
    befores = torch.cat([torch.ones(1, dtype=torch.float64), bars[:-1]])
    betas = 1 - bars / befores
    tilde = betas * (1 - befores) / (1 - bars)
    tilde[0] = tilde[1]
    random, bits = torch.Generator().manual_seed(0), 0
    for t in reversed(range(STEPS)):
        noise = torch.randn(x0.shape, generator=random)
        x = (bars[t].sqrt().float() * x0.float() + (1 - bars[t]).sqrt().float() * noise).double()
        output = task.model(x.float(), torch.full((5,), float(t)), batch["labels"]).double()
        first, second = output.chunk(2, dim=1)
        if objective == "noise":
            clean = (x - (1 - bars[t]).sqrt() * first) / bars[t].sqrt()
        else:
            clean = bars[t].sqrt() * x - (1 - bars[t]).sqrt() * first

        def mean(clean, t=t, x=x):
            return (befores[t].sqrt() * betas[t] * clean + (1 - betas[t]).sqrt() * (1 - befores[t]) * x) / (1 - bars[t])

        deviation = torch.exp(((second + 1) * betas[t].log() + (1 - second) * tilde[t].log()) / 4)
        own = Normal(mean(clean.clamp(-1, 1)), deviation)
        if t:
            term = kl_divergence(Normal(mean(x0), tilde[t].sqrt().expand_as(x0)), own)
        else:
            above = torch.where(x0 > 0.999, 1.0, own.cdf(x0 + 1 / 255))
            below = torch.where(x0 < -0.999, 0.0, own.cdf(x0 - 1 / 255))
            term = -(above - below).clamp(min=1e-12).log()
        bits = bits + term.flatten(1).mean(dim=1) / math.log(2)
    last = Normal(bars[-1].sqrt() * x0, (1 - bars[-1]).sqrt().expand_as(x0))
    prior = kl_divergence(last, Normal(0.0, 1.0)).flatten(1).mean(dim=1) / math.log(2)
    return bits + prior


@pytest.mark.parametrize("objective", ["noise", "velocity"])
def test_bits_are_the_sum_over_all_times_and_the_prior(objective):
    own, times = task(objective), []
    bits = bits_per_value(own, batch(), lambda: times.append(1))
    assert len(times) == STEPS
    torch.testing.assert_close(bits.double(), reference(own, batch(), objective), rtol=1e-4, atol=1e-4)


def test_the_prior_costs_next_to_nothing_after_a_thousand_steps():
    images = torch.rand(3, 1, 8, 8) * 2 - 1
    assert 0 < prior_bound(Process(), images).max() < 1e-4
    assert prior_bound(Process(steps=STEPS, betas="cosine"), images).min() > 0

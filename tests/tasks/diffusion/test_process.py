"""The variational bound beside torch's own distributions."""

import math

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from vitrail.tasks.diffusion.process import Process, variational_bound


def batch(time):
    generator = torch.Generator().manual_seed(time)
    levels = torch.randint(0, 256, (2, 1, 3, 3), generator=generator)
    levels[:, 0, 0, 0], levels[:, 0, 0, 1] = 0, 255  # the darkest and the brightest take all that is beyond them
    images = (levels / 127.5 - 1).double()
    noise, output, variance = (torch.randn(images.shape, generator=generator, dtype=torch.float64) for _ in range(3))
    return images, noise, 0.9 * noise + 0.1 * output, variance.tanh()


def step(process, time):
    """β, ᾱ and ᾱ of the time before, as equation (4) has them."""
    now = process.alpha_bar[time]
    before = process.alpha_bar[time - 1] if time else 1.0
    return 1 - now / before, now, before


@pytest.mark.parametrize("objective", ["noise", "velocity"])
@pytest.mark.parametrize("time", [1, 500, 999])
def test_the_bound_is_the_divergence_of_two_gaussians(objective, time):
    process = Process(objective)
    images, noise, output, variance = batch(time)
    beta, now, before = step(process, time)
    x = math.sqrt(now) * images + math.sqrt(1 - now) * noise

    def posterior(clean):
        return (math.sqrt(before) * beta * clean + math.sqrt(1 - beta) * (1 - before) * x) / (1 - now)

    lower = beta * (1 - before) / (1 - now)
    deviation = torch.exp(0.5 * ((variance + 1) / 2 * math.log(beta) + (1 - variance) / 2 * math.log(lower)))
    clean = (x - math.sqrt(1 - now) * output) / math.sqrt(now) if objective == "noise" else None
    if clean is None:
        clean = math.sqrt(now) * x - math.sqrt(1 - now) * output
    true, own = Normal(posterior(images), torch.full_like(x, math.sqrt(lower))), Normal(posterior(clean), deviation)
    expected = kl_divergence(true, own).mean(dim=(1, 2, 3)) / math.log(2)
    actual = variational_bound(process, images, x, output, variance, torch.full((2,), time))
    torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=1e-6)


def test_the_last_step_counts_the_probability_of_a_level_of_the_pixels():
    process = Process()
    images, noise, output, variance = batch(0)
    beta, now, _ = step(process, 0)
    x = math.sqrt(now) * images + math.sqrt(1 - now) * noise
    later, at_one, _ = step(process, 1)
    lower = later * (1 - now) / (1 - at_one)
    deviation = torch.exp(0.5 * ((variance + 1) / 2 * math.log(beta) + (1 - variance) / 2 * math.log(lower)))
    own = Normal((x - math.sqrt(1 - now) * output) / math.sqrt(now), deviation)
    above = torch.where(images > 0.999, torch.ones_like(x), own.cdf(images + 1 / 255))
    below = torch.where(images < -0.999, torch.zeros_like(x), own.cdf(images - 1 / 255))
    expected = -(above - below).clamp(min=1e-12).log().mean(dim=(1, 2, 3)) / math.log(2)
    actual = variational_bound(process, images, x, output, variance, torch.zeros(2, dtype=torch.long))
    torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=1e-6)

"""The way from noise to an image: a sampler takes a step from each time to the next smaller one."""

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from vitrail.tasks.diffusion.process import Process, log_variance, variance_bounds

SamplerName = Literal["ddpm", "ddim", "euler", "dpm++", "heun"]
Denoise = Callable[[Tensor, float], Tensor]
"""The model's output for noisy images (B, C, H, W) at one time: (B, C, H, W), or (B, 2C, H, W) with a learned variance."""
Draw = Callable[[], Tensor]
"""Fresh noise for every image, (B, C, H, W)."""
Passes = Generator[tuple[Tensor, float], Tensor, Tensor]
"""Noisy images and their time, for which the model's output is sent; the images at the end."""


@dataclass(frozen=True)
class Step:
    """A step of sampling, ``number`` of ``count``, counted from 1."""

    number: int
    count: int
    clean: Tensor
    """The model's estimate of the clean images (B, C, H, W)."""


def solve(
    process: Process,
    denoise: Denoise,
    noise: Tensor,
    times: Sequence[float],
    *,
    sampler: SamplerName = "ddim",
    eta: float = 0.0,
    draw: Draw | None = None,
    seen: Callable[[Step], None] | None = None,
) -> Tensor:
    """Return images (B, C, H, W) made of noise of the same shape.

    Args:
        process: the forward process that the model has learned.
        denoise: the model, guidance included.
        noise: ``x_T``, or an image made noisy to ``times[0]``.
        times: falling times of the steps; the last step goes to the clean image.
        sampler: ``ddpm`` draws from the model's own distribution (Ho et al. 2020); ``ddim`` (Song et al. 2021,
            https://arxiv.org/abs/2010.02502) is Euler's method for a flow, ``euler``; ``dpm++`` is DPM-Solver++ 2M (Lu et al.
            2022, https://arxiv.org/abs/2211.01095); ``heun`` is Heun's method, with two passes a step.
        eta: share of ``ddim``'s noise that is drawn anew; 1 is close to ``ddpm``.
        draw: gives fresh noise, for ``ddpm`` and for ``eta``.
        seen: is called behind every step.
    """
    passes = solving(process, noise, times, sampler=sampler, eta=eta, draw=draw, seen=seen)
    x, time = next(passes)
    while True:
        try:
            x, time = passes.send(denoise(x, time))
        except StopIteration as end:
            images: Tensor = end.value
            return images


def solving(
    process: Process,
    noise: Tensor,
    times: Sequence[float],
    *,
    sampler: SamplerName = "ddim",
    eta: float = 0.0,
    draw: Draw | None = None,
    seen: Callable[[Step], None] | None = None,
) -> Passes:
    """Yield what the model is to be given in each of its passes, and return the images; see `solve`."""
    x, earlier = noise, None
    following = [*times[1:], process.end()]
    for number, (time, after) in enumerate(zip(times, following, strict=True)):
        output = yield x, time
        mean = output[:, : x.shape[1]]
        clean, epsilon = process.clean_and_noise(x, mean, time)
        if sampler == "ddpm":
            x = _ddpm(process, x, output, clean, time, after, draw)
        elif sampler == "dpm++":
            x, earlier = _dpm(process, x, clean, earlier, time, after), (clean, time)
        elif sampler == "heun":
            x = yield from _heun(process, x, clean, epsilon, time, after)
        else:
            x = _ddim(process, clean, epsilon, time, after, eta, draw)
        if seen is not None:
            seen(Step(number + 1, len(times), clean))
    return x


def _ddim(
    process: Process, clean: Tensor, epsilon: Tensor, time: float, after: float, eta: float = 0.0, draw: Draw | None = None
) -> Tensor:
    """Equation (12): ``a' x_0 + √(s'² - σ²) ε + σ z``."""
    (a, s), (a_after, s_after) = process.scales(time), process.scales(after)
    sigma = eta * s_after / s * math.sqrt(max(0.0, 1 - (a / a_after) ** 2)) if eta and s_after else 0.0
    x = a_after * clean + math.sqrt(max(0.0, s_after**2 - sigma**2)) * epsilon
    return x + sigma * draw() if sigma and draw is not None else x


def _ddpm(process: Process, x: Tensor, output: Tensor, clean: Tensor, time: float, after: float, draw: Draw | None) -> Tensor:
    """Equations (6) and (7): the mean of the posterior, and its variance, learned or β̃."""
    (a, s), (a_after, s_after) = process.scales(time), process.scales(after)
    ratio = a / a_after
    mean = (a_after * (1 - ratio**2) * clean + ratio * s_after**2 * x) / s**2
    if s_after == 0 or draw is None:
        return mean
    if output.shape[1] == 2 * x.shape[1]:
        deviation = torch.exp(0.5 * log_variance(process, output[:, x.shape[1] :], time, after))
        return mean + deviation * draw()
    return mean + math.sqrt(variance_bounds(process, time, after)[1]) * draw()


def _dpm(process: Process, x: Tensor, clean: Tensor, earlier: tuple[Tensor, float] | None, time: float, after: float) -> Tensor:
    """Algorithm 2: the estimate of x_0 goes on as between the last two steps; the last step has first order."""
    (a, s), (a_after, s_after) = process.scales(time), process.scales(after)
    if s_after == 0:
        return a_after * clean
    if a == 0:  # a flow begins with noise alone, whose signal has no logarithm
        return a_after * clean + s_after * x
    step = math.log(a_after / s_after) - math.log(a / s)
    if earlier is not None and (before := process.scales(earlier[1]))[0]:
        ratio = (math.log(a / s) - math.log(before[0] / before[1])) / step
        clean = clean + (clean - earlier[0]) / (2 * ratio)
    return s_after / s * x - a_after * math.expm1(-step) * clean


def _heun(process: Process, x: Tensor, clean: Tensor, epsilon: Tensor, time: float, after: float) -> Passes:
    """A step of ``ddim``, and the mean of its slope and the slope at its end; slopes are by time of a flow, else by s/a."""
    reached = _ddim(process, clean, epsilon, time, after)
    (a, s), (a_after, s_after) = process.scales(time), process.scales(after)
    if s_after == 0:
        return reached
    output = (yield reached, after)[:, : x.shape[1]]
    clean_after, epsilon_after = process.clean_and_noise(reached, output, after)
    if process.continuous:
        slope = (epsilon - clean + epsilon_after - clean_after) / 2
        return x + (after - time) * slope
    slope = (epsilon + epsilon_after) / 2
    return a_after * (x / a + (s_after / a_after - s / a) * slope)

"""The forward process of a diffusion, what a model learns of it, and its way back in one step.

A noisy image is ``x_t = a_t x_0 + s_t ε`` with ε from N(0, I). In the discrete process of Ho et al. 2020
(https://arxiv.org/abs/2006.11239) ``a_t² = ᾱ_t`` and ``s_t² = 1 - ᾱ_t`` at T whole times; in a rectified flow (Liu et al. 2022,
https://arxiv.org/abs/2209.03003) ``a_t = 1 - t`` and ``s_t = t`` at any t between 0 and 1.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from vitrail.models.configs.dit import Betas, Objective, Spacing, linear_ends

FLOW_SCALE = 1000.0
"""A flow's time, 0 to 1, is multiplied by this for the model, so that its waves tell times apart."""


def linear_betas(steps: int) -> np.ndarray:
    """Return β of T steps, from 1e-4 to 0.02 for a thousand and to the same end of ᾱ for other numbers: (T,)."""
    return np.linspace(*linear_ends(steps), steps)


def cosine_betas(steps: int) -> np.ndarray:
    """Return β of T steps with ``ᾱ(u) = cos²((u + 0.008) / 1.008 · π/2)``, each at most 0.999: (T,)."""
    bar = np.cos((np.arange(steps + 1) / steps + 0.008) / 1.008 * math.pi / 2) ** 2
    return np.minimum(1 - bar[1:] / bar[:-1], 0.999)


@dataclass(frozen=True)
class Process:
    """A forward process and the objective of a model of it."""

    objective: Objective = "noise"
    betas: Betas = "linear"
    steps: int = 1000
    """Number of times T of a discrete process."""
    spacing: Spacing = "linspace"

    @classmethod
    def of(cls, config: Any) -> Self:
        """Return the process that a model has learned."""
        return cls(config.objective, config.betas, config.steps, config.spacing)

    @property
    def continuous(self) -> bool:
        """True for a flow, whose times are between 0 and 1."""
        return self.objective == "flow"

    @cached_property
    def alpha_bar(self) -> np.ndarray:
        """ᾱ at every time of a discrete process: (T,)."""
        betas = linear_betas(self.steps) if self.betas == "linear" else cosine_betas(self.steps)
        return np.cumprod(1 - betas)

    @property
    def least_variance(self) -> float:
        """β̃ of the step from time 1 to 0, which stands for the last step, too: its own is 0 and has no logarithm."""
        first, second = (float(bar) for bar in self.alpha_bar[:2])
        return (1 - first) / (1 - second) * (1 - second / first)

    def scales(self, time: float) -> tuple[float, float]:
        """Return ``(a_t, s_t)``; a time below 0 is the clean image, (1, 0)."""
        if self.continuous:
            return 1 - time, time
        bar = float(self.alpha_bar[int(time)]) if time >= 0 else 1.0
        return math.sqrt(bar), math.sqrt(1 - bar)

    def scales_of(self, times: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``a_t`` and ``s_t`` of times (B,), each (B, 1, 1, 1)."""
        if self.continuous:
            a, s = 1 - times, times
        else:
            bar = torch.from_numpy(self.alpha_bar).to(times.device)[times.long()]
            a, s = bar.sqrt(), (1 - bar).sqrt()
        return a.view(-1, 1, 1, 1).float(), s.view(-1, 1, 1, 1).float()

    def model_times(self, times: Tensor) -> Tensor:
        """Return times as the model reads them; a flow's are multiplied by a thousand."""
        return times * FLOW_SCALE if self.continuous else times

    def noisy(self, images: Tensor, noise: Tensor, times: Tensor) -> Tensor:
        """Return ``x_t = a_t x_0 + s_t ε`` of images (B, C, H, W) at times (B,)."""
        a, s = self.scales_of(times)
        return a * images + s * noise

    def target(self, images: Tensor, noise: Tensor, times: Tensor) -> Tensor:
        """Return what the model is to give for ``x_t``: (B, C, H, W)."""
        if self.objective == "noise":
            return noise
        if self.objective == "flow":
            return noise - images
        a, s = self.scales_of(times)
        return a * noise - s * images

    def clean_and_noise(self, x: Tensor, output: Tensor, time: float) -> tuple[Tensor, Tensor]:
        """Return the estimates of x_0 and ε that an output of the model at ``x_t`` means."""
        return self.estimates(x, output, *self.scales(time))

    def estimates(self, x: Tensor, output: Tensor, a: Any, s: Any) -> tuple[Tensor, Tensor]:
        """Return the same, with ``a_t`` and ``s_t`` as numbers or as tensors (B, 1, 1, 1)."""
        if self.objective == "noise":
            return (x - s * output) / a, output
        if self.objective == "flow":
            return x - s * output, x + a * output
        return a * x - s * output, s * x + a * output

    def weights(self, times: Tensor, min_snr: float | None) -> Tensor:
        """Return the weight of each image's squared error, (B,): ``min(SNR, γ)`` of the error of x_0 (Hang et al. 2023).

        The error of ε is SNR times the error of x_0, the error of v (SNR + 1) times; https://arxiv.org/abs/2303.09556.
        """
        if min_snr is None:
            return torch.ones_like(times, dtype=torch.float32)
        a, s = (scale.flatten() for scale in self.scales_of(times))
        ratio = (a / s).square()
        per_error = {"noise": ratio, "velocity": ratio + 1, "flow": ((a + s) / s).square()}[self.objective]
        return ratio.clamp(max=min_snr) / per_error

    def spaced(self, steps: int) -> list[float]:
        """Return the times of so many sampling steps, from noise to image, by the process's `Spacing`.

        Those of a discrete process, which has at most T, keep their number among all T, by which the model knows them.
        """
        if self.continuous:
            return [1 - number / steps for number in range(steps)]
        steps = min(steps, self.steps)
        last = self.steps - 1
        if self.spacing == "leading":
            return [self.steps // steps * number for number in range(steps - 1, -1, -1)]
        if self.spacing == "trailing":
            return [round(self.steps * number / steps) - 1 for number in range(steps, 0, -1)]
        return [round(last * number / max(1, steps - 1)) for number in range(steps - 1, -1, -1)] if steps > 1 else [last]

    def end(self) -> float:
        """Return the time of a clean image."""
        return 0.0 if self.continuous else -1


def log_variance(process: Process, values: Tensor, time: float, following: float) -> Tensor:
    """Return the log-variance of a step that the model's second output means: -1 is the lower bound β̃, 1 the upper, β."""
    upper, lower = variance_bounds(process, time, following)
    return _between(values, math.log(lower), math.log(upper))


def _between(values: Tensor, lower: Any, upper: Any) -> Tensor:
    share = (values + 1) / 2
    return share * upper + (1 - share) * lower


def variance_bounds(process: Process, time: float, following: float) -> tuple[float, float]:
    """Return β and β̃ of the step from a time to the following, smaller one; the last step takes β̃ of the step before it."""
    a, _ = process.scales(time)
    b, s = process.scales(following)
    beta = 1 - (a / b) ** 2
    return beta, s**2 / (1 - a**2) * beta if s else process.least_variance


def variational_bound(
    process: Process, images: Tensor, x: Tensor, mean: Tensor, variance: Tensor, times: Tensor, *, clipped: bool = False
) -> Tensor:
    """Return the term of the variational bound at each image's time, in bits per value: (B,).

    It is the divergence of the model's step from the true one, and at time 0 the likelihood of the pixels in 256 levels
    (equation 5 of Ho et al. 2020; Nichol and Dhariwal 2021, section 3.1).

    Args:
        images: x_0, (B, C, H, W), normalized to [-1, 1].
        x: x_t.
        mean: the model's first output.
        variance: its second one.
        times: whole numbers (B,).
        clipped: cut the estimate of x_0 to [-1, 1].
    """
    bar = torch.from_numpy(process.alpha_bar).to(times.device)
    now = bar[times.long()]
    before = torch.where(times > 0, bar[(times.long() - 1).clamp(min=0)], torch.ones_like(now))
    beta = 1 - now / before
    lower = torch.where(times > 0, (1 - before) / (1 - now) * beta, process.least_variance)
    clean, _ = process.estimates(x, mean, *(scale.double() for scale in process.scales_of(times)))
    clean = clean.clamp(-1, 1) if clipped else clean
    shape = (-1, 1, 1, 1)
    of_clean = (before.sqrt() * beta / (1 - now)).view(shape)  # equation (7)
    of_x = ((now / before).sqrt() * (1 - before) / (1 - now)).view(shape)
    true, own = of_clean * images + of_x * x, of_clean * clean + of_x * x
    log_lower = lower.log().view(shape)
    logs = _between(variance, log_lower, beta.log().view(shape))
    divergence = 0.5 * (logs - log_lower - 1 + torch.exp(log_lower - logs) + (true - own).square() * torch.exp(-logs))
    likelihood = -_log_levels(images, own, 0.5 * logs)
    terms = torch.where((times == 0).view(shape), likelihood, divergence)
    return (terms.mean(dim=(1, 2, 3)) / math.log(2)).float()


def _log_levels(images: Tensor, mean: Tensor, log_deviation: Tensor) -> Tensor:
    """Return the log-probability of each value, one of 256 levels in [-1, 1], under a Gaussian that is cut into levels."""
    normal = torch.distributions.Normal(0.0, 1.0)
    inverse = torch.exp(-log_deviation)
    above = normal.cdf((images - mean + 1 / 255) * inverse)
    below = normal.cdf((images - mean - 1 / 255) * inverse)
    inner = torch.where(images > 0.999, 1 - below, above - below)
    return torch.where(images < -0.999, above, inner).clamp(min=1e-12).log()

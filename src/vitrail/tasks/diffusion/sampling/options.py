"""Options of sampling: steps, sampler and guidance."""

import math
from dataclasses import dataclass
from typing import get_args

from vitrail.checks import require_at_most, require_positive
from vitrail.errors import ConfigError, unknown
from vitrail.tasks.diffusion.sampling.samplers import SamplerName

MOST_STEPS = 10_000


@dataclass(frozen=True)
class Sampling:
    """The way in which images are made.

    Raises:
        ConfigError: numbers that cannot be.
    """

    steps: int = 50
    guidance: float = 1.0
    """Weight of the class: ``ε + (guidance - 1) (ε - ε of no class)``; 1 for none."""
    sampler: SamplerName = "ddim"
    eta: float = 0.0
    """Share of fresh noise in a step of ``ddim``."""
    guided_channels: int | None = None
    """Channels that guidance changes: the first three in the authors' code; all by default."""
    interval: tuple[float, float] = (0.0, 1.0)
    """Part of the way at which guidance works, from 0, the image, to 1, the noise (Kynkäänniemi et al. 2024,
    https://arxiv.org/abs/2404.07724)."""
    power: float | None = None
    """Exponent p of MDT's growing guidance, ``1 + (guidance - 1) (1 - cos(π (1 - t)^p)) / 2`` with t from 0 to 1 (Gao et al.
    2023, https://arxiv.org/abs/2303.14389)."""
    strength: float | None = None
    """Fraction of the steps that are made where an image to start from is given: the last ones; 1 for all."""

    def __post_init__(self) -> None:
        if self.sampler not in get_args(SamplerName):
            raise unknown("sampler", self.sampler, list(get_args(SamplerName)), where="--sampler")
        channels = 1 if self.guided_channels is None else self.guided_channels
        require_positive(**{"--steps": self.steps, "--guided-channels": channels})
        require_at_most("--steps", self.steps, MOST_STEPS)
        self._require_within(guidance=1000, eta=1, power=1000, strength=1)
        first, last = self.interval
        if not 0 <= first <= last <= 1:
            what = f"guidance cannot work from {first:g} to {last:g} of the way"
            raise ConfigError(what, where="--interval", hint="give two rising numbers from 0 to 1")
        if self.eta and self.sampler != "ddim":
            raise ConfigError(f"{self.sampler} has no eta", where="--eta", hint="leave --eta out, or take ddim")
        if self.strength is not None and not int(self.steps * self.strength):
            what = f"strength {self.strength:g} leaves none of {self.steps} steps"
            raise ConfigError(what, where="--strength", hint="give a number above 0 and at most 1, or more steps")

    def _require_within(self, **most: float) -> None:
        """Refuse numbers below 0 or above the ``most`` of each; raises `ConfigError`."""
        for name, bound in most.items():
            value = getattr(self, name)
            if value is not None and not 0 <= value <= bound:
                raise ConfigError(f"--{name} is {value:g}", where=f"--{name}", hint=f"give a number from 0 to {bound:g}")

    def guidance_at(self, share: float) -> float:
        """Return the guidance at a part of the way, from 0, the image, to 1, the noise."""
        if not self.interval[0] <= share <= self.interval[1]:
            return 1.0
        if self.power is None:
            return self.guidance
        return 1 + (self.guidance - 1) * (1 - math.cos(math.pi * (1 - share) ** self.power)) / 2

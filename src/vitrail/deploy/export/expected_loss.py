"""Judge what int8 loses of a score from few images or sentences: the mean loss, its error, and what is surely lost."""

from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, Self

from torch import Tensor

from vitrail.deploy.problems import ExportError

MOST_LOST = 0.25
"""Points of accuracy, or of chrF, that int8 may surely lose; a sound ViT-Ti/16 loses 0 to 0.15 surely, 0.17 on average."""
CONFIDENCE = 0.95
"""Probability with which more is lost than `Loss.least`."""
KEEP = "keep it all the same: --force"


@dataclass(frozen=True)
class Loss:
    """Points of a score that int8 is expected to lose."""

    points: float
    error: float
    """Standard error of ``points`` over images or sentences."""
    least: float
    """Points that are lost at least, with `CONFIDENCE`."""
    answers: int
    """Different predictions of the model."""

    @classmethod
    def of(cls, losses: Tensor, **others: Any) -> Self:
        """Return the mean of losses (N,) of images or sentences, with its error."""
        return cls(points=losses.mean().item(), error=standard_error(losses), least=at_least(losses), **others)

    def require(self, limit: float, score: str, samples: str, hint: str) -> None:
        """Refuse int8 that surely loses more than so many points of a score.

        Raises:
            ExportError: with what it loses.
        """
        if self.least > limit:
            sure = f"at least {self.least:.1f} with {CONFIDENCE:.0%} confidence; {limit:g} is the limit"
            what = f"int8 loses {self.points:.1f} points of {score} on {samples}, {sure}"
            raise ExportError(what, where="--precision", hint=hint)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, for programs."""
        return asdict(self)


def no_judgement(samples: str, hint: str) -> ExportError:
    """Return the error that all samples get one prediction."""
    what = f"int8 cannot be judged: the model gives all {samples} one and the same answer, which says nothing of others"
    return ExportError(what, where="--calibrate", hint=hint)


def standard_error(values: Tensor) -> float:
    """Return the standard error of the mean of values (N,); 0 for a single one."""
    return (values.double().std() / len(values) ** 0.5).item() if len(values) > 1 else 0.0


def at_least(losses: Tensor) -> float:
    """Return a bound that the mean of losses (N,) exceeds with `CONFIDENCE`.

    It is the normal distribution's; of losses ≥ 0 also that of Markov's inequality, which holds for however few images.
    """
    mean = losses.mean().item()
    normal = mean - NormalDist().inv_cdf(CONFIDENCE) * standard_error(losses)
    return max(normal, (1 - CONFIDENCE) * mean) if losses.min() >= 0 else normal

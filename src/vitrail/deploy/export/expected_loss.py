"""Estimates of the score that int8 loses, from few images or sentences: the mean loss, its standard error, a lower bound."""

from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, Self

from torch import Tensor

from vitrail.deploy.problems import ExportError

MOST_LOST = 0.25
"""Limit for `Loss.least`, in points of accuracy or chrF. A good ViT-Ti/16 has 0 to 0.15, and loses 0.17 on average."""
CONFIDENCE = 0.95
"""Probability that the loss is larger than `Loss.least`."""
KEEP = "keep it anyway: --force"


@dataclass(frozen=True)
class Loss:
    """The expected loss of int8, in points of a score."""

    points: float
    error: float
    """Standard error of ``points`` over images or sentences."""
    least: float
    """Lower bound of the loss, with `CONFIDENCE`."""
    answers: int
    """Number of different predictions of the model."""

    @classmethod
    def of(cls, losses: Tensor, **others: Any) -> Self:
        """Return the estimate from the losses (N,) of single images or sentences."""
        return cls(points=losses.mean().item(), error=standard_error(losses), least=at_least(losses), **others)

    def require(self, limit: float, score: str, samples: str, hint: str) -> None:
        """Refuse int8 whose loss is surely larger than ``limit`` points.

        Raises:
            ExportError: `least` is larger than the limit; the message states the loss.
        """
        if self.least > limit:
            sure = f"at least {self.least:.1f} with {CONFIDENCE:.0%} confidence; {limit:g} is the limit"
            what = f"int8 loses {self.points:.1f} points of {score} on {samples}, {sure}"
            raise ExportError(what, where="--precision", hint=hint)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, for programs."""
        return asdict(self)


def no_judgement(samples: str, hint: str) -> ExportError:
    """Return the error for a model that has the same prediction for all samples."""
    what = f"int8 cannot be judged: the model has the same prediction for all {samples}"
    return ExportError(what, where="--calibrate", hint=hint)


def standard_error(values: Tensor) -> float:
    """Return the standard error of the mean of values (N,); 0 for a single one."""
    return (values.double().std() / len(values) ** 0.5).item() if len(values) > 1 else 0.0


def at_least(losses: Tensor) -> float:
    """Return a lower bound that the mean of losses (N,) exceeds with probability `CONFIDENCE`.

    It is the bound of the normal distribution; for losses ≥ 0 the larger of this and Markov's bound, which holds for any N.
    """
    mean = losses.mean().item()
    normal = mean - NormalDist().inv_cdf(CONFIDENCE) * standard_error(losses)
    return max(normal, (1 - CONFIDENCE) * mean) if losses.min() >= 0 else normal

"""Token merging for trained models: which schedules to try within a limit on the loss of accuracy."""

from collections.abc import Callable
from typing import Any

from vitrail.errors import ConfigError
from vitrail.models.empty import empty_model
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.model_folder.trained import fill

STAGES = (3 / 12, 5 / 12, 7 / 12)
"""Positions of merging, as fractions of the depth: the schedules with the best ratio of time to accuracy (docs/deploy.md)."""
SHARES = (0.04, 0.06, 0.08, 0.1, 0.12, 0.14, 0.16, 0.18, 0.2, 0.22, 0.24, 0.26, 0.28)
"""Fractions of the image's patches to merge at each position; they are tried one after another."""


def schedule(config: Any, share: float) -> tuple[int, ...]:
    """Return the number of patches that each block merges: the fraction ``share`` of all patches at each of `STAGES`."""
    count = round(share * config.grid[0] * config.grid[1])
    stages = {int(stage * config.depth) for stage in STAGES}
    return tuple(count if block in stages else 0 for block in range(config.depth))


def require_tokens(trained: TrainedModel) -> None:
    """Raise `ConfigError` for an architecture without token merging."""
    if "token_merging" not in type(trained.config).model_fields:
        what = f"a {type(trained.model).__name__} has no tokens to merge"
        raise ConfigError(what, where="--merge", hint="leave out --merge")


def merging(trained: TrainedModel, counts: int | tuple[int, ...]) -> TrainedModel:
    """Return a copy of the model that merges tokens; both share all weights.

    Raises:
        ConfigError: the model's architecture, positions or blocks do not support token merging.
    """
    require_tokens(trained)
    model = empty_model(trained.config.changed(token_merging=counts))
    fill(model, trained.model.state_dict(), where="--merge")
    return TrainedModel(model.eval(), trained.labels, trained.preparation, trained.multi_label, trained.card, trained.thresholds)


def strongest(config: Any, allowed: Callable[[tuple[int, ...]], bool]) -> tuple[int, ...]:
    """Return the ``allowed`` schedule that merges the most patches, or zeros if none is allowed.

    A binary search finds it, which assumes that more merging loses more accuracy.
    """
    found = schedule(config, 0)
    low, high = 0, len(SHARES)
    while low < high:
        middle = (low + high) // 2
        tried = schedule(config, SHARES[middle])
        if allowed(tried):
            found, low = tried, middle + 1
        else:
            high = middle
    return found


def weaker(config: Any, counts: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the schedule ``counts``, then schedules that merge less and less, down to none."""
    return [counts, *(tried for share in (*SHARES[::-1], 0) if sum(tried := schedule(config, share)) < sum(counts))]


def read_merging(text: str) -> int | tuple[int, ...] | None:
    """Parse ``--merge``: a number, or comma-separated numbers; ``auto`` becomes None.

    Raises:
        ConfigError: anything else.
    """
    if text == "auto":
        return None
    try:
        numbers = tuple(int(word) for word in text.split(","))
    except ValueError:
        hint = "give patches per block such as 8, a number for each block such as 0,0,0,24, or auto"
        raise ConfigError(f"--merge {text!r} is not a number", where="--merge", hint=hint) from None
    return numbers[0] if len(numbers) == 1 else numbers


class TooMuchLostError(Exception):
    """A written graph that loses too much accuracy; a schedule that merges less is tried next."""

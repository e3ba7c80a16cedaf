"""Token merging for a model that is trained already: how much of it a drop of accuracy allows."""

from collections.abc import Callable
from typing import Any

from vitrail.errors import ConfigError
from vitrail.models.empty import empty_model
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.model_folder.trained import fill

STAGES = (3 / 12, 5 / 12, 7 / 12)
"""Where in the depth patches are merged: of the schedules tried these lost least for what they save (docs/deploy.md)."""
SHARES = (0.04, 0.06, 0.08, 0.1, 0.12, 0.14, 0.16, 0.18, 0.2, 0.22, 0.24, 0.26, 0.28)
"""Shares of the image's patches that each of the stages merges, as they are tried."""


def schedule(config: Any, share: float) -> tuple[int, ...]:
    """Patches that each block merges, of all patches the ``share`` at each stage."""
    count = round(share * config.grid[0] * config.grid[1])
    stages = {int(stage * config.depth) for stage in STAGES}
    return tuple(count if block in stages else 0 for block in range(config.depth))


def require_tokens(trained: TrainedModel) -> None:
    """Refuse a model whose architecture has no tokens that could be merged; raises `ConfigError`."""
    if "token_merging" not in type(trained.config).model_fields:
        what = f"a {type(trained.model).__name__} has no tokens that could be merged"
        raise ConfigError(what, where="--merge", hint="leave it out")


def merging(trained: TrainedModel, counts: int | tuple[int, ...]) -> TrainedModel:
    """The same model with merged tokens; it shares all weights.

    Raises:
        ConfigError: the model's architecture, positions or blocks leave no room for it.
    """
    require_tokens(trained)
    model = empty_model(trained.config.changed(token_merging=counts))
    fill(model, trained.model.state_dict(), where="--merge")
    return TrainedModel(model.eval(), trained.labels, trained.preparation, trained.multi_label, trained.card, trained.thresholds)


def strongest(config: Any, allowed: Callable[[tuple[int, ...]], bool]) -> tuple[int, ...]:
    """The schedule that merges most of those that are ``allowed``; more merging is taken to lose more. Zeros where none is."""
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
    """The schedule, then schedules that merge less, down to none."""
    return [counts, *(tried for share in (*SHARES[::-1], 0) if sum(tried := schedule(config, share)) < sum(counts))]


def read_merging(text: str) -> int | tuple[int, ...] | None:
    """Read ``--merge``: a number, numbers with commas between them, or ``auto``, which is None.

    Raises:
        ConfigError: anything else.
    """
    if text == "auto":
        return None
    try:
        numbers = tuple(int(word) for word in text.split(","))
    except ValueError:
        hint = "give patches per block, such as 8, or one number for each such as 0,0,0,24, or auto"
        raise ConfigError(f"--merge {text!r} is no number", where="--merge", hint=hint) from None
    return numbers[0] if len(numbers) == 1 else numbers


class TooMuchLostError(Exception):
    """The written graph loses too much; less merging is tried next."""

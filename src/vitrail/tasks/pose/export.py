"""Export of pose models: graphs in floating point, for inputs of one size."""

from pathlib import Path
from typing import Any

from vitrail.checks import refuse_given
from vitrail.runtime.observer import Note, Observer
from vitrail.tasks.pose.predictor import PoseDescription
from vitrail.tasks.pose.weights import TrainedPose

FLOATS = "a model that finds joints is exported in floats"
"""Reason why `auto` exports floating point only."""
DESCRIPTION = PoseDescription


def require_exportable(trained: TrainedPose, to: str, options: dict[str, bool], note: Note) -> None:
    """Raise `ConfigError` for options that need labels, or inputs of other sizes than the model's."""
    refused = {flag: options[flag] for flag in ("--precision", "--calibrate", "--merge", "--image-size")}
    refuse_given(f"{FLOATS}, with all its tokens, for boxes of one size", refused)
    if trained.preparation.smaller_sizes:
        note("a graph takes images of one size, and so looks at people in that size alone")


def judging(predictor: Any, model: Any, data: str | Path | None, observer: Observer) -> None:
    """Note that only speed is measured; raises `ConfigError` if data is given."""
    refuse_given("vitrail evaluate measures how well joints are found", {"--data": data is not None})
    observer.note("joints: speed alone is measured, in floats")

"""``vitrail resume``."""

from pathlib import Path


def resume(run: Path) -> None:
    """Continue an interrupted run from its newest checkpoint.

    Parameters
    ----------
    run
        The run folder.
    """
    from vitrail import api
    from vitrail.cli.progress import TrainingProgress
    from vitrail.cli.train import tell

    with TrainingProgress() as progress:
        finished = api.resume(run, observer=progress)
    tell(finished)

"""``vitrail resume``."""

import shlex
import time
from pathlib import Path

from vitrail.cli.console import Whole, note, program
from vitrail.cli.flags import Words


def resume(
    run: Path,
    *settings: Words,
    data: str | None = None,
    epochs: Whole | None = None,
) -> None:
    """Continue an interrupted run from its newest complete checkpoint, or a finished one by more epochs.

    It ends with the weights that it would have had without the interruption. Settings that do not decide them may be
    given anew by their dotted names: --data.workers 4 --training.checkpoint-every-seconds 60. Of a finished run nothing is
    left to do, and nothing is done, unless it is to have more epochs.

    Parameters
    ----------
    run
        The run folder.
    data
        Where the data is now, if it was moved: the same images, by the same names.
    epochs
        Of the whole run, for one that is finished: those that are added have a learning rate schedule of their own.
    """
    begun = time.monotonic()
    from vitrail.config.configuration import nested
    from vitrail.config.request import require_data_of
    from vitrail.config.run_files import is_finished, require_run
    from vitrail.files import path_of

    require_run(path_of(run))  # before torch is imported
    if not settings and data is None and epochs is None and is_finished(path_of(run)):
        note(f"finished: nothing to resume; {program()} resume {shlex.quote(str(run))} --epochs N goes on")
        return
    from vitrail.cli.training.train import all_settings, print_result

    flags = {name: value for name, value in (("data", data), ("epochs", epochs)) if value is not None}
    given = all_settings(settings, flags)
    require_data_of(path_of(run), nested(given))
    from vitrail import api
    from vitrail.training.runs.progress import TrainingProgress

    with TrainingProgress(begun) as progress:
        finished = api.resume(run, observer=progress, **given)
    print_result(finished)

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
    """Continue an interrupted run from its newest complete checkpoint, or extend a finished run by more epochs.

    The run ends with the same weights as without the interruption. Settings that do not change the weights can be given new
    values by their dotted names: --data.workers 4 --training.checkpoint-every-seconds 60. Without --epochs, nothing is done for
    a finished run.

    Parameters
    ----------
    run
        The run folder.
    data
        The new path of the data, if it was moved: the same images with the same names.
    epochs
        New total number of epochs of a finished run; the added epochs have their own learning rate schedule.
    """
    begun = time.monotonic()
    from vitrail.config.configuration import nested
    from vitrail.config.request import require_data_of
    from vitrail.config.run_files import is_finished, require_run
    from vitrail.files import path_of

    require_run(path_of(run))  # before torch is imported
    if not settings and data is None and epochs is None and is_finished(path_of(run)):
        note(f"finished: nothing to resume; {program()} resume {shlex.quote(str(run))} --epochs N extends it")
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

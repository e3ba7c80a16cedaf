"""The data to evaluate a model on: data that the user names, or the data of its run without skipped items."""

from pathlib import Path

from vitrail.config.run_files import BAD_IMAGES, is_run
from vitrail.data.readers import sources
from vitrail.data.readers.unlabelled import open_unlabelled
from vitrail.data.splits import share_of
from vitrail.errors import ConfigError, DataError
from vitrail.files import path_of
from vitrail.runtime.observer import Note
from vitrail.training.run_data import learned_from, run_data_of
from vitrail.training.runs.run_folder import RunFolder


def open_for(
    model: object, data: str | Path | None, *, labelled: bool = True, note: Note = lambda text: None
) -> tuple[sources.ImageData, bool]:
    """Return the data to evaluate on, and whether its splits can be used for this model.

    With ``labelled=False``, images need no labels. ``note`` receives remarks on how the data was read.
    """
    run, open_images = _run_of(model), sources.open_data if labelled else open_unlabelled
    if data is not None:
        source = open_images(data)
        if run is None or not _same(source.source, run.settings.data.source):
            source.tell(note)
            return source, source.has_splits
    if run is None:
        raise ConfigError("no data given", where="--data", hint="give --data with the images to evaluate on")
    bad, place = run.bad_images, run.settings.data.source if data is None else data
    source = open_images(place, assignment=run.assignment, group=run.settings.data.group).without(bad)
    needs_labels = run_data_of(run.settings).row.labels == "required"
    if labelled == needs_labels:  # otherwise a different part would be selected than in training
        source = learned_from(source, run.settings, share_of)
    if bad:
        note(f"images that the run could not read and leaves out: {len(bad):,}; {BAD_IMAGES} lists them")
    source.tell(note)
    return source, True


def open_any(model: object, data: str | Path | None, *, note: Note) -> tuple[sources.ImageData, bool]:
    """Open the data as `open_for` does, with labels if there are any, for a model that needs none."""
    try:
        return open_for(model, data, note=note)
    except DataError:
        if scoring_run(model) is None:
            raise
        return open_for(model, data, labelled=False, note=note)


def scoring_run(model: object) -> RunFolder | None:
    """Return the run of a MODEL, if only the run's task can score the model; else None."""
    run = _run_of(model)
    return run if run is not None and run_data_of(run.settings).scored_with_run else None


def own_run(model: object, data: str | Path | None) -> tuple[RunFolder | None, bool]:
    """Return the run of a MODEL, or None, and whether ``data`` is the run's data; None means the run's data."""
    run = _run_of(model)
    return run, run is not None and (data is None or _same(str(path_of(data)), run.settings.data.source))


def _run_of(model: object) -> RunFolder | None:
    return RunFolder.open(path_of(model)) if isinstance(model, str | Path) and is_run(path_of(model)) else None


def _same(a: str, b: str) -> bool:
    return a == b or Path(a).resolve() == Path(b).resolve()  # a symbolic link counts as its target

"""The functions behind the commands: train, resume, evaluate, predict."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vitrail.config.configuration import nested
from vitrail.data.images.transform import Transform
from vitrail.deploy.bench import bench as benches
from vitrail.deploy.export.export_model import export as export
from vitrail.deploy.server.serve import serve as serve
from vitrail.evaluation import evaluate as evaluate
from vitrail.files import path_of, whole_folder
from vitrail.result import Run, write_report
from vitrail.runtime.observer import Observer
from vitrail.runtime.output import require_free
from vitrail.studies import study_model as study_model
from vitrail.tasks.teachers import AnyTeacher
from vitrail.training.runs.progress import watching
from vitrail.training.runs.resuming import settings_to_resume
from vitrail.training.runs.run import begin_run, finished_run, resume_run
from vitrail.training.runs.run_folder import RunFolder
from vitrail.training.runs.setup import teacher_settings
from vitrail.training.sweep import Sweep, dotted_name

if TYPE_CHECKING:
    from vitrail.study.compare.comparison import Compared


def train(
    data: str | Path | None = None,
    out: str | Path | None = None,
    *,
    recipe: str | None = None,
    config: str | Path | None = None,
    observer: Observer | None = None,
    progress: bool | None = None,
    transform: Transform | None = None,
    teacher: str | Path | AnyTeacher | None = None,
    **settings: Any,
) -> Run:
    """Train a model and write its run folder.

    Args:
        data: ``digits``, a folder of images, or any other source of `open_data`; by default the recipe's, if it names one.
        out: the run folder; ``runs/NAME-DATE-TIME`` by default. It must not exist.
        recipe: a name that `vitrail recipes` lists. By default the task's recipe, else ``finetune`` where ``start`` names a
            model, else ``digits`` or ``cifar10`` for these data sets, else ``scratch``.
        config: a YAML file whose settings override the recipe's.
        observer: receives the progress of the run; then no progress bar is shown.
        progress: whether to show progress, on stderr or in the notebook's cell; None shows it on a terminal and in a notebook.
        transform: a callable that changes every training image before flips and crops, such as a torchvision transform.
        teacher: a model to distil from: its path, a loaded model, or any callable wrapped in a `vitrail.CallableTeacher`.
        settings: settings that override recipe and file: by short name (``epochs=5``), by dotted name
            (``**{"model.depth": 6}``), or as a section (``training={"ema": 0.99}``).

    Raises:
        VitrailError: with the exit code of the command; see `vitrail.errors`.
    """
    if data is not None:
        settings["data"] = data if isinstance(data, str) else str(path_of(data))
    values, own = nested(settings | teacher_settings(teacher)), None if isinstance(teacher, str | Path) else teacher
    with watching(observer, progress) as observer:
        options: dict[str, Any] = {"observer": observer, "transform": transform, "teacher": own}
        return Run.of(begin_run(out, write_report, values, recipe=recipe, config=config, **options))


def resume(
    folder: str | Path,
    *,
    observer: Observer | None = None,
    progress: bool | None = None,
    transform: Transform | None = None,
    teacher: AnyTeacher | None = None,
    **settings: Any,
) -> Run:
    """Continue an interrupted run from its newest complete checkpoint, with its settings and data; open a finished run.

    Args:
        folder: the run folder.
        observer, progress: as in `train`.
        transform, teacher: the same objects as in `train`, since the saved settings cannot hold a callable.
        settings: new values of settings that do not change the weights, such as ``**{"data.workers": 4}``; or more
            ``epochs`` for a finished run.

    Raises:
        VitrailError: with the exit code of the command; see `vitrail.errors`.
    """
    run, values = RunFolder.open(path_of(folder)), nested(settings)
    extends = settings_to_resume(run, values).schedule.extended_at != run.settings.schedule.extended_at
    if not extends and (ended := finished_run(run)) is not None:
        return Run(*ended)
    with watching(observer, progress) as observer:
        return Run.of(resume_run(folder, write_report, values, observer=observer, transform=transform, teacher=teacher))


def bench(model: str | Path, data: str | Path | None = None, out: str | Path | None = None, **options: Any) -> dict[str, Any]:
    """Measure a model's speed in engines and precisions, and draw it in the folder ``out``; see `vitrail.deploy.bench`."""
    if out is not None:
        require_free(path_of(out))
    measured = benches.bench(model, data, **options)
    if out is not None:
        from vitrail.study.page.bench_plot import write_bench

        write_bench(path_of(out), measured, benches.best_rows(measured["rows"]))
    return measured


def compare(runs: str | Path | Sequence[str | Path], out: str | Path | None = None) -> "list[Compared]":
    """Compare runs, in the order of the argument: scores with their uncertainty, curves, cost, settings that differ.

    Args:
        runs: one or several run folders; a run may be unfinished.
        out: a folder for ``report.html``, ``curves.png`` and ``comparison.json``, which must not exist; None writes nothing.

    Raises:
        ModelFileError: a folder is not a run folder.
    """
    from vitrail.study.compare.comparison import Compared, by_last_name
    from vitrail.study.compare.comparison_page import write_comparison

    if out is not None:
        require_free(path_of(out))
    folders = [runs] if isinstance(runs, str | Path) else runs
    compared = by_last_name([Compared(str(run), **RunFolder.open(path_of(run)).record) for run in folders])
    if out is not None:
        with whole_folder(path_of(out), replace=False) as draft:
            write_comparison(draft, compared)
    return compared


def sweep(
    data: str | Path | None,
    out: str | Path,
    *,
    over: Mapping[str, Iterable[Any]],
    recipe: str | None = None,
    config: str | Path | None = None,
    against: str | None = None,
    on: Literal["ray"] | None = None,
    observer: Observer | None = None,
    **settings: Any,
) -> "list[tuple[dict[str, Any], Compared]]":
    """Train a model for every combination of settings, and write one table and one plot of all runs.

    A second call with the same arguments continues the sweep: it keeps finished runs and resumes interrupted ones. A run that
    diverged stays in the table without a score and is not repeated.

    Args:
        data: as in `train`.
        out: a folder; each run is a subfolder.
        over: the values to try, by the short or dotted name of a setting. Runs that differ only in the seed are averaged.
            Models may have different architectures: each model takes those of the common model settings that it knows.
        recipe, config, settings: as in `train`, for all runs.
        against: the x axis of the plot: a setting, or ``operations`` of training; by default the first numeric one of ``over``.
        on: ``"ray"`` to train the runs at the same time, on a Ray cluster or on this machine; by default one after another.
        observer: receives the progress of each run.

    Raises:
        VitrailError: with the exit code of the command; see `vitrail.errors`.
    """
    from vitrail.study.compare.comparison import Compared
    from vitrail.study.compare.sweeps import score_axis, write_sweep

    sweep, folder = Sweep(data, over, recipe=recipe, config=config, settings=settings), path_of(out)
    against = score_axis(against, sweep.axes, dotted_name)
    runs = sweep.run(folder, observer or Observer(), train=train, resume=resume, on=on)
    compared = [(values, Compared(name, **record)) for values, name, record in runs]
    write_sweep(folder, compared, title=sweep.title, against=against)
    return compared

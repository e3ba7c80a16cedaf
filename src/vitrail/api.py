"""The functions behind the commands: train, resume, evaluate, predict."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
        data: ``digits``, a folder of images, or any other source of `open_data`; the recipe's own if it has one.
        out: the run folder; ``runs/NAME-DATE-TIME`` by default. It must not exist.
        recipe: a name of `vitrail recipes`; by default the task's own, else ``finetune`` where ``start`` names a model, the
            recipes of the digits or of CIFAR-10 for them, else ``scratch``.
        config: a YAML file over the recipe.
        observer: gets the progress of the run, in place of what would be shown.
        progress: whether to show how it goes, on stderr or in the cell of a notebook; None does on a terminal and in a notebook.
        transform: a change of your own to every training picture, before flips and crops: a torchvision transform, say.
        teacher: a model to learn from as well: the path of one, a loaded one, or any callable as a `vitrail.CallableTeacher`.
        settings: any setting over recipe and file: by its short name (``epochs=5``), its dotted name
            (``**{"model.depth": 6}``), or a whole section (``training={"ema": 0.99}``).

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
    """Continue an interrupted run with its own settings and data, from its newest complete checkpoint; a finished one is opened.

    Args:
        folder: the run folder.
        observer, progress: as in `train`.
        transform, teacher: the same as in the run; settings are data and hold no callable.
        settings: new values for what does not decide the weights, as in `train`: ``**{"data.workers": 4}``; or more
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
    """Measure a model in engines and precisions, with a plot in ``out`` if it is given; see `vitrail.deploy.bench`."""
    if out is not None:
        require_free(path_of(out))
    measured = benches.bench(model, data, **options)
    if out is not None:
        from vitrail.study.page.bench_plot import write_bench

        write_bench(path_of(out), measured, benches.best_rows(measured["rows"]))
    return measured


def compare(runs: str | Path | Sequence[str | Path], out: str | Path | None = None) -> "list[Compared]":
    """Compare runs side by side, in the order given: scores with their uncertainty, curves, cost, differing settings.

    Args:
        runs: the folder of a run, finished or not, or several.
        out: a folder to write ``report.html``, ``curves.png`` and ``comparison.json`` to, which must not exist; none by default.

    Raises:
        ModelFileError: a folder that is no run.
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
    observer: Observer | None = None,
    **settings: Any,
) -> "list[tuple[dict[str, Any], Compared]]":
    """Train a model for every combination, and write one table and one picture of all of them.

    Called again with the same arguments it goes on where it was: finished runs stay, interrupted ones are resumed. A run that
    diverges stays in the table without a score, and is not tried again.

    Args:
        data: as in `train`.
        out: a folder; every run has one of its own in it.
        over: values by the short or dotted name of a setting; runs that differ only in the seed are averaged. Models may be of
            several architectures: each takes the settings of a model, given to all, that it has.
        recipe, config, settings: of all runs, as in `train`.
        against: the setting, or ``operations`` of training, to draw scores against; by default the first ``over`` with numbers.
        observer: gets the progress of each run.

    Raises:
        VitrailError: with the exit code of the command; see `vitrail.errors`.
    """
    from vitrail.study.compare.comparison import Compared
    from vitrail.study.compare.sweeps import score_axis, write_sweep

    sweep, folder = Sweep(data, over, recipe=recipe, config=config, settings=settings), path_of(out)
    against = score_axis(against, sweep.axes, dotted_name)
    runs = sweep.run(folder, observer or Observer(), train=train, resume=resume)
    compared = [(values, Compared(name, **record)) for values, name, record in runs]
    write_sweep(folder, compared, title=sweep.title, against=against)
    return compared

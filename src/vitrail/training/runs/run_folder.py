"""The folder of a run, which is never overwritten by another run."""

import csv
import errno
import io
import json
import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from vitrail.config.run_files import (
    BAD_IMAGES,
    CONFIG,
    FEATURES,
    METRICS,
    SPLITS,
    STATUS,
    is_run,
    require_run,
    rows_of,
    standing,
    texts,
)
from vitrail.config.settings import RunSettings
from vitrail.config.yaml_files import read_yaml, to_yaml
from vitrail.data.readers import sources
from vitrail.errors import ConfigError, DataError, DiskFullError, UnreadableImageError, VitrailError
from vitrail.files import locked, recover_folder, whole_folder, write_bytes, write_json, write_text
from vitrail.models.cost import totals
from vitrail.models.registry import family_of
from vitrail.runtime.environment import environment, now
from vitrail.runtime.observer import Observer
from vitrail.runtime.output import taken
from vitrail.runtime.processes import Processes
from vitrail.runtime.signals import REQUEUED, SAVED, InterruptedRunError, Signals, requeue
from vitrail.runtime.terminal import escaped
from vitrail.tasks.settings import TaskSettings
from vitrail.training.runs.checkpoint import checkpoints, keep_newest, read_state, recover_checkpoints


class RunFolder:
    """A run folder: reads and writes all files except models, images and checkpoints.

    Of several processes, only the one with ``writes`` changes files.
    """

    def __init__(self, path: Path, *, writes: bool = True):
        self.path, self.writes = path, writes
        self.made: list[Path] | None = None
        """Folders that were created for a new run: its own, unless it existed, and missing parents."""

    @classmethod
    def create(
        cls,
        path: Path,
        settings: RunSettings,
        assignment: dict[str, str] | None,
        bad_images: dict[str, str] | None = None,
        **files: bytes,
    ) -> "RunFolder":
        """Create the folder completely or not at all; call `require_free` before any work.

        It contains the run's configuration, environment and status, the split of each image, the skipped images with reasons,
        and further ``files`` by name.
        """
        run, missing = cls(path), [p for p in (path, *path.parents) if not p.exists()]

        def fill(draft: Path) -> None:
            write_text(draft / CONFIG, to_yaml(settings))
            write_json(draft / "env.json", environment())
            if assignment is not None:
                write_json(draft / SPLITS, assignment)
            if bad_images:
                write_json(draft / BAD_IMAGES, bad_images)
            for name, content in files.items():
                write_bytes(draft / name, content)
            for folder in (draft / "plots", draft / "checkpoints"):
                folder.mkdir(exist_ok=True)
            write_json(draft / STATUS, run.status("running", epoch=0))

        try:
            if path.is_dir():  # not renamed, since it may be a mount point
                (path / "plots").mkdir()  # fails if another run was faster
                run.made = []
                fill(path)
            else:
                with whole_folder(path, replace=False) as draft:
                    fill(draft)
                run.made = missing
        except BaseException as error:
            run.remove()
            _remove_empty(missing)
            if not isinstance(error, OSError):
                raise
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
                raise taken(path) from None
            hint = "give a folder that can be written"
            raise ConfigError(f"cannot write the run folder: {error.strerror}", where=path, hint=hint) from None
        return run

    @contextmanager
    def at_work(self, signals: Signals, group: Processes) -> Iterator[None]:
        """Lock the run for the group, and record the outcome if it fails or is stopped."""
        with ExitStack() as lock:
            with group.together():  # the writing process takes the lock for all others
                lock.enter_context(locked(self.path) if self.writes else nullcontext())
            try:
                yield
            except InterruptedRunError:
                if self.writes and signals.received == REQUEUED and (outcome := requeue()):
                    self.log(outcome)
                raise
            except BaseException as error:
                # a second signal, or another process that already stopped for the same signal
                ends = (KeyboardInterrupt, RuntimeError) if group.count > 1 else KeyboardInterrupt
                stopped = bool(signals.received) and isinstance(error, ends)
                with suppress(OSError):  # for example a full disk; ``error`` matters more
                    self._fail(error, stopped=stopped)
                if stopped:
                    what = "stopped at once; the last checkpoint is kept"
                    raise InterruptedRunError(signals.received, self.path, self.resume_command, what=what) from error
                if isinstance(error, UnreadableImageError) and is_run(self.path):
                    hint = f"bring it back as it was, then {self.resume_command}"  # skipping it would change the data
                    raise UnreadableImageError(error.what, where=error.where, hint=hint) from error
                raise

    def _fail(self, error: BaseException, *, stopped: bool) -> None:
        """Delete a new run that failed before it saved anything; otherwise record the failure."""
        if not self.writes:
            return
        saved = checkpoints(self.path) or (self.path / "best").is_dir() or isinstance(error, DiskFullError)
        saved = saved or (isinstance(error, DataError) and any(self.path.glob(f"{FEATURES}/*")))
        if self.made is not None and not saved and not stopped:
            self.remove()
            return
        what = error.what if isinstance(error, VitrailError) else repr(error)
        if not stopped and self.made is None and self.standing["state"] == "finished":
            self.log(f"not extended: {what}")
            return
        self.write_status("interrupted" if stopped else "failed", error=what)
        self.log(f"failed: {what}")

    def recover(self) -> None:
        """Remove half-written files of a killed run."""
        if self.writes:
            for name in ("best", "last", CONFIG, STATUS, "metrics.jsonl", "metrics.csv"):
                recover_folder(self.path / name)
            recover_checkpoints(self.path)

    def extend(self, settings: RunSettings) -> None:
        """Write the settings with which a finished run continues."""
        if self.writes:
            place = {name: value for name, value in self.standing.items() if name in ("epoch", "step", "best")}
            self.write_status("running", **place)
            write_text(self.path / CONFIG, to_yaml(settings))
            self.log(f"extended to {settings.training.epochs} epochs")

    def move(self, source: str, task: TaskSettings) -> None:
        """Record the new location of the data, and of what else the task's settings name."""
        if self.writes:
            begun = self.settings
            write_text(self.path / CONFIG, to_yaml(begun.changed(data=begun.data.changed(source=source), task=task)))
            places = {"the data": source, **{f"task.{name}": getattr(task, name) for name in task.places}}
            self.log(", ".join(f"{name} is at {place} now" for name, place in places.items() if place is not None))

    def remove(self) -> None:
        """Undo `create`: delete everything in the folder, and the folders that it created."""
        if self.made is None:
            return
        for entry in self.path.iterdir() if self.path.is_dir() else ():
            if entry.name == "lost+found":  # the folder is a mount point
                continue
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        _remove_empty(self.made)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open an existing run; raises `ModelFileError` if ``path`` is not a run folder."""
        require_run(path)
        return cls(path)

    @property
    def settings(self) -> RunSettings:
        """The complete settings of the run."""
        return RunSettings.read(read_yaml(self.path / CONFIG))

    @property
    def assignment(self) -> dict[str, str] | None:
        """The split of each image, if the run assigned them; None if the data has splits."""
        file = self.path / SPLITS
        return texts(file, sources.SPLITS) if file.exists() else None

    @property
    def bad_images(self) -> dict[str, str]:
        """The images that the run skips: reasons by name."""
        file = self.path / BAD_IMAGES
        return texts(file) if file.exists() else {}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The metrics of every epoch."""
        return rows_of(self.path)

    def write_rows(self, rows: list[dict[str, Any]]) -> None:
        """Write the metrics of all epochs as JSON lines and as CSV."""
        if not self.writes:
            return
        write_text(self.path / METRICS, "".join(json.dumps(row) + "\n" for row in rows))
        table = io.StringIO()
        columns = dict.fromkeys(name for row in rows for name in row)  # rows of an earlier version may have other names
        writer = csv.DictWriter(table, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_text(self.path / "metrics.csv", table.getvalue())

    def keep_newest_checkpoint(self) -> None:
        """Delete all checkpoints but the newest, which a finished run does not need, and log it."""
        if self.writes and (freed := keep_newest(self.path)):
            self.log(f"finished: all checkpoints but the newest are removed, {freed / 1e6:,.1f} MB")

    @property
    def standing(self) -> dict[str, Any]:
        """The content of status.json."""
        return standing(self.path)

    @property
    def fingerprint(self) -> dict[str, Any] | None:
        """The fingerprint of the data in the newest checkpoint; None if it cannot be read."""
        with suppress(OSError, VitrailError):
            return next((read_state(folder).get("data") for folder in checkpoints(self.path)), None)
        return None

    @property
    def record(self) -> dict[str, Any]:
        """The fields of `vitrail.study.compare.comparison.Compared`."""
        settings, standing = self.settings, self.standing
        parameters, macs = totals(settings.model.config)
        return {
            "folder": self.path,
            "family": family_of(settings.model.config),
            "parameters": parameters,
            "macs": macs,
            "settings": settings.model_dump(mode="json"),
            "data": self.fingerprint,
            "rows": self.rows,
            "state": standing["state"],
            "split": standing.get("split", ""),
            "scores": standing.get("scores", {}),
        }

    def write_status(self, state: str, **values: Any) -> None:
        """Write the state of the run to status.json, with the command that continues it."""
        if self.writes:
            write_json(self.path / STATUS, self.status(state, **values))

    def status(self, state: str, **values: Any) -> dict[str, Any]:
        """Return the content of status.json for a state."""
        resume = None if state == "finished" else self.resume_command
        return {"state": state, "time": now(), "resume": resume, **values}

    @property
    def resume_command(self) -> str:
        """The command that continues the run."""
        return f"vitrail resume {shlex.quote(os.path.abspath(self.path))}"

    def leave_for(self, number: int, *, what: str = SAVED) -> None:
        """Stop before the first step if a signal arrived: raises `InterruptedRunError` with the message ``what``."""
        if number:
            self.write_status("interrupted", epoch=0, step=0)
            self.log(f"stopped by signal {number} before the first step")
            raise InterruptedRunError(number, self.path, self.resume_command, what=what)

    def tell(self, message: str, observer: Observer) -> None:
        """Log a message, and pass it to the observer."""
        self.log(message)
        observer.note(message)

    def log(self, message: str) -> None:
        """Append a line to train.log; a full disk is ignored."""
        if self.writes:
            with suppress(OSError), (self.path / "train.log").open("a", encoding="utf-8") as file:
                file.write(f"{now()}  {escaped(message)}\n")


def begun_by(settings: RunSettings) -> RunFolder | None:
    """Return the run whose model a run starts from, if it learned the same task; None otherwise."""
    if settings.start is None or not is_run(path := Path(settings.start)):
        return None
    run = RunFolder(path, writes=False)
    return run if run.settings.task.name == settings.task.name else None


def _remove_empty(folders: Sequence[Path]) -> None:
    """Remove empty folders, the innermost first."""
    for folder in folders:
        with suppress(OSError):  # it is not empty, or another process removed it
            folder.rmdir()

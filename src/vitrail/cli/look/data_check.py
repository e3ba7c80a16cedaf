"""``vitrail data check``."""

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitrail.checks import refuse_given
from vitrail.cli.console import result, result_json
from vitrail.cli.flags import Source, Target, Words
from vitrail.cli.training.train import dotted_settings
from vitrail.errors import DataError, unknown

if TYPE_CHECKING:
    from vitrail.data.checks.found import Found
    from vitrail.data.items import Issue
    from vitrail.task_registry import TaskRow

OPTIONS = ["source", "target", "task", "config", "model", "out", "bad-lines", "json"]
"""Options of the command."""
MINOR = ("profile", "ignored", "no-split")
"""Kinds of notices that rarely matter."""
MAX_NOTICES = 10
"""Number of notices of each kind that are printed; the rest is counted."""


def check(
    data: str,
    /,
    *settings: Words,
    source: Source = None,
    target: Target = None,
    task: str | None = None,
    config: Path | None = None,
    model: str | None = None,
    out: str | None = None,
    bad_lines: str | None = None,
    json: bool = False,
) -> None:
    """Check every image and label of a data set, or every sentence, person, caption or mask, and list the faults.

    The exit code is 3 if there are faults; notes are not faults. No file is moved or changed.

    Images: finds unreadable images, empty classes, classes that are missing in a split or have nearly the same name, the same
    image with different labels or in several splits, nearly the same image in several splits, images outside the class folders,
    ambiguous folders, and bad rows of a table. Notes other near-duplicates, images that should not be mirrored, and, with a
    model, doubtful labels.

    Sentences: counts sentences and their lengths; finds training sentences in another split, and lines that are no pair.

    People: counts the marked joints and the sizes of boxes; finds images that are missing, damaged, of another size or in several
    splits, annotations that are unreadable, duplicated or without a joint in their box, and swapped eyes. Notes boxes without
    marked joints, joints and boxes outside of the image, joints far from their box, people with few joints, data in which all
    people turn their backs, and other pairs of joints that seem swapped. Your own skeleton is given as to vitrail train.

    Captions: counts captions and their lengths; finds images that are missing, damaged, without a caption or in several splits.
    Notes duplicate images and repeated captions.

    Masks: counts the pixels and images of each class; finds images without a mask, masks of another size, values of no class,
    masks that are JPEG or have the colours of a palette in place of its indices, classes that never occur, and images in several
    splits. Notes masks of one class alone. Classes that are void are given as to vitrail train: --task.void NAME.

    Parameters
    ----------
    data
        digits, a folder of images, a labels.csv, cifar10:PATH, hf:NAME or wds:PATTERN; or sentences, people or captions, as
        vitrail train takes them.
    task
        The task that the data is for: pose for people, caption for captions, segment for masks, mae for images without labels.
        Default: segment for a folder with images and masks, or a table of both; caption for a file with this word in its name;
        pose for any other JSON file, or for a table with columns for joints and none for labels.
    config
        A YAML file of vitrail train with the skeleton of the people, or the void classes of masks.
    model
        A run folder, a model folder, a file of weights or a hub id. Its features show doubtful labels; a model that was not
        trained on these labels finds most of them.
    out
        A folder to write an HTML page with images and tables to. Default: with a model checks/NAME-DATE-TIME, else none.
    bad_lines
        For sentences: skip lists lines that are no pair as notes, since vitrail train --bad-lines skip leaves them out.
    json
        One JSON document: source, images, classes, splits, sizes, modes, notes, faults, notices, near_duplicates, and the
        folder if one is written. For sentences: source, languages, sentences, splits, words, notes, faults, notices. For people:
        source, people, images, splits, marked, boxes, left_out, notes, not_in_file, faults, notices. For captions: source,
        images, splits, captions, words, left_out, notes, faults, notices. For masks: source, images, classes, splits, pixels,
        void, images_of_class, sizes, modes, notes, faults, notices.
    """
    from vitrail.tasks.inspection import InspectionRequest, inspection_of, row_for

    own = _of_the_task(settings)
    row = row_for(data, task, languages=source is not None or target is not None)
    inspection = inspection_of(row)
    given = {"model": model, "out": out, "config": config, "settings": own or None, "bad_lines": bad_lines}
    _refuse_others(row, {name for name, value in given.items() if value is not None} - inspection.options, own)
    from vitrail.cli.progress import StageProgress

    with StageProgress() as progress:
        request = InspectionRequest(data, source, target, bad_lines, config, own, model, out, progress)
        found = inspection.check(request)
    if json:
        result_json(found.to_json())
    else:
        _print(found)
    if found.issues:
        sys.exit(DataError.exit_code)


def _refuse_others(row: "TaskRow", others: set[str], settings: Iterable[str]) -> None:
    """Raise `ConfigError` for options that have no effect for a task's data."""
    as_it_is = (
        f"{row.name} learns without labels" if row.items == "images" else f"{row.items} are checked without a model and a page"
    )
    refuse_given(as_it_is, {"--model": "model" in others, "--out": "out" in others})
    skeletons = {"--config": "config" in others, **{f"--{name}": "settings" in others for name in settings}}
    refuse_given("only people and masks have such settings", skeletons)
    refuse_given(f"{row.items} have no lines of sentences", {"--bad-lines": "bad_lines" in others})


def _of_the_task(settings: tuple[str, ...]) -> dict[str, Any]:
    """Return the settings of the task, by their dotted names; raises `ConfigError` for any other option."""
    found = dotted_settings(settings)
    if other := next((name for name in found if not name.startswith("task.")), None):
        raise unknown("option", other, OPTIONS, where=f"--{other}")
    return found


def _print(found: "Found") -> None:
    """Print a summary, then the faults (of each kind at most ``found.most_issues``), then the notices."""
    for line in found.lines():
        result(line)
    result("")
    for kind, number in Counter(issue.kind for issue in found.issues).items():
        for issue in [issue for issue in found.issues if issue.kind == kind][: found.most_issues]:
            result(f"{kind}  {issue.path}  {issue.what}")
        if found.most_issues is not None and number > found.most_issues:
            result(f"{kind}  and {number - found.most_issues:,} more; --json lists them all")
    _print_notices(found.notices)
    count = len(found.issues)
    result(f"{count:,} fault{'s' if count > 1 else ''}" if count else "no faults")
    if found.folder is not None:
        result(f"page     {found.folder / 'report.html'}")


def _print_notices(noticed: "list[Issue]") -> None:
    """Print at most `MAX_NOTICES` notices of each kind; the kinds of `MINOR` come last."""
    kinds: Counter[str] = Counter(notice.kind for notice in noticed if notice.kind != "hidden")
    for kind, count in sorted(kinds.items(), key=lambda each: each[0] in MINOR):
        notices = [notice for notice in noticed if notice.kind == kind]
        for notice in notices[:MAX_NOTICES]:
            result(f"note: {kind}  {notice.path}  {notice.what}")
        if count > MAX_NOTICES:
            result(f"note: {kind}  and {count - MAX_NOTICES:,} more; --json lists them all")

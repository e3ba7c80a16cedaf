"""``vitrail data check``."""

import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from vitrail.checks import refuse_given
from vitrail.cli.console import result, result_json
from vitrail.cli.training.train import dotted_settings
from vitrail.errors import ConfigError, DataError, unknown

if TYPE_CHECKING:
    from vitrail.data.checks.check import Check
    from vitrail.data.items import Issue
    from vitrail.tasks.captioning.images.check import CaptionCheck
    from vitrail.tasks.pose.files.check import PeopleCheck
    from vitrail.tasks.pose.people.skeleton import Skeleton
    from vitrail.tasks.translation.check import PairCheck

OPTIONS = ["source", "target", "task", "config", "model", "out", "bad-lines", "json"]
"""Of the command."""
MINOR = ("profile", "ignored", "no-split")
"""Kinds of notices that seldom matter."""
MAX_ROWS = 40
"""Longer tables of classes are summed up."""
MAX_NOTICES = 10
"""More notices of a kind are counted."""


def check(
    data: str,
    /,
    *settings: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)],
    source: str | None = None,
    target: str | None = None,
    task: str | None = None,
    config: Path | None = None,
    model: str | None = None,
    out: str | None = None,
    bad_lines: str | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Look at every image and label of a data set, at every sentence, person or caption, and say what is wrong.

    Finds images that cannot be read, empty classes, classes missing from a split, the same picture under several labels,
    in several splits or twice among images that are yet to be split, nearly the same picture in several splits, images of no
    class, classes whose names are nearly the same, folders that can be read in two ways, and bad rows of a table. The exit code
    is 3 when there are any. It notes near-duplicates elsewhere, images that are not to be mirrored, and, with a model, labels
    that are probably wrong. Nothing is moved or changed.

    Of sentences it says how many and how long they are, and finds those that are in training and in another split, and lines
    that are no pair.

    Of people in pictures it says how often each joint is marked and how large boxes are. It finds pictures that are missing,
    damaged, in several splits, or of another size than the data says; annotations that cannot be read, that are there twice, or
    of which no joint lies in the box; and eyes whose left and right are exchanged. It notes boxes of people without marked
    joints, joints and boxes outside of the picture, joints far from their box, people of few joints, and people who all seem to
    turn their backs, and pairs of joints whose left and right seem to be exchanged. A skeleton of your own is given as vitrail
    train takes it: --config skeleton.yaml, or --task.skeleton.pairs and so on.

    Of captions it says how many an image has and how long they are. It finds images that are missing, damaged, without a
    caption or in several splits, and notes copies, and captions that an image has twice.

    Parameters
    ----------
    data
        digits, a folder of images, a labels.csv, cifar10:PATH, hf:NAME or wds:PATTERN; or sentences, people or captions, as
        vitrail train takes them.
    source
        Of sentences, the language that is read: a column of the table, or the suffix of a file.
    target
        Of sentences, the language that is written.
    task
        The task that the data is for: pose for people, caption for captions, mae for images without labels. Default: captions
        in a file that has the word in its name; people in any other JSON file, or in a table that has columns for joints and
        none for labels.
    config
        A YAML file of vitrail train, whose skeleton people are looked at with.
    model
        A run folder, a model folder, a file of weights or a hub id, by whose features labels are judged. One that was not
        trained on these labels finds most.
    out
        A folder to write a page with pictures and tables to. Default: with a model checks/NAME-DATE-TIME, else none.
    bad_lines
        Of sentences: with skip, lines that are no pair are notes, since vitrail train --bad-lines skip leaves them out.
    json
        One JSON document: source, images, classes, splits, sizes, modes, notes, faults, notices, near_duplicates, and the
        folder where one is written. Of sentences: source, languages, sentences, splits, words, notes, faults, notices. Of people:
        source, people, images, splits, marked, boxes, left_out, notes, untold, faults, notices. Of captions: source, images,
        splits, captions, words, left_out, notes, faults, notices.
    """
    kind = kind_of(data, task, languages=source is not None or target is not None)
    if kind != "images":
        refuse_given(f"{kind} are looked at as they are", {"--model": model is not None, "--out": out is not None})
    own = _of_the_task(settings)
    if kind != "people":
        given = {"--config": config is not None, **{f"--{name}": True for name in own}}
        refuse_given("only people have a skeleton that may be given", given)
    if kind == "sentences":
        _check_sentences(data, languages_of(source, target), bad_lines, json=json)
        return
    refuse_given(f"{kind} have no lines of sentences", {"--bad-lines": bad_lines is not None})
    if kind == "people":
        _check_people(data, config, own, json=json)
        return
    if kind == "captions":
        _check_captions(data, json=json)
        return
    labelled = _has_labels(task)
    if not labelled:
        refuse_given(f"{task} learns without labels", {"--model": model is not None, "--out": out is not None})
    if model is None and out is None:
        from vitrail.data.checks.check import check_data

        found, folder = _counted(partial(check_data, labelled=labelled), data), None
    else:
        found, folder = _with_page(data, model, out)
    if json:
        result_json(found.to_json() | ({} if folder is None else {"folder": str(folder)}))
    else:
        _print(found)
        if folder is not None:
            result(f"page     {folder / 'report.html'}")
    if found.issues:
        sys.exit(DataError.exit_code)


def _of_the_task(settings: tuple[str, ...]) -> dict[str, Any]:
    """Settings of the task by their dotted names; raises `ConfigError` for all that is none, and so a mistake."""
    found = dotted_settings(settings)
    if other := next((name for name in found if not name.startswith("task.")), None):
        raise unknown("option", other, OPTIONS, where=f"--{other}")
    return found


def _has_labels(task: str | None) -> bool:
    """Whether images are learned from by their labels in a task, and where none is named."""
    from vitrail.task_registry import task_row

    return task is None or task_row(task).labelled


def kind_of(data: str, task: str | None, *, languages: bool) -> str:
    """What a data set holds, as `TaskRow.items` has it; raises `ConfigError` for a task that there is not, or not for it."""
    from vitrail.task_registry import task_row
    from vitrail.tasks.captioning.images.sources import tells_captions
    from vitrail.tasks.pose.files.sources import tells_people

    if task:
        kind: str = task_row(task).items
    elif languages:
        kind = "sentences"
    else:
        kind = "captions" if tells_captions(data) else "people" if tells_people(data) else "images"
    if languages and kind != "sentences":
        raise ConfigError(f"{task} has no languages", where="--task", hint="leave out --source and --target, or --task")
    return kind


def languages_of(source: str | None, target: str | None) -> tuple[str, str]:
    """The languages of sentences; raises `ConfigError` where one is not given."""
    if source is None or target is None:
        where = "--target" if target is None else "--source"
        raise ConfigError("one language of two is given", where=where, hint="name both: --source en --target de")
    return source, target


def _tell(found: "PairCheck | PeopleCheck | CaptionCheck", show: Callable[[Any], None], *, json: bool) -> None:
    """What a check has found, for a program or for people, and in the exit code."""
    if json:
        result_json(found.to_json())
    else:
        show(found)
    if found.issues:
        sys.exit(DataError.exit_code)


def _counted(check: Callable[..., Any], data: str) -> Any:
    """What a check finds, with a bar that counts its images."""
    from vitrail.cli.progress import counting

    with counting("checking") as progress:
        return check(data, on_start=partial(progress.begin, "checking"), on_image=progress.advance)


def _check_sentences(data: str, languages: tuple[str, str], bad_lines: str | None, *, json: bool) -> None:
    from vitrail.tasks.translation.check import check_pairs
    from vitrail.tasks.translation.settings import TranslationSettings

    chosen = TranslationSettings.read_field("bad_lines", bad_lines or "stop", where="task")
    found = check_pairs(data, languages, chosen)
    _tell(found, _print_sentences, json=json)


def _print_sentences(found: "PairCheck") -> None:
    result(f"source     {found.data.source}")
    splits = ", ".join(f"{split} {len(pairs):,}" for split, pairs in found.data.splits.items())
    result(f"sentences  {' → '.join(found.data.languages)}, with their translations: {splits}")
    words = (f"{language} {of['median']:g}, at most {of['max']}" for language, of in found.words.items())
    result(f"words      {'; '.join(words)} (median and longest)")
    for line in found.data.notes:
        result(f"note       {line}")
    result("")
    _print_issues(found.issues, found.notices, MAX_NOTICES)


def _check_people(data: str, config: Path | None, settings: dict[str, Any], *, json: bool) -> None:
    from vitrail.tasks.pose.files.check import check_people

    skeleton = _skeleton(data, config, settings) if config is not None or settings else None
    _tell(_counted(partial(check_people, skeleton=skeleton), data), _print_people, json=json)


def _skeleton(data: str, config: Path | None, settings: dict[str, Any]) -> "Skeleton | None":
    """The skeleton in the settings of a run; refuses others that are given beside it."""
    from vitrail.config.configuration import nested
    from vitrail.config.request import Request
    from vitrail.tasks.pose.settings import PoseSettings

    task = Request.read(None, config, nested({**settings, "data": data, "task": "pose"})).certain.task
    others = {f"--{name}": True for name in settings if not name.startswith("task.skeleton")}
    refuse_given("of the settings of people the skeleton alone is looked at", others)
    assert isinstance(task, PoseSettings)
    return task.skeleton


def _print_people(found: "PeopleCheck") -> None:
    result(f"source   {found.contents.source}")
    for split, count in found.splits.items():
        result(f"{split:<7}  {count['people']:,} people in {count['images']:,} images")
    for reason, number in found.contents.left_out.items():
        result(f"note     left out: {number:,} {reason}")
    for line in (*found.contents.notes, *found.untold):
        result(f"note     {line}")
    if found.boxes:
        result("boxes    width×height " + ", ".join(f"{name} {_size(sides)}" for name, sides in found.boxes.items()))
        result("")
        width = max(map(len, found.marked))
        for joint, share in found.marked.items():
            result(f"{joint:<{width}}  marked {share:>4.0%}")
    result("")
    _print_issues(found.issues, found.notices)


def _check_captions(data: str, *, json: bool) -> None:
    from vitrail.tasks.captioning.images.check import check_captions

    _tell(_counted(check_captions, data), _print_captions, json=json)


def _print_captions(found: "CaptionCheck") -> None:
    result(f"source    {found.contents.source}")
    for split, items in found.contents.splits.items():
        result(f"{split:<8}  {sum(len(item.target) for item in items):,} captions of {len(items):,} images")
    for line in found.contents.notes:
        result(f"note      {line}")
    for reason, number in found.contents.left_out.items():
        if number:
            result(f"note      left out: {number:,} {reason}")
    for name, of in (("captions", found.captions), ("words", found.words)):
        result(f"{name:<8}  " + ", ".join(f"{which} {number:g}" for which, number in of.items()))
    result("")
    _print_issues(found.issues, found.notices)


def _with_page(data: str, model: str | None, out: str | None) -> "tuple[Check, Path]":
    from vitrail.data.readers.sources import require_there
    from vitrail.files import path_of
    from vitrail.runtime.output import require_free
    from vitrail.weights.locate import require_possible

    if model is not None:  # all of these before torch is imported
        require_possible(model)
    if out is not None:
        require_free(path_of(out))
    require_there(data)
    from vitrail.cli.progress import StageProgress
    from vitrail.study.quality.data_check import check_with_page

    with StageProgress() as progress:
        folder, found = check_with_page(data, model, out, observer=progress)
    return found, folder


def _print(found: "Check") -> None:
    summary = found.to_json()
    sizes = summary["sizes"]
    result(f"source   {summary['source']}")
    classes = f" in {len(summary['classes']):,} classes" if summary["classes"] else ""
    result(f"images   {summary['images']:,}{classes}")
    for line in summary["notes"]:
        result(f"note     {line}")
    if found.sizes:
        ranges = ", ".join(f"{name} {_size(sizes[name])}" for name in ("min", "median", "max"))
        result(f"sizes    {sizes['distinct']:,} different; width×height {ranges}")
        result("colours  " + ", ".join(f"{mode} {count:,}" for mode, count in summary["modes"].items()))
    result("")
    _print_classes(found)
    _print_issues(found.issues, found.notices)


def _print_issues(issues: "list[Issue]", noticed: "list[Issue]", most: int | None = None) -> None:
    """Print faults, at most so many of each kind, then notices, which may be many and change less."""
    for kind, number in Counter(issue.kind for issue in issues).items():
        for issue in [issue for issue in issues if issue.kind == kind][:most]:
            result(f"{kind}  {issue.path}  {issue.what}")
        if most is not None and number > most:
            result(f"{kind}  and {number - most:,} more; --json lists them all")
    _print_notices(noticed)
    count = len(issues)
    result(f"{count:,} fault{'s' if count > 1 else ''}" if count else "no faults")


def _print_notices(noticed: "list[Issue]") -> None:
    """Print some notices of each kind, of `MINOR` kinds last."""
    kinds: Counter[str] = Counter(notice.kind for notice in noticed if notice.kind != "hidden")
    for kind, count in sorted(kinds.items(), key=lambda each: each[0] in MINOR):
        notices = [notice for notice in noticed if notice.kind == kind]
        for notice in notices[:MAX_NOTICES]:
            result(f"note: {kind}  {notice.path}  {notice.what}")
        if count > MAX_NOTICES:
            result(f"note: {kind}  and {count - MAX_NOTICES:,} more; --json lists them all")


def _print_classes(found: "Check") -> None:
    """Images of every class in every split."""
    counts = found.counts
    classes = found.contents.classes
    rows = [(name, [of_split[name] for of_split in counts.values()]) for name in classes]
    if len(classes) > MAX_ROWS:
        columns = [sorted(of_split.values()) for of_split in counts.values()]
        rows = [("smallest class", [c[0] for c in columns]), ("largest class", [c[-1] for c in columns])]
    rows.append(("all", [len(items) for items in found.contents.splits.values()]))
    width = max(len(name) for name, _ in rows) + 2
    result(" " * width + "".join(f"{split:>10}" for split in counts))
    for name, numbers in rows:
        result(f"{name:<{width}}" + "".join(f"{number:>10,}" for number in numbers))
    result("")


def _size(sides: list[float]) -> str:
    return "×".join(f"{side:g}" for side in sides)

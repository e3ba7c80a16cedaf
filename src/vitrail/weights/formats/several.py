"""Selection of one model in a file that holds several: by default the moving average of the training."""

import re
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from vitrail.errors import ModelFileError
from vitrail.runtime.terminal import note
from vitrail.weights.naming import MOST_DROPPED, WRAPPERS, unwrapped

AVERAGED = re.compile(r"(.*_)?(ema|teacher|swa|average|averaged|avg|polyak|shadow|target)(_.*)?", re.IGNORECASE)
"""Names of averaged weights, or of a teacher that is an average of its student."""
STUDENT, TEACHER = "student", "teacher"
SMALL_PART, MOST = 0.1, 0.9
"""A model, unless it is a student, has at least 0.1 of the largest model's numbers. An average has more than 0.9 of its tensors
in common with another model."""
Tensors = Mapping[str, Tensor]


def one_model(models: Mapping[str, Tensors], file: Path, key: str | None = None) -> dict[str, Tensor]:
    """Return the tensors of one model; if there are several models, a line on stderr lists them.

    Args:
        models: dictionaries of tensors by their path in the file; "" is the path of the outermost one.
        file: the file, for messages.
        key: path of the requested model: the path of a dictionary, or a prefix of tensor names. By default an average of
            another model is returned, else a student, else the dictionary with the most tensors.

    Raises:
        ModelFileError: the file holds no tensors under ``key``.
    """
    if key is not None:
        return _requested(models, file, key)
    tensors = unwrapped(models[_chosen(models, file)])
    inner = tensors
    for _ in range(MOST_DROPPED):
        groups = _groups(inner)
        nested = {name: group for name, group in groups.items() if _is_nested(group)}
        related = {name: group for name, group in nested.items() if _is_related(name, nested)}
        if len(related) > 1:
            taken = _chosen(related, file)
            others = {f"{name}.{rest}" for name, group in related.items() if name != taken for rest in group}
            return {name.removeprefix(f"{taken}."): tensor for name, tensor in inner.items() if name not in others}
        if [len(group) for group in groups.values()] != [len(inner)]:  # the names have no common first word
            break
        (inner,) = groups.values()
    return tensors


def _requested(models: Mapping[str, Tensors], file: Path, key: str) -> dict[str, Tensor]:
    known = {path or ".": tensors for path, tensors in models.items()}
    for inner in models.values():
        for _ in range(MOST_DROPPED):
            groups = _groups(inner)
            known |= {name: group for name, group in groups.items() if name not in known}
            if len(groups) != 1:
                break
            (inner,) = groups.values()  # all names have the same first word
    fitting = [path for path in known if key and (path == key or path.startswith(f"{key}.") or path.endswith(f".{key}"))]
    if not fitting:
        hint = f"there are: {', '.join(sorted(known, key=lambda path: -_size(known[path]))[:12])}"
        raise ModelFileError(f"no weights under {key!r}", where=file, hint=hint)
    return unwrapped(max((known[path] for path in fitting), key=len))


def _groups(tensors: Tensors) -> dict[str, dict[str, Tensor]]:
    """Return tensors grouped by the first word of their names; in a group, each is under the rest of its name."""
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        word, dot, rest = WRAPPERS.sub("", name).partition(".")
        if dot:
            groups.setdefault(word, {})[rest] = tensor
    return groups


def _is_nested(tensors: Tensors) -> bool:
    """Return whether tensors belong to a model with layers, not to a single layer."""
    return any("." in WRAPPERS.sub("", name) for name in tensors)


def _is_related(name: str, models: Mapping[str, Tensors]) -> bool:
    """Return whether a model is an average of another model, has an average, or is a student or teacher."""
    averages = [path for path in models if _is_average(path, models)]
    pair = {STUDENT, TEACHER} <= models.keys() and name in (STUDENT, TEACHER)
    return pair or name in averages or any(_in_common(models[path], models[name]) > MOST for path in averages)


def _chosen(models: Mapping[str, Tensors], file: Path) -> str:
    """Return the path of the model to read; if there are several, two lines on stderr list them and say which is read."""
    largest = max(map(_size, models.values()))
    taught = any(TEACHER in path for path in models)
    students = [path for path in models if taught and STUDENT in path and _is_nested(models[path])]
    large = {path: tensors for path, tensors in models.items() if path in students or _size(tensors) >= SMALL_PART * largest}
    averages = {path: tensors for path, tensors in large.items() if _is_average(path, large)}
    preferred = averages or students or large
    path = max(preferred, key=lambda name: len(models[name]))
    if len(large) > 1:
        listed = ", ".join(f"{name or '.'} ({len(each)} tensors, {_size(each):,} numbers)" for name, each in large.items())
        why = (
            ", an average of training"
            if averages
            else ", which learned from the teacher"
            if students
            else ", which has the most tensors"
        )
        other = next(name or "." for name in large if name != path)
        note(f"{file.name} holds {len(large)} models: {listed}")
        note(f"{path or '.'} is read{why}; to read another: vitrail convert … --key {other}, in Python key={other!r}")
    return path


def _is_average(path: str, models: Mapping[str, Tensors]) -> bool:
    """Return whether a model's name means an average and its tensors have the names and shapes of another model's."""
    named = any(AVERAGED.fullmatch(word) for word in path.split("."))
    return named and any(_in_common(models[path], models[other]) > MOST for other in models if other != path)


def _in_common(tensors: Tensors, others: Tensors) -> float:
    """Return the fraction of ``tensors`` that ``others`` has under the same name and in the same shape."""
    shapes = {WRAPPERS.sub("", name): tensor.shape for name, tensor in others.items()}
    return sum(shapes.get(WRAPPERS.sub("", name)) == tensor.shape for name, tensor in tensors.items()) / max(1, len(tensors))


def _size(tensors: Tensors) -> int:
    return sum(tensor.numel() for tensor in tensors.values())

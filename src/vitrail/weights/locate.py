"""Where the model behind a MODEL lies. Imports no torch."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

from vitrail.errors import ConfigError, ModelFileError, nearest
from vitrail.files import path_of
from vitrail.models.registry import NAMES, architecture_in, named
from vitrail.runtime.terminal import note
from vitrail.task_registry import ROWS, TaskRow, row_of_kind
from vitrail.weights.formats.safe_files import (
    CONFIG,
    CONFIGURED,
    GRAPHS,
    WEIGHTS,
    is_pickle,
    metadata_of,
    read_json,
    refuse_pickle,
)
from vitrail.weights.hub import USUAL, cached, fetch, is_hub_id
from vitrail.weights.published import PUBLISHED, Published, published

OWN_FOLDER = "runs"
"""The default folder of runs, and is nobody's name on the hub."""


EXPORTED = "translator.json"
"""The file that describes a translator written for an engine."""
SAYS_ITSELF = "a model that writes texts says itself what it is"
"""Why nothing can be said of such a model when it is opened."""


def locate(reference: str | Path, trust_pickle: bool = False) -> Path:
    """Return the folder or file of weights that a MODEL means; a path on this machine stands before a published name.

    Raises:
        ModelFileError: there is none, or it cannot be fetched.
        ConfigError: it is on the hub, and the extra is not installed.
    """
    path = path_of(reference)
    _refuse_exported(path)
    if os.path.isfile(path):
        if trust_pickle and is_pickle(path):
            return path
        refuse_pickle(path)
        if path.suffix.lower() not in WEIGHTS:
            raise ModelFileError(f"{path.name} is no model", where=path, hint="give a folder, a .safetensors or an .npz file")
        return path
    if os.path.isdir(path):
        return _best(path)
    if os.path.exists(path):
        raise ModelFileError(f"{path.name} is no regular file", where=path, hint="give a file of weights, or a folder")
    require_possible(reference)
    model = published(str(reference))
    return fetch(str(reference)) if model is None else _fetched(model)


def is_exported_translator(reference: object) -> TypeGuard[str | Path]:
    """Return whether a MODEL is the folder of a translator that was written for an engine."""
    return isinstance(reference, str | Path) and os.path.isfile(path_of(reference) / EXPORTED)  # also of what is no name


def _refuse_exported(path: Path) -> None:
    """Refuse what was written for an engine where a model in Python is needed."""
    if is_exported_translator(path):
        hint = "it translates and is evaluated and served; for all else give the run or the folder that it comes from"
        raise ModelFileError("that is an exported translator: its engine gives translations only", where=path, hint=hint)
    if _is_graph(path):
        hint = "give the run or the model folder that it was exported from"
        hint += "; predict, evaluate, bench and serve take what is exported to onnx or openvino"
        raise ModelFileError("that is an exported model: its graph gives logits only", where=path, hint=hint)


def _is_graph(path: Path) -> bool:
    """Return whether a path is the graph of an exported model, or a folder that has one and no weights beside it."""
    if not os.path.isdir(path):
        return os.path.isfile(path) and path.suffix.lower() in {Path(name).suffix for name in GRAPHS.values()}
    return not has_weights(path) and any(name in os.listdir(path) for name in GRAPHS.values())


def has_weights(folder: Path) -> bool:
    """Return whether a folder has a model in Python, beside which somebody's graph does not count."""
    return any(name == CONFIG or Path(name).suffix.lower() in WEIGHTS for name in os.listdir(folder))


def is_captioner(reference: object) -> TypeGuard[str | Path]:
    """Return whether a MODEL writes texts about images. Raises as `row_behind`."""
    row = row_behind(reference)
    return row is not None and row.reads == "images"


def row_behind(reference: object) -> TaskRow | None:
    """Return the row of the task of a MODEL that writes texts; None for any other model. One of the hub is fetched.

    Raises:
        ModelFileError: it cannot be fetched.
        ConfigError: it is on the hub, and the extra is not installed.
    """
    return row_in(_described(reference))


def _described(reference: object) -> dict[str, Any]:
    if not isinstance(reference, str | Path):
        return {}
    folder = path_of(reference)
    if not os.path.exists(folder) and _is_of_hub(reference):
        folder = fetch(str(reference))
    if not os.path.exists(folder):
        return {}
    if not os.path.isdir(folder) and metadata_of(folder).get(CONFIGURED) is not None:
        return {}  # it says itself what it is, and what stands beside it is another file's
    description = (_best(folder) if os.path.isdir(folder) else folder.parent) / CONFIG
    return read_json(description) if description.is_file() else {}


def row_in(values: Mapping[str, Any]) -> TaskRow | None:
    """Return the row of a task whose models write texts by ``config.json``, ours or transformers'; None for any other model."""
    if values.get("model_type") is not None:
        for row in ROWS:
            if values["model_type"] in row.model_types:
                return row
    architecture = architecture_in(values.get("architectures"))
    if architecture is None or architecture.config.answer != "text":
        return None
    return row_of_kind(architecture.config.reads, "text")


def _is_of_hub(reference: str | Path) -> bool:
    text = str(reference)
    return is_hub_id(text) and not published(text) and not _is_meant_here(text)


def translates(reference: object) -> TypeGuard[str | Path]:
    """Return whether a MODEL translates texts, in Python or in an engine. Raises as `row_behind`."""
    row = row_behind(reference)
    return (row is not None and row.reads == "texts") or is_exported_translator(reference)


def absolute(reference: str | None) -> str | None:
    """Return a MODEL as an absolute path; a hub id or a name is left as it is."""
    if reference is None or not os.path.exists(path_of(reference)):
        return reference
    return str(path_of(reference).resolve())


def is_name(reference: str | Path) -> bool:
    """Return whether a MODEL is the name of an architecture, and no folder of that name."""
    try:
        named(str(reference))
    except ConfigError:
        return False
    return not os.path.exists(path_of(reference))


def require_possible(reference: str | Path, *, or_name: bool = False, in_python: bool = False) -> None:
    """Refuse a MODEL that is neither here nor, by the look of it, on the hub; no connection is made.

    Args:
        reference: the MODEL.
        or_name: whether the name of an architecture will do.
        in_python: whether one that was exported for an engine will not do.

    Raises:
        ModelFileError: there is none, or it is exported.
    """
    path, text = path_of(reference), str(reference)
    if in_python:
        _refuse_exported(path)
    if os.path.exists(path) or (or_name and is_name(reference)) or published(text):
        return
    try:
        named(text)
    except ConfigError:
        if not is_hub_id(text):
            close = nearest(text, [*NAMES, *PUBLISHED])
            hint = "give a folder, a file of weights, a hub id such as org/name or a name of vitrail models --pretrained"
            hint += f"; did you mean {close!r}?" if close else ""
            raise ModelFileError(f"no model at {text!r}", where=path, hint=hint) from None
        if _is_meant_here(text):
            hint = f"check the path; if a model of the hub is meant, name its revision: {text}@main"
            raise ModelFileError(f"no model at {text!r}", where=path, hint=hint) from None
        return
    raise ModelFileError(
        f"{text!r} is an architecture, which knows nothing until it is trained",
        where=text,
        hint=f"vitrail train --model {reference} --data FOLDER; vitrail models --pretrained lists those that can be had trained",
    )


def _fetched(model: Published) -> Path:
    """Return the folder of a published model in the hub's cache; says on stderr what is fetched where it is not there yet.

    What is there is taken without asking the hub.
    """
    try:
        if (folder := cached(model.repository)) is not None and (folder / CONFIG).is_file():
            return folder
        note(f"fetching {model}")  # of several processes each asks; the hub's library lets one at a time download a file
        folder = fetch(model.repository)
        if not (folder / CONFIG).is_file():  # another program fetched the weights alone, and the hub does not answer now
            raise ModelFileError(f"{CONFIG} is missing", where=folder, hint="connect to the hub once")
        return folder
    except (ConfigError, ModelFileError) as error:
        by_hand = f"save {CONFIG} and {USUAL} of {model.address} in a folder, and give that folder in place of {model.name}"
        raise type(error)(error.what, where=model.name, hint=f"{error.hint}; or {by_hand}") from error


def _is_meant_here(hub_id: str) -> bool:
    """Return whether a path of this machine is more likely meant than a model of the hub, which would be asked for nothing."""
    first = hub_id.partition("/")[0]
    return "@" not in hub_id and (first == OWN_FOLDER or os.path.isdir(first))


def _best(folder: Path) -> Path:
    if not (folder / "status.json").is_file():
        return folder
    require_best(folder)
    return folder / "best"


def require_best(run: Path) -> None:
    """Refuse a run whose best model is not there, as it has kept none yet, or has lost it; raises `ModelFileError`."""
    best = run / "best"
    if best.is_dir():
        return
    status = read_json(run / "status.json")
    if status.get("state") != "finished" and not status.get("best"):
        raise ModelFileError("the run has kept no model yet", where=best, hint=f"vitrail resume {run}")
    others = f"bring the folder back; or take the model of the last epoch, {run / 'last'}"
    hint = others if (run / "last").is_dir() else "bring the folder back, or train anew"
    raise ModelFileError("the run has lost its best model", where=best, hint=hint)

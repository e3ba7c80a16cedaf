"""Find the folder or file that a MODEL argument refers to. Imports no torch."""

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
"""The default folder of runs; no owner on the hub has this name."""


EXPORTED = "translator.json"
"""The file that describes an exported translation model."""
SAYS_ITSELF = "the folder of a model that writes text already defines it"
"""The reason why no options are accepted when such a model is opened."""


def locate(reference: str | Path, trust_pickle: bool = False) -> Path:
    """Return the model folder or weights file that a MODEL refers to; a local path takes precedence over a published name.

    Raises:
        ModelFileError: there is no such model, or it cannot be downloaded.
        ConfigError: the model is on the hub, and the extra ``hf`` is not installed.
    """
    path = path_of(reference)
    _refuse_exported(path)
    if os.path.isfile(path):
        if trust_pickle and is_pickle(path):
            return path
        refuse_pickle(path)
        if path.suffix.lower() not in WEIGHTS:
            raise ModelFileError(f"{path.name} is not a model", where=path, hint="give a folder, a .safetensors or an .npz file")
        return path
    if os.path.isdir(path):
        return _best(path)
    if os.path.exists(path):
        raise ModelFileError(f"{path.name} is not a regular file", where=path, hint="give a weights file, or a folder")
    require_possible(reference)
    model = published(str(reference))
    return fetch(str(reference)) if model is None else _fetched(model)


def is_exported_translator(reference: object) -> TypeGuard[str | Path]:
    """Return whether a MODEL is the folder of an exported translation model."""
    return isinstance(reference, str | Path) and os.path.isfile(path_of(reference) / EXPORTED)  # reference may be any object


def _refuse_exported(path: Path) -> None:
    """Raise `ModelFileError` for an exported model, which cannot be loaded in PyTorch."""
    if is_exported_translator(path):
        hint = "translate, evaluate and serve accept it; for anything else give the run or the model folder it was exported from"
        raise ModelFileError("this is an exported translation model: its engine returns translations only", where=path, hint=hint)
    if _is_graph(path):
        hint = "give the run or the model folder that it was exported from"
        hint += "; predict, evaluate, bench and serve accept models exported to onnx or openvino"
        raise ModelFileError("this is an exported model: its graph returns logits only", where=path, hint=hint)


def _is_graph(path: Path) -> bool:
    """Return whether a path is an exported graph, or a folder with a graph and without weights."""
    if not os.path.isdir(path):
        return os.path.isfile(path) and path.suffix.lower() in {Path(name).suffix for name in GRAPHS.values()}
    return not has_weights(path) and any(name in os.listdir(path) for name in GRAPHS.values())


def has_weights(folder: Path) -> bool:
    """Return whether a folder holds a PyTorch model: ``config.json`` or weights."""
    return any(name == CONFIG or Path(name).suffix.lower() in WEIGHTS for name in os.listdir(folder))


def is_captioner(reference: object) -> TypeGuard[str | Path]:
    """Return whether a MODEL is a captioning model. Raises the errors of `row_behind`."""
    row = row_behind(reference)
    return row is not None and row.reads == "images"


def row_behind(reference: object) -> TaskRow | None:
    """Return the row in the task registry of a MODEL that writes text; None for any other model. A hub model is downloaded.

    Raises:
        ModelFileError: the model cannot be downloaded.
        ConfigError: the model is on the hub, and the extra ``hf`` is not installed.
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
        return {}  # the file's metadata describes the model; a config.json beside it belongs to another file
    description = (_best(folder) if os.path.isdir(folder) else folder.parent) / CONFIG
    return read_json(description) if description.is_file() else {}


def row_in(values: Mapping[str, Any]) -> TaskRow | None:
    """Return the task-registry row of a ``config.json`` (Vitrail's or transformers') of a model that writes text, else None."""
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
    """Return whether a MODEL is a translation model, exported or not. Raises the errors of `row_behind`."""
    row = row_behind(reference)
    return (row is not None and row.reads == "texts") or is_exported_translator(reference)


def absolute(reference: str | None) -> str | None:
    """Return a MODEL as an absolute path; a hub id or a name is left as it is."""
    if reference is None or not os.path.exists(path_of(reference)):
        return reference
    return str(path_of(reference).resolve())


def is_name(reference: str | Path) -> bool:
    """Return whether a MODEL is the name of an architecture and no local path has this name."""
    try:
        named(str(reference))
    except ConfigError:
        return False
    return not os.path.exists(path_of(reference))


def require_possible(reference: str | Path, *, or_name: bool = False, in_python: bool = False) -> None:
    """Raise an error for a MODEL that is no local path and cannot be a hub id; makes no connection.

    Args:
        reference: the MODEL.
        or_name: whether the name of an architecture is accepted.
        in_python: whether exported models are refused.

    Raises:
        ModelFileError: there is no such model, or it is exported.
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
            hint = "give a folder, a weights file, a hub id such as org/name or a name that vitrail models --pretrained lists"
            hint += f"; did you mean {close!r}?" if close else ""
            raise ModelFileError(f"no model at {text!r}", where=path, hint=hint) from None
        if _is_meant_here(text):
            hint = f"check the path; if you mean a model on the hub, add its revision: {text}@main"
            raise ModelFileError(f"no model at {text!r}", where=path, hint=hint) from None
        return
    raise ModelFileError(
        f"{text!r} is the name of an architecture, not of a trained model",
        where=text,
        hint=f"vitrail train --model {reference} --data FOLDER; vitrail models --pretrained lists trained models",
    )


def _fetched(model: Published) -> Path:
    """Return the folder of a published model in huggingface_hub's cache.

    A cached model is used without a connection. Otherwise the model is downloaded, with a line on stderr.
    """
    try:
        if (folder := cached(model.repository)) is not None and (folder / CONFIG).is_file():
            return folder
        note(f"fetching {model}")  # every process comes here; huggingface_hub locks each file while one downloads it
        folder = fetch(model.repository)
        if not (folder / CONFIG).is_file():  # another program cached only the weights, and the hub is not reachable now
            raise ModelFileError(f"{CONFIG} is missing", where=folder, hint="run the command again with a connection to the hub")
        return folder
    except (ConfigError, ModelFileError) as error:
        by_hand = f"save {CONFIG} and {USUAL} from {model.address} in a folder, and give this folder instead of {model.name}"
        raise type(error)(error.what, where=model.name, hint=f"{error.hint}; or {by_hand}") from error


def _is_meant_here(hub_id: str) -> bool:
    """Return whether ``org/name`` is probably a local path with a mistake, so that the hub need not be asked."""
    first = hub_id.partition("/")[0]
    return "@" not in hub_id and (first == OWN_FOLDER or os.path.isdir(first))


def _best(folder: Path) -> Path:
    if not (folder / "status.json").is_file():
        return folder
    require_best(folder)
    return folder / "best"


def require_best(run: Path) -> None:
    """Raise `ModelFileError` for a run whose ``best`` folder is not saved yet, or was removed."""
    best = run / "best"
    if best.is_dir():
        return
    status = read_json(run / "status.json")
    if status.get("state") != "finished" and not status.get("best"):
        raise ModelFileError("the run has saved no model yet", where=best, hint=f"vitrail resume {run}")
    others = f"restore the folder; or use the model of the last epoch, {run / 'last'}"
    hint = others if (run / "last").is_dir() else "restore the folder, or train again"
    raise ModelFileError("the folder with the run's best model is missing", where=best, hint=hint)

"""From one layout to another: what ``vitrail convert`` does."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from vitrail.errors import ConfigError
from vitrail.files import read_lines, write_json
from vitrail.weights.formats.safe_files import CONFIGURED, GRAPHS, LAYOUT, OWN, beside_file, is_pickle
from vitrail.weights.formats.tensor_files import write_tensors
from vitrail.weights.model_folder.labels import distinct
from vitrail.weights.model_folder.trained import FORMAT, Trained, save_model
from vitrail.weights.state_dict import first_that_holds

FILES = (".safetensors", ".npz")
"""Endings of weights in a file alone."""


def convert(trained: Trained, out: Path, *, layout: str | None = None) -> str:
    """Write a model as a folder, or as a file alone where ``out`` ends in .safetensors or .npz, and return its layout's name.

    A .safetensors file has labels, preparation and what its layout does not tell in its metadata; beside a .npz file they stand
    in one that is called like it.

    Args:
        trained: the model.
        out: what is written; it must not exist.
        layout: a name of `vitrail.weights.layouts`; of a folder by default as `save_model` chooses.

    Raises:
        ConfigError: the layout cannot hold the model, or is none of the kind of model or of file.
    """
    suffix = out.suffix.lower()
    alone = suffix in FILES
    if alone and trained.needs_folder:
        raise ConfigError(trained.needs_folder, where="OUT", hint=f"give {out.stem}")
    layouts = [] if layout in (None, FORMAT) else trained.candidates(layout)
    for path in (out, *([beside_file(out)] if suffix == ".npz" else [])):
        if path.exists():
            raise ConfigError(f"{str(path)!r} exists", where="OUT", hint="give another name; nothing is overwritten")
    if is_pickle(out):
        hint = f"give {out.stem}.safetensors, or a folder"
        raise ConfigError("pickles are not written, which could run code when they are loaded", where="OUT", hint=hint)
    if suffix in {Path(graph).suffix for graph in GRAPHS.values()}:
        raise ConfigError(f"a graph ({suffix}) is no layout of weights", where="OUT", hint="vitrail export MODEL writes graphs")
    if not alone:
        trained.require_complete()
        return save_model(out, trained, card=trained.card or trained.plain_card(), layout=layout)
    if not layouts:
        hint = f"known: {', '.join(trained.layouts)}"
        raise ConfigError("a file alone needs a layout", where="--layout", hint=hint)
    chosen, tensors = first_that_holds(trained.model, layouts)
    if suffix != chosen.suffix:
        what = f"{chosen.about} has files that end in {chosen.suffix}"
        raise ConfigError(what, where="OUT", hint=f"give {out.stem}{chosen.suffix}")
    _write_file(out, tensors, {**trained.metadata(), LAYOUT: chosen.name, CONFIGURED: trained.config.model_dump(mode="json")})
    return chosen.name


def _write_file(out: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write tensors as a file alone with what it says of itself; it appears whole or not at all."""
    draft = out.with_name(f".{out.stem}.draft{out.suffix.lower()}")
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        if out.suffix.lower() == ".npz":
            arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in tensors.items()}
            np.savez(draft, **arrays)
            write_json(beside_file(out), {OWN: metadata})
        else:
            write_tensors(draft, tensors, {OWN: json.dumps(metadata, ensure_ascii=False)})
        draft.replace(out)
    finally:
        draft.unlink(missing_ok=True)


def read_labels(file: Path, classes: int) -> list[str]:
    """Return the names of classes, one on each line; raises `ConfigError` unless there is one for each."""
    try:
        labels = read_lines(file)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cannot read the labels: {error}", where=file, hint="give a text file with a name on every line"
        ) from None
    if len(labels) != classes:
        raise ConfigError(
            f"{len(labels)} labels for {classes} classes",
            where=file,
            hint="write a name on every line, in the order of the classes",
        )
    return distinct(labels)

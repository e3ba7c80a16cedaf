"""Conversion of a model to another layout, for ``vitrail convert``."""

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
"""Suffixes of single files of weights."""


def convert(trained: Trained, out: Path, *, layout: str | None = None) -> str:
    """Write a model as a folder, or as a single file if ``out`` ends in .safetensors or .npz; return the layout's name.

    A .safetensors file holds labels, preparation and configuration in its metadata. For an .npz file they are written to a
    JSON file of the same name beside it.

    Args:
        trained: the model.
        out: the folder or file to write; it must not exist.
        layout: a name of `vitrail.weights.layouts`; a folder has a default, see `save_model`.

    Raises:
        ConfigError: the layout cannot hold the model, or does not exist for this kind of model or file.
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
        raise ConfigError("a pickle can run code when it is loaded, so none is written", where="OUT", hint=hint)
    if suffix in {Path(graph).suffix for graph in GRAPHS.values()}:
        raise ConfigError(f"{suffix} is a graph, not a weights file", where="OUT", hint="vitrail export MODEL writes graphs")
    if not alone:
        trained.require_complete()
        return save_model(out, trained, card=trained.card or trained.plain_card(), layout=layout)
    if not layouts:
        hint = f"known: {', '.join(trained.layouts)}"
        raise ConfigError("a single file needs a layout", where="--layout", hint=hint)
    chosen, tensors = first_that_holds(trained.model, layouts)
    if suffix != chosen.suffix:
        what = f"{chosen.about} is stored in {chosen.suffix} files"
        raise ConfigError(what, where="OUT", hint=f"give {out.stem}{chosen.suffix}")
    _write_file(out, tensors, {**trained.metadata(), LAYOUT: chosen.name, CONFIGURED: trained.config.model_dump(mode="json")})
    return chosen.name


def _write_file(out: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write tensors and metadata to a file, which is renamed to ``out`` when it is complete."""
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
    """Return the class names in a text file, one on each line; raises `ConfigError` unless there are ``classes`` lines."""
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

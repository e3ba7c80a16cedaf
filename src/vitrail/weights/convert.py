"""From one layout to another: what ``vitrail convert`` does."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from vitrail.errors import ConfigError, unknown
from vitrail.files import read_lines, write_json
from vitrail.tasks.captioning.weights import TrainedCaptioner
from vitrail.tasks.translation.weights import TrainedTranslator
from vitrail.weights.formats.safe_files import CONFIGURED, GRAPHS, LAYOUT, OWN, PREPARED, beside_file, is_pickle
from vitrail.weights.formats.tensor_files import write_tensors
from vitrail.weights.layouts import LAYOUTS, family
from vitrail.weights.model_folder.folder import FORMAT, TrainedModel, distinct, label_description
from vitrail.weights.state_dict import first_that_holds


def convert(trained: TrainedModel, out: Path, *, layout: str | None = None) -> None:
    """Write a model as a folder, or as a file alone where ``out`` ends in .safetensors or .npz.

    A .safetensors file has labels, preparation and what its layout does not tell in its metadata; beside a .npz file they stand
    in one that is called like it.

    Args:
        trained: the model.
        out: what is written; it must not exist.
        layout: a name of `vitrail.weights.layouts`; of a folder by default as `save_model` chooses.

    Raises:
        ConfigError: the layout cannot hold the model, or is none of the kind of file.
    """
    if layout is not None and layout not in (FORMAT, *LAYOUTS):
        raise unknown("layout", layout, [FORMAT, *LAYOUTS], where="--layout")
    for path in (out, *([beside_file(out)] if out.suffix.lower() == ".npz" else [])):
        _require_new(path)
    suffix = out.suffix.lower()
    if is_pickle(out):
        hint = f"give {out.stem}.safetensors, or a folder"
        raise ConfigError("pickles are not written, which could run code when they are loaded", where="OUT", hint=hint)
    if suffix in {Path(graph).suffix for graph in GRAPHS.values()}:
        raise ConfigError(f"a graph ({suffix}) is no layout of weights", where="OUT", hint="vitrail export MODEL writes graphs")
    if suffix not in (".safetensors", ".npz"):
        trained.save_pretrained(out, layout=layout)
        return
    if layout in (None, FORMAT):
        raise ConfigError("a file alone needs a layout", where="--layout", hint=f"known: {', '.join(LAYOUTS)}")
    chosen, tensors = first_that_holds(trained.model, family(layout))
    if suffix != chosen.suffix:
        raise ConfigError(
            f"{chosen.about} has files that end in {chosen.suffix}", where="OUT", hint=f"give {out.stem}{chosen.suffix}"
        )
    draft = out.with_name(f".{out.stem}.draft{suffix}")
    told = {
        **label_description(trained),
        **trained.more,
        PREPARED: trained.preparation.to_hugging_face(),
        LAYOUT: chosen.name,
        CONFIGURED: trained.config.model_dump(mode="json"),
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        if suffix == ".npz":
            arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in tensors.items()}
            np.savez(draft, **arrays)
            write_json(beside_file(out), {OWN: told})
        else:
            write_tensors(draft, tensors, {OWN: json.dumps(told, ensure_ascii=False)})
        draft.replace(out)
    finally:
        draft.unlink(missing_ok=True)


def _require_new(path: Path) -> None:
    if path.exists():
        raise ConfigError(f"{str(path)!r} exists", where="OUT", hint="give another name; nothing is overwritten")


def convert_writer(trained: TrainedTranslator | TrainedCaptioner, out: Path, *, layout: str | None = None) -> None:
    """Write a translator or a captioner as a folder; see `TrainedTranslator.save_pretrained`.

    Raises:
        ConfigError: the layout cannot hold the model, or ``out`` exists or is to be a file.
    """
    if out.suffix.lower() in (".safetensors", ".npz"):
        raise ConfigError("a model that writes texts is a folder, with its tokens", where="OUT", hint=f"give {out.stem}")
    _require_new(out)
    trained.save_pretrained(out, layout=layout)


def read_labels(file: Path, classes: int) -> list[str]:
    """The names of classes, one on each line; raises `ConfigError` unless there is one for each."""
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

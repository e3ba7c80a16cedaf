"""MODEL, as commands and functions take it: a folder, a file of weights, a hub id, or a name."""

import os
import sys
from pathlib import Path
from typing import Any

from vitrail.errors import ConfigError, ModelFileError
from vitrail.files import path_of
from vitrail.models.configs.base import ModelConfig
from vitrail.models.registry import ROWS, model_config, named
from vitrail.weights.checkpoint import Checkpoint
from vitrail.weights.folder import TrainedModel
from vitrail.weights.hub import fetch, is_hub_id
from vitrail.weights.pretrained import Changes, build
from vitrail.weights.tensor_files import PICKLES, WEIGHTS, refuse_pickle


def from_pretrained(
    reference: str | Path,
    *,
    image_size: int | str | tuple[int, int] | None = None,
    patch_size: int | str | tuple[int, int] | None = None,
    channels: int | None = None,
    num_classes: int | None = None,
    layout: str | None = None,
    trust_pickle: bool = False,
    **fields: Any,
) -> TrainedModel:
    """Load a model from anybody's weights. Says on stderr what was recognised.

    >>> model = from_pretrained("vit_tiny_patch16_224.safetensors", num_classes=10)  # doctest: +SKIP

    Args:
        reference: a run folder (its best model), a model folder, a file of weights (.safetensors, .npz), or a hub id
            (``org/name`` or ``org/name@revision``), the only one that makes a network connection.
        image_size: height and width that the model shall take, or one side of a square; positions are interpolated.
        patch_size: side of a patch that it shall have; the embedding is resized (FlexiViT).
        channels: colour channels that it shall take.
        num_classes: classes that it shall have; another number than the checkpoint's starts with a head of zero.
        layout: the name of the weights' layout (`vitrail.weights.layouts`), where it must not be guessed.
        trust_pickle: also read .pt, .pth, .bin and .ckpt, by torch's restricted reader; only for files you trust.
        fields: of the configuration, that the checkpoint has and does not tell: ``heads=6``.

    Raises:
        ModelFileError: missing, damaged or refused; with everything that does not fit.
        ConfigError: a change that cannot be made.
    """
    changes = Changes(
        None if image_size is None else ModelConfig.read_field("image_size", image_size),
        None if patch_size is None else ModelConfig.read_field("image_size", patch_size, where="patch_size"),
        channels,
        num_classes,
    )
    for name in fields:
        if not any(name in row.config.model_fields for row in ROWS):
            raise ConfigError(f"unknown field {name!r}", where="from_pretrained", hint="give fields of the model's configuration")
    checkpoint = Checkpoint.read(locate(reference, trust_pickle), trust_pickle=trust_pickle)
    trained, about = build(checkpoint, changes, layout=layout, fields=fields)
    if about:
        sys.stderr.write(f"{about}\n")
    return trained


def open_model(reference: str | Path) -> TrainedModel:
    """The model behind a MODEL as it is; see `from_pretrained`."""
    return from_pretrained(reference)


def load_model(folder: Path) -> TrainedModel:
    """Read a model folder; raises `ModelFileError`."""
    return build(Checkpoint.read(folder))[0]


def locate(reference: str | Path, trust_pickle: bool = False) -> Path:
    """The folder or file of weights that a MODEL means.

    Raises:
        ModelFileError: there is none.
    """
    path = path_of(reference)
    if os.path.isfile(path):
        if trust_pickle and path.suffix.lower() in PICKLES:
            return path
        refuse_pickle(path)
        if path.suffix.lower() not in WEIGHTS:
            raise ModelFileError(f"{path.name} is no model", where=path, hint="give a folder, a .safetensors or an .npz file")
        return path
    if os.path.isdir(path):
        return _best(path)
    try:
        named(str(reference))
    except ConfigError as error:
        if is_hub_id(str(reference)):
            return fetch(str(reference))
        hint = f"give a folder, a file of weights or a hub id such as org/name; {error.hint}"
        raise ModelFileError(f"no model at {str(reference)!r}", where=path, hint=hint) from None
    raise ModelFileError(
        f"{str(reference)!r} is an architecture, which knows nothing until it is trained",
        where=str(reference),
        hint=f"vitrail train --model {reference} --data FOLDER",
    )


def config_of(reference: str | Path) -> ModelConfig:
    """The configuration behind a MODEL, which is a name or a trained model.

    Raises:
        ModelFileError: neither a name nor a model.
    """
    try:
        named(str(reference))
    except ConfigError:
        return open_model(reference).config
    return open_model(reference).config if os.path.exists(path_of(reference)) else model_config(str(reference))


def _best(folder: Path) -> Path:
    """A run's best model; any other folder is itself the model's."""
    if not (folder / "status.json").is_file():
        return folder
    if not (folder / "best").is_dir():
        raise ModelFileError("the run has kept no model yet", where=folder / "best", hint=f"vitrail resume {folder}")
    return folder / "best"

"""Loading of a MODEL, as commands and functions accept it: a folder, a weights file, a hub id, or a name."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from vitrail.checks import refuse_given
from vitrail.errors import ConfigError
from vitrail.models.configs.base import ImageConfig, ModelConfig
from vitrail.models.registry import ROWS, model_config
from vitrail.runtime.terminal import escaped
from vitrail.weights.formats.checkpoint import Checkpoint
from vitrail.weights.formats.checksums import read_again
from vitrail.weights.locate import SAYS_ITSELF, is_name, locate, row_behind
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.model_folder.trained import Trained
from vitrail.weights.pretrained import Changes, build

T = TypeVar("T")


def from_pretrained(
    reference: str | Path,
    *,
    image_size: int | str | tuple[int, int] | None = None,
    patch_size: int | str | tuple[int, int] | None = None,
    channels: int | None = None,
    num_classes: int | None = None,
    layout: str | None = None,
    trust_pickle: bool = False,
    key: str | None = None,
    **fields: Any,
) -> TrainedModel:
    """Load a model from Vitrail's weights or another library's. A line on stderr reports what was recognised.

    >>> model = from_pretrained("vit_tiny_patch16_224.safetensors", num_classes=10)  # doctest: +SKIP

    Args:
        reference: a run folder (its best model), a model folder, a weights file (.safetensors, .npz), or a hub id
            (``org/name`` or ``org/name@revision``). Only a hub id makes a network connection.
        image_size: new input size, height and width or one side of a square; position embeddings are interpolated.
        patch_size: new side of a patch; the patch embedding is resized (FlexiViT).
        channels: new number of colour channels.
        num_classes: new number of classes; if it differs from the checkpoint's, the new head is zero.
        layout: the name of the weights' layout (`vitrail.weights.layouts`); by default it is guessed.
        trust_pickle: also read .pt, .pth, .bin and .ckpt, by torch's restricted reader; only for files you trust.
        key: which model to read if the file holds several, such as ``student``; by default the training's average.
        fields: configuration fields that the checkpoint does not show, such as ``heads=6``.

    Raises:
        ModelFileError: the model is missing, damaged or refused; the message lists everything that does not fit.
        ConfigError: a requested change is impossible.
    """
    changes = Changes(
        None if image_size is None else ImageConfig.read_field("image_size", image_size),
        None if patch_size is None else ImageConfig.read_field("image_size", patch_size, where="patch_size"),
        channels,
        num_classes,
    )
    for name in fields:
        if not any(name in row.config.model_fields for row in ROWS):
            raise ConfigError(f"unknown field {name!r}", where="from_pretrained", hint="use a field of the model's configuration")
    read = partial(build, changes=changes, layout=layout, fields=fields)
    trained, about = read_behind(reference, read, trust_pickle=trust_pickle, key=key)
    if about:
        sys.stderr.write(f"{escaped(about)}\n")
    return trained


def open_trained(reference: str | Path, *, trust_pickle: bool = False, key: str | None = None, **changes: Any) -> Trained:
    """Open a MODEL of any task.

    Args:
        reference: the MODEL.
        trust_pickle, key: as in `from_pretrained`.
        changes: the other arguments of `from_pretrained`; a model that writes text accepts none of them, nor ``key``.

    Raises:
        ModelFileError: the model is missing, damaged or refused.
        ConfigError: a requested change is impossible.
    """
    if (row := row_behind(reference)) is None:
        return from_pretrained(reference, trust_pickle=trust_pickle, key=key, **changes)
    refuse_given(SAYS_ITSELF, {name: value is not None for name, value in {"key": key, **changes}.items()})
    trained: Trained = read_behind(reference, row.module("weights").read, trust_pickle=trust_pickle)
    return trained


def read_behind(
    reference: str | Path, read: Callable[[Checkpoint], T], *, trust_pickle: bool = False, key: str | None = None
) -> T:
    """Return ``read(checkpoint)`` for the checkpoint of a MODEL; it is read again if it is replaced during the read."""

    def attempt() -> T:
        with Checkpoint.opened(locate(reference, trust_pickle), trust_pickle=trust_pickle, key=key) as checkpoint:
            return read(checkpoint)

    return read_again(reference, attempt)


def open_model(reference: str | Path) -> TrainedModel:
    """Load a MODEL without changes; see `from_pretrained`."""
    return from_pretrained(reference)


def load_model(folder: Path) -> TrainedModel:
    """Read a model folder; raises `ModelFileError`."""
    with Checkpoint.opened(folder) as checkpoint:
        return build(checkpoint)[0]


def config_of(reference: str | Path) -> ModelConfig:
    """Return the configuration of a MODEL: an architecture's name or a trained model.

    Raises:
        ModelFileError: it is neither a name nor a model.
    """
    if is_name(reference):
        return model_config(str(reference))
    config: ModelConfig = open_trained(reference).config
    return config

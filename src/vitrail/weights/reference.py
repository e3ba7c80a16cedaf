"""MODEL, as commands and functions take it: a run folder, a model folder, a file in one, or a name."""

import os
from pathlib import Path

from vitrail.errors import ConfigError, ModelFileError
from vitrail.files import path_of
from vitrail.models.config import ViTConfig
from vitrail.models.registry import fields_of, model_config
from vitrail.weights.folder import TrainedModel, load_model, refuse_pickle


def open_model(reference: str | Path) -> TrainedModel:
    """Load a run folder's best model, a model folder, or the model folder around ``model.safetensors``.

    Raises:
        ModelFileError: missing, damaged or refused.
    """
    path = path_of(reference)
    if os.path.isfile(path):
        refuse_pickle(path)
        if path.name != "model.safetensors":
            raise ModelFileError(f"{path.name} is no model", where=path, hint="give the folder around model.safetensors")
        path = path.parent
    if os.path.isdir(path):
        return load_model(_best(path))
    try:
        fields_of(str(reference))
    except ConfigError as error:
        raise ModelFileError(
            f"no model at {str(reference)!r}", where=path, hint=f"give a run folder or a model folder; {error.hint}"
        ) from None
    raise ModelFileError(
        f"{str(reference)!r} is an architecture, which knows nothing until it is trained",
        where=str(reference),
        hint=f"vitrail train --model {reference} --data FOLDER",
    )


def config_of(reference: str | Path) -> ViTConfig:
    """The configuration behind a MODEL: that of a name, or of a trained model.

    Raises:
        ModelFileError: neither a name nor a model.
    """
    if os.path.exists(path_of(reference)):
        return open_model(reference).model.config
    try:
        return model_config(str(reference))
    except ConfigError as error:
        raise ModelFileError(error.what, where=reference, hint=error.hint) from None


def _best(folder: Path) -> Path:
    """A run's best model; any other folder is itself the model's."""
    if not (folder / "status.json").is_file():
        return folder
    if not (folder / "best").is_dir():
        raise ModelFileError("the run has kept no model yet", where=folder / "best", hint=f"vitrail resume {folder}")
    return folder / "best"

"""The model folder: ``config.json``, ``model.safetensors``, ``preprocessor_config.json`` and a model card.

Loading one reads JSON and safetensors and nothing else; no file in it can run code.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from vitrail.data.preparation import Preparation
from vitrail.errors import ConfigError, ModelFileError
from vitrail.files import whole_folder, write_json, write_text
from vitrail.models.config import ViTConfig
from vitrail.models.vit import ViT

PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")
FORMAT = "vitrail"
PROBLEMS = ("single_label_classification", "multi_label_classification")
"""transformers' names for one label an image, and for any number."""


@dataclass(frozen=True)
class TrainedModel:
    """A model with what it needs to answer: labels by index, and the preparation of images."""

    model: ViT
    labels: list[str]
    preparation: Preparation
    multi_label: bool = False
    """Whether an image may have several labels, or none."""


def save_model(folder: Path, trained: TrainedModel, *, card: str) -> None:
    """Write a model folder; it appears whole or not at all, and replaces an older one only when complete."""
    config = {
        "architectures": ["ViT"],
        "model_type": FORMAT,
        "problem_type": PROBLEMS[trained.multi_label],
        **trained.model.config.model_dump(mode="json"),
        "id2label": {str(i): label for i, label in enumerate(trained.labels)},
        "label2id": {label: i for i, label in enumerate(trained.labels)},
    }
    with whole_folder(folder) as draft:
        write_json(draft / "config.json", config)
        write_json(draft / "preprocessor_config.json", trained.preparation.to_hugging_face())
        write_text(draft / "README.md", card)
        write_tensors(draft / "model.safetensors", trained.model.state_dict())


def load_model(folder: Path) -> TrainedModel:
    """Read a model folder.

    Raises:
        ModelFileError: a file missing, damaged, or not fitting the others.
    """
    config_file = folder / "config.json"
    values = read_json(config_file)
    labels = values.pop("id2label", None)
    values.pop("label2id", None)
    problem = values.pop("problem_type", PROBLEMS[0])
    if values.pop("model_type", None) != FORMAT or values.pop("architectures", None) != ["ViT"] or not isinstance(labels, dict):
        raise ModelFileError("not a Vitrail model", where=config_file, hint="give a folder that `vitrail train` wrote")
    if problem not in PROBLEMS:
        raise ModelFileError(f"problem_type cannot be {problem!r}", where=config_file, hint=f"known: {', '.join(PROBLEMS)}")
    try:
        config = ViTConfig.read(values, where="config")
        names = [labels[str(i)] for i in range(config.num_classes)]
        if not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(labels):
            raise KeyError("the labels are no distinct names, one for each class")
    except (ConfigError, KeyError) as error:
        raise ModelFileError(f"the configuration is damaged: {error}", where=config_file, hint="write the folder again") from None
    preparation_file = folder / "preprocessor_config.json"
    preparation = Preparation.from_hugging_face(read_json(preparation_file), where=preparation_file)
    if preparation.channels != config.channels or preparation.image_size != config.image_size:
        raise ModelFileError(
            "the preparation makes other images than the model takes", where=preparation_file, hint="write the folder again"
        )
    with torch.device("meta"):
        model = ViT(config)
    fill(model, read_tensors(folder / "model.safetensors"), where=folder / "model.safetensors")
    return TrainedModel(model.eval(), names, preparation, problem == PROBLEMS[1])


def fill(model: ViT, tensors: dict[str, Tensor], *, where: object) -> None:
    """Give a model built on "meta" its parameters, without a second copy; lists every key that does not fit."""
    expected = model.state_dict()
    problems = [f"missing {k}" for k in expected.keys() - tensors.keys()]
    problems += [f"unexpected {k}" for k in tensors.keys() - expected.keys()]
    problems += [
        f"{k} is {tuple(tensors[k].shape)}, expected {tuple(expected[k].shape)}"
        for k in expected.keys() & tensors.keys()
        if expected[k].shape != tensors[k].shape
    ]
    known = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
    problems += [f"{k} has the type {t.dtype}" for k, t in tensors.items() if t.dtype not in known]
    tensors = {k: t.float() for k, t in tensors.items() if t.dtype in known}
    problems += [f"{k} holds values that are not finite" for k, t in tensors.items() if not t.isfinite().all()]
    if problems:
        shown = "; ".join(sorted(problems)[:8]) + (f"; and {len(problems) - 8} more" if len(problems) > 8 else "")
        raise ModelFileError(f"the weights do not fit the configuration: {shown}", where=where, hint="write the folder again")
    model.load_state_dict(tensors, assign=True)
    model.requires_grad_()


def read_tensors(file: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file; pickles are refused."""
    refuse_pickle(file)
    if not file.is_file():
        raise ModelFileError(f"{file.name} is missing", where=file, hint="check the path")
    try:
        return load_file(file)
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(f"damaged weights: {error}", where=file, hint="write or fetch the file again") from None


def refuse_pickle(file: Path) -> None:
    """Pickles can run code when they are loaded, so none is."""
    if file.suffix.lower() in PICKLES:
        raise ModelFileError(
            f"{file.name} is a pickle, which can run code when loaded", where=file, hint="give a .safetensors file"
        )


def read_json(file: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelFileError(f"{file.name} is missing", where=file, hint="give a complete model folder") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{file.name} is damaged: {error}", where=file, hint="write the folder again") from None
    if not isinstance(values, dict):
        raise ModelFileError(f"{file.name} holds no object", where=file, hint="write the folder again")
    return values


def write_tensors(file: Path, tensors: dict[str, Tensor]) -> None:
    """Write a safetensors file."""
    save_file({k: t.detach().contiguous() for k, t in tensors.items()}, file, metadata={"format": "pt"})
    file.chmod(0o644)  # safetensors keeps its files to their owner

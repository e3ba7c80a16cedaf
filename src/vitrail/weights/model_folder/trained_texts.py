"""A trained model that writes text (translations, captions), with its tokens and its model folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from vitrail.data.text.tokens import Tokens
from vitrail.errors import ModelFileError
from vitrail.models.empty import empty_model
from vitrail.models.registry import architecture_in
from vitrail.settings import brief
from vitrail.task_registry import TaskRow, row_of_kind
from vitrail.weights.formats.checkpoint import Checkpoint
from vitrail.weights.formats.safe_files import CONFIG
from vitrail.weights.layout import Layout
from vitrail.weights.model_folder.description import read_description
from vitrail.weights.model_folder.trained import FORMAT, Trained, fill, read_config
from vitrail.weights.state_dict import recognise


class TrainedTexts(Trained):
    """A model that writes text, with its tokens."""

    labels: tuple[()] = ()
    thresholds: tuple[()] = ()
    usual_layout = FORMAT
    needs_folder = "a model that writes text needs a folder, to hold its tokens"

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return logits (B, T, vocabulary) for tokens (B, T) and sources: tokens (B, S) or images (B, C, H, W)."""
        logits: Tensor = self.model(source, target)
        return logits

    def save_pretrained(self, folder: str | Path, *, layout: str | None = FORMAT) -> None:
        """Write the model folder as `Trained.save_pretrained` does; the default is Vitrail's layout."""
        super().save_pretrained(folder, layout=layout)


def own_config(checkpoint: Checkpoint, row: TaskRow, what: str, hint: str, others: Sequence[str] = ()) -> tuple[Any, list[Any]]:
    """Read the configuration of a Vitrail folder, and the entries ``others`` of its ``config.json``, None for a missing one.

    Raises:
        ModelFileError: the model belongs to another task than ``row``; the message says that it is no ``what``.
    """
    values, where = dict(checkpoint.config), checkpoint.file.parent / CONFIG
    names, found = values.pop("architectures", None), [values.pop(name, None) for name in others]
    own, architecture = values.pop("model_type", None) == FORMAT, architecture_in(names)
    if not own or architecture is None or row_of_kind(architecture.config.reads, architecture.config.answer) != row:
        raise ModelFileError(f"architectures is {brief(names)}, which is no {what}", where=where, hint=hint)
    return read_config(architecture.config, values, where), found


def recognised(
    checkpoint: Checkpoint, tensors: dict[str, Tensor], layouts: Mapping[str, Layout]
) -> tuple[Any, dict[str, Tensor]]:
    """Return the configuration and the parameters of a transformers folder; raises `ModelFileError`."""
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}

    def described(layout: Layout) -> Mapping[str, Any]:
        return read_description(checkpoint.config, layout, checkpoint.file.parent / CONFIG)

    found = recognise(shapes, described, layouts=list(layouts.values()), where=checkpoint.file)
    return found.config, found.translate(tensors)


def model_of_tokens(config: Any, tokens: Tokens, tensors: dict[str, Tensor], checkpoint: Checkpoint) -> Any:
    """Return the model of a checkpoint in evaluation mode; raises `ModelFileError` if its tokens do not fit its config."""
    there = {"vocabulary": len(tokens), "pad": tokens.pad, "start": tokens.start, "end": tokens.end}
    others = {name: (getattr(config, name), number) for name, number in there.items() if getattr(config, name) != number}
    if others:
        stated = ", ".join(f"{name} is {own} in {CONFIG} and {number} among the tokens" for name, (own, number) in others.items())
        raise ModelFileError(stated, where=checkpoint.file.parent, hint="give a complete model folder")
    model: Any = empty_model(config)
    fill(model, tensors, where=checkpoint.file)
    return model.eval()

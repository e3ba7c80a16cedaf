"""Build a model from a checkpoint, with the changes that the user requests."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from vitrail.errors import ConfigError
from vitrail.models.configs.base import ImageConfig
from vitrail.models.empty import empty_model
from vitrail.parts import last_layer
from vitrail.task_registry import row_of_kind
from vitrail.weights.formats.checkpoint import Checkpoint
from vitrail.weights.formats.tensor_files import require_numbers
from vitrail.weights.layout import Size
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.model_folder.preparation import preparation_of
from vitrail.weights.model_folder.trained import FORMAT, fill
from vitrail.weights.recognize import foreign_source, own_source
from vitrail.weights.transfer import adapt

ALIKE = (
    "note: the head is all zeros, as in Google's in21k files: every image gets the same output. Fine-tune the model "
    "(vitrail train --from), or use its feature vectors (num_classes=0)"
)
"""A note on a model whose head was never trained."""


@dataclass(frozen=True)
class Changes:
    """Fields of the configuration to change when a checkpoint is loaded; None keeps the checkpoint's value."""

    image_size: Size | None = None
    patch_size: Size | None = None
    channels: int | None = None
    num_classes: int | None = None

    def apply(self, config: ImageConfig) -> ImageConfig:
        """Return the configuration with the changes."""
        return config.changed(**{name: value for name, value in vars(self).items() if value is not None})


def build(
    checkpoint: Checkpoint,
    changes: Changes = Changes(),
    *,
    layout: str | None = None,
    fields: Mapping[str, Any] | None = None,
) -> tuple[TrainedModel, str]:
    """Return the model of a checkpoint, and a text on what was recognised in it; the text is empty for a Vitrail folder.

    Args:
        checkpoint: the open checkpoint. Its tensors are used up.
        changes: fields of the configuration to change.
        layout: the name of the layout; by default it is guessed.
        fields: configuration values that the checkpoint does not hold.

    Raises:
        ModelFileError: the files contradict each other, or fit no layout.
        ConfigError: a requested change is impossible.
    """
    require_numbers(checkpoint.tensors, checkpoint.file)
    own = checkpoint.config.get("model_type") == FORMAT and layout in (None, FORMAT)
    if own and fields:
        hint = f"leave out {', '.join(fields)}"
        raise ConfigError("the folder's config.json already defines the model", where=checkpoint.file.parent, hint=hint)
    source = own_source(checkpoint) if own else foreign_source(checkpoint, changes.image_size, layout, fields or {})
    config = changes.apply(source.config)
    tensors, labels, thresholds, about = source.tensors, source.labels, source.thresholds, source.about
    same_classes = config.num_classes == source.config.num_classes
    if config != source.config:
        tensors = adapt(tensors, source.config, config, keep_head=same_classes, interpolation=source.interpolation)
        if not same_classes:
            labels, thresholds = [str(i) for i in range(config.num_classes)], ()
            count = config.num_classes
            said = f"replaced by {count}: the new head starts at zero" if count else "left out, with the head"
            about += f"\n{source.config.num_classes} classes {said}"
    preparation = preparation_of(checkpoint, source, config)
    model = empty_model(config)
    fill(model, tensors, where=checkpoint.file)
    about += f"\nimages: {preparation}" + ("" if checkpoint.prepared else " (usual for such weights; the files name none)")
    understood = replace(source, labels=labels, thresholds=thresholds)
    room = row_of_kind(config.reads, config.answer).module("weights")
    trained: TrainedModel = room.trained_of(model.eval(), understood, preparation, checkpoint)
    about = about.strip() if source.about else ""
    if same_classes and labels and not any(last_layer(head).weight.any() for head in model.heads().values()):
        about += f"\n{ALIKE}"
    return trained, about.strip()

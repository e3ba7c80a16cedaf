"""Restriction of a classifier to some of its classes."""

from collections.abc import Sequence
from pathlib import Path

from vitrail.errors import ConfigError
from vitrail.files import read_lines
from vitrail.models.empty import empty_model
from vitrail.parts import last_layer
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.model_folder.imagenet import CLASSES_22K, IMAGENET_1K, class_names, numbers_in_22k
from vitrail.weights.model_folder.labels import distinct
from vitrail.weights.model_folder.trained import fill


def read_classes(given: str | Path, labels: Sequence[str]) -> list[int]:
    """Return the indices of the classes in a text file, which has the index or the label of one class on each line.

    ``imagenet-1k`` instead of a file selects the ImageNet-1k classes of a model with the 21,841 classes of ImageNet-22k.

    Raises:
        ConfigError: the file cannot be read, a line is neither an index nor a label, or a class occurs twice.
    """
    if str(given) == IMAGENET_1K:
        if len(labels) != CLASSES_22K:
            what = f"{IMAGENET_1K} needs a model with {CLASSES_22K:,} classes, but this one has {len(labels):,}"
            raise ConfigError(what, where="--classes", hint="give a text file with a class on every line")
        return numbers_in_22k()
    try:
        lines = read_lines(Path(given))
    except (OSError, ValueError) as error:
        what, hint = f"cannot read the classes: {error}", f"give a text file with a class on every line, or {IMAGENET_1K}"
        raise ConfigError(what, where=given, hint=hint) from None
    places = {str(number): number for number in range(len(labels))} | {label: i for i, label in enumerate(labels)}
    if strange := [line for line in lines if line not in places]:
        hint = f"write labels, or class indices below {len(labels)}"
        raise ConfigError(f"{strange[0]!r} is no class of the model", where=given, hint=hint)
    classes = [places[line] for line in lines]
    if not classes or len(set(classes)) < len(classes):
        hint = "write each class to keep once, on its own line"
        raise ConfigError("the file names no class, or one class twice", where=given, hint=hint)
    return classes


def with_classes(trained: TrainedModel, classes: Sequence[int]) -> TrainedModel:
    """Return a model with the logits of these classes only, in this order. Other rows of its heads' last layers are removed.

    Raises:
        ConfigError: the last layer of a head does not return the logits.
    """
    source = trained.model
    rows = {id(parameter) for head in source.heads().values() for parameter in last_layer(head).parameters()}
    if any([*head.modules()][-1] is not last_layer(head) for head in source.heads().values()):
        what = "the head has a module after its last linear layer, so classes cannot be removed"
        raise ConfigError(what, where="--classes", hint="fine-tune the model on the classes to keep")
    tensors = {
        name: tensor[list(classes)] if id(tensor) in rows else tensor
        for name, tensor in source.state_dict(keep_vars=True).items()
    }
    model = empty_model(trained.config.changed(num_classes=len(classes)))
    fill(model, {name: tensor.detach() for name, tensor in tensors.items()}, where="--classes")
    labels = [trained.labels[number] for number in classes]
    if list(classes) == numbers_in_22k() and labels == [str(number) for number in classes]:
        labels = class_names()
    thresholds = [trained.thresholds[number] for number in classes] if trained.thresholds else ()
    return TrainedModel(model.eval(), distinct(labels), trained.preparation, trained.multi_label, trained.card, tuple(thresholds))

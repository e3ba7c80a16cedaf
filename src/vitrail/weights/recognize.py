"""A checkpoint as it is understood: layout, configuration and labels, from what the files say and what the tensors show."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitrail.errors import ConfigError, ModelFileError, unknown
from vitrail.models.configs.base import ImageConfig
from vitrail.models.registry import ARCHITECTURES, architecture_in
from vitrail.parts.positions.interpolation import Interpolation
from vitrail.settings import brief
from vitrail.task_registry import row_of_kind
from vitrail.weights.formats.checkpoint import Checkpoint, Source, tower
from vitrail.weights.formats.safe_files import CONFIG, CONFIGURED, LATENTS, LAYOUT, PALETTE, PREPROCESSOR, SKELETON, section
from vitrail.weights.layout import Layout, Size
from vitrail.weights.layouts import LAYOUTS
from vitrail.weights.locate import row_in
from vitrail.weights.model_folder import imagenet
from vitrail.weights.model_folder.description import read_description
from vitrail.weights.model_folder.labels import PROBLEMS, THRESHOLDS, distinct
from vitrail.weights.model_folder.preparation import from_processor
from vitrail.weights.model_folder.trained import FORMAT, read_config
from vitrail.weights.normalization import HALF
from vitrail.weights.state_dict import guesses, recognise

OURS = {"embedding.projection.weight", "blocks.0.attention.norm.weight", "norm.weight"}
"""Parameters by which weights under our own names are known."""
NAMING = ("model_type", "architecture", "model_cfg")
"""Keys by which a description, of transformers, timm or OpenCLIP, determines a model."""


def own_source(checkpoint: Checkpoint) -> Source:
    """Read a folder of our own, which says everything."""
    values, where = dict(checkpoint.config), checkpoint.file.parent / CONFIG
    kind = values.pop("architectures", None)
    row = architecture_in(kind)
    if row is None:
        what = f"architectures is {brief(kind)}, and not one of those known here"
        raise ModelFileError(what, where=where, hint=f"known: {', '.join(ARCHITECTURES)}; else write the folder again")
    if not issubclass(row.config, ImageConfig):
        raise row_of_kind(row.config.reads, row.config.answer).module("weights").no_labels(where)
    names = {
        name: values.pop(name, None)
        for name in ("id2label", "label2id", "problem_type", THRESHOLDS, *SKELETON, *PALETTE, LATENTS)
    }
    del values["model_type"]
    if checkpoint.preprocessor is None:
        raise ModelFileError(f"{PREPROCESSOR} is missing", where=checkpoint.file.parent, hint="give a complete model folder")
    config = read_config(row.config, values, where)
    labels = _labels(names["id2label"] or {}, config, where)
    several, bounds = _multi_label(names, where), _thresholds(names, labels, where)
    return Source(checkpoint.tensors, config, labels, several, HALF, Interpolation(), bounds, "")


def foreign_source(checkpoint: Checkpoint, image_size: Size | None, name: str | None, fields: Mapping[str, Any]) -> Source:
    """Recognise the layout by the description or by the tensors, and translate."""
    where = checkpoint.file.parent / CONFIG
    if not checkpoint.config and checkpoint.tensors.keys() >= OURS:
        what = f"{CONFIG} is missing, without which weights of Vitrail's own do not tell what they are"
        raise ModelFileError(what, where=where, hint="give the whole model folder")
    config = {**checkpoint.config, **tower(checkpoint.config, "vision_config"), **section(checkpoint.config, "model_args")}
    own = _written(checkpoint, name)
    layouts = _of_fields(_candidates(config, checkpoint.metadata[LAYOUT] if own else name, where), fields)

    def known(layout: Layout) -> dict[str, Any]:
        described = {**_training(config, layout), **read_description(checkpoint.config, layout, where, flat=config)}
        overrides = {field: layout.config.read_field(field, value) for field, value in fields.items()}
        return {**described, **_of_images(checkpoint, layout), **own, **overrides}

    tensors = {name: tensor for name, tensor in checkpoint.tensors.items() if tensor.numel()}
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    try:
        found = recognise(shapes, known, layouts=layouts, where=checkpoint.file, image_size=image_size)
    except ConfigError as error:
        what, hint = f"the configuration is damaged: {error}", "give the one that belongs to it"
        raise ModelFileError(what, where=where, hint=hint) from None
    checkpoint.tensors.clear()
    count = sum(math.prod(shapes[own]) for own in found.naming.names.values())
    layout, model = found.match.layout, found.config
    named = config | checkpoint.metadata
    listed = config.get("label_names")
    names = named.get("id2label", {str(i): name for i, name in enumerate(listed)} if isinstance(listed, list) else None)
    labels = _labels(names, model, checkpoint.file if checkpoint.metadata else where)
    about = "" if FORMAT in config else f"recognised {layout.about}: {count:,} parameters, {model.summary}"
    if not own and all(config.get(word) is None for word in NAMING):
        stated = {**fields, **read_description(checkpoint.config, layout, where, flat=config)}
        if guessed := guesses(model, stated, layout, guessed=name is None):
            about += f"\nguessed, as the file does not say: {guessed}"
    if labels and names is None and model.num_classes == imagenet.CLASSES:
        labels = distinct(imagenet.class_names())
        about += f"\nlabels: the names of ImageNet-1k, guessed from {model.num_classes} classes without any"
    several, bounds = _multi_label(named, where), _thresholds(named, labels, where)
    return Source(found.translate(tensors), model, labels, several, layout.colours, layout.interpolation, bounds, about)


def _written(checkpoint: Checkpoint, name: str | None) -> dict[str, Any]:
    """Return the fields of the configuration that a file of ours says itself; none where it is to be read in another layout.

    Weights that contradict them are refused later, as with any other description. What the layout decides for all of its models
    need not be what the model had that was written.
    """
    layout, values = (checkpoint.metadata.get(key) for key in (LAYOUT, CONFIGURED))
    if values is None or name not in (None, layout):
        return {}
    if not isinstance(layout, str) or layout not in LAYOUTS or not isinstance(values, dict):
        what = f"the file says of itself what is not understood: layout {brief(layout)}, config {brief(values)}"
        raise ModelFileError(what, where=checkpoint.file, hint=f"write the file again; known layouts: {', '.join(LAYOUTS)}")
    written = LAYOUTS[layout]
    decided = written.reading.choices & written.fields.keys()
    return {name: value for name, value in read_config(written.config, values, checkpoint.file) if name not in decided}


def _of_images(checkpoint: Checkpoint, layout: Layout) -> dict[str, Any]:
    """Return the size of the images, where their preparation alone tells it, or belongs to this file as we wrote it."""
    if checkpoint.preprocessor is None or not (layout.reading.any_size or checkpoint.metadata):
        return {}
    return {"image_size": from_processor(checkpoint, checkpoint.preprocessor).image_size}


def _candidates(config: Mapping[str, Any], name: str | None, where: Path) -> list[Layout]:
    if name is not None:
        if name not in LAYOUTS:
            raise unknown("layout", name, list(LAYOUTS), where="layout")
        return [LAYOUTS[name]]
    kind = config.get("model_type")
    if kind is None:
        return [layout for layout in LAYOUTS.values() if layout.read or "architecture" not in config]
    if (row := row_in({"model_type": kind})) is not None:
        raise row.module("weights").no_labels(where)
    named = [layout for layout in LAYOUTS.values() if kind in layout.model_types]
    if not named:
        known = sorted({kind for layout in LAYOUTS.values() for kind in layout.model_types})
        raise ModelFileError(
            f"model_type {brief(kind)} is none that is known here", where=where, hint=f"known: {FORMAT}, {', '.join(known)}"
        )
    return named


def _training(config: Mapping[str, Any], layout: Layout) -> dict[str, Any]:
    """Return the settings of training that we keep in a ``config.json`` of transformers under a name of our own."""
    own, known = section(config, FORMAT), layout.config.training_only
    strange = own.keys() - known
    if strange:
        raise unknown("setting", sorted(strange)[0], sorted(known), where=FORMAT)
    return {name: layout.config.read_field(name, value, where=FORMAT) for name, value in own.items()}


def _of_fields(layouts: list[Layout], fields: Mapping[str, Any]) -> list[Layout]:
    """Return the layouts whose architecture has all the fields that the user gives, with such values if any has."""
    for name, value in fields.items():
        fitting = [layout for layout in layouts if name in layout.config.model_fields]
        if not fitting:
            raise unknown("field", name, list(layouts[0].config.model_fields), where=layouts[0].about)
        layouts = [layout for layout in fitting if _takes(layout, name, value)] or fitting
    return layouts


def _takes(layout: Layout, name: str, value: Any) -> bool:
    """Return whether a field may have a value: heads are a number in one architecture, a number for each stage in another."""
    try:
        layout.config.read_field(name, value)
    except ConfigError:
        return False
    return True


def _labels(names: Any, config: ImageConfig, where: Path) -> list[str]:
    """Return a name for each class: as given, else its number; none for a model that gives vectors."""
    if not config.num_classes or getattr(config, "head", "") == "projection":
        return []
    if names is None:
        return [str(i) for i in range(config.num_classes)]
    try:
        labels = [names[str(i)] for i in range(config.num_classes)]
        if not all(isinstance(label, str) and label for label in labels) or len(labels) != len(names):
            raise KeyError
    except (KeyError, TypeError):
        what = f"the labels are no names, one for each of {config.num_classes} classes"
        raise ModelFileError(what, where=where, hint="mend id2label") from None
    return distinct(labels)


def _multi_label(config: Mapping[str, Any], where: Path) -> bool:
    problem = config.get("problem_type") or PROBLEMS[0]
    if problem not in PROBLEMS:
        raise ModelFileError(f"problem_type cannot be {brief(problem)}", where=where, hint=f"known: {', '.join(PROBLEMS)}")
    return problem == PROBLEMS[1]


def _thresholds(config: Mapping[str, Any], labels: list[str], where: Path) -> tuple[float, ...]:
    found = config.get(THRESHOLDS) or ()
    fitting = isinstance(found, list) and len(found) == len(labels)
    if not found or (fitting and all(type(bound) in (int, float) and 0 <= bound <= 1 for bound in found)):
        return tuple(found)
    what = f"{THRESHOLDS} are no probabilities, one for each of {len(labels)} labels"
    raise ModelFileError(what, where=where, hint="write the folder again")

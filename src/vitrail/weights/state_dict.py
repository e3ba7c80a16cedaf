"""Conversion of state dicts between other libraries and Vitrail: find the layout, infer the configuration, rename tensors."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.base import Model
from vitrail.models.configs.base import ImageConfig, ModelConfig
from vitrail.models.empty import empty_model
from vitrail.models.registry import architecture_of
from vitrail.runtime.terminal import note
from vitrail.weights.formats.safe_files import some
from vitrail.weights.keys import Part, Shape
from vitrail.weights.layout import Layout, Match, Size
from vitrail.weights.model_folder.description import describe, described
from vitrail.weights.naming import Naming, distance, nearest_naming


@dataclass(frozen=True)
class Recognised:
    """A checkpoint whose tensors all fit one layout, with the configuration of its model."""

    match: Match
    config: Any
    where: object
    naming: Naming

    def translate(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors under Vitrail's parameter names. Empties ``tensors``, so that no tensor is in memory twice.

        Raises:
            ModelFileError: tensors that make one parameter together have shapes that do not fit.
        """
        expected = meta_shapes(self.config)
        ours: dict[str, Tensor] = {}
        file_names = self.naming.names
        for name, (key, theirs) in self.match.found.items():
            take = tensors.__getitem__ if isinstance(key, Part) else tensors.pop
            parts = [take(file_names[their]) for their in theirs if their is not None]
            try:
                ours[name] = key.read(parts, self.config)
            except (RuntimeError, IndexError, ValueError) as error:  # torch: each shape is possible, but they do not fit together
                given = ", ".join(f"{their} {_text(tuple(part.shape))}" for their, part in zip(theirs, parts, strict=False))
                what = f"tensors of one parameter do not fit together: {given}: {error}"
                raise ModelFileError(what, where=self.where, hint="give all weights of one model") from None
        tensors.clear()
        self.match.layout.reading.settle(ours, self.config)
        for name, shape in expected.items():
            if name not in ours:  # a bias that the layout does not store is zero
                ours[name] = torch.zeros(shape)
        return {name: tensor.reshape(expected[name]) for name, tensor in ours.items()}


def recognise(
    shapes: Mapping[str, Shape],
    known: Callable[[Layout], Mapping[str, Any]],
    *,
    layouts: Sequence[Layout],
    where: object,
    image_size: Size | None = None,
) -> Recognised:
    """Find the layout that fits every key and shape of a checkpoint.

    Args:
        shapes: shapes of the checkpoint's tensors, by name.
        known: returns, for a layout, the configuration fields that the user or ``config.json`` states.
        layouts: the candidates; the first that fits is taken.
        where: the file, for error messages.
        image_size: image size to try first for the position embeddings; a square image is tried next.

    Raises:
        ModelFileError: no layout fits. The message names the nearest one and lists missing, unexpected and misshaped tensors.
    """
    naming, matches = nearest_naming(shapes, layouts)
    shapes = {name: shapes[own] for name, own in naming.names.items()}
    errors: list[tuple[Match, str, str]] = []
    refusals: list[tuple[Match, ModelFileError]] = []
    for match in matches:
        try:
            stated = known(match.layout)
        except ModelFileError as error:  # config.json has an entry that this layout does not understand
            refusals.append((match, error))
            continue
        try:
            config = _configure(match, shapes, stated, image_size)
            problems = _problems(match, config, shapes)
        except (ModelFileError, ConfigError) as error:
            impossible = error.hint and error.what.startswith("config cannot be")  # that message lists fields the user never gave
            what = f"they make no known model: {error.hint}" if impossible else error.what
            unexpected = f". unexpected: {some(match.unexpected, 12)}" if match.unexpected else ""
            errors.append((match, f"{what}{unexpected}", "" if impossible else error.hint or ""))
            continue
        if not problems:
            if naming.about:
                note(naming.about)
            return Recognised(match, config, where, naming)
        errors.append((match, problems, ""))
    if refusals and (not errors or distance(refusals[0][0]) < distance(errors[0][0])):
        raise refusals[0][1]
    raise _misfit(*errors[0], where, naming)


def _configure(match: Match, shapes: Mapping[str, Shape], known: Mapping[str, Any], image_size: Size | None) -> Any:
    """Return the configuration that fits the shapes; raises `ModelFileError` where ``known`` fields contradict them."""
    layout = match.layout
    not_in_file = [name for name in layout.undecided if name not in known]
    if not_in_file:
        raise ModelFileError(
            f"the weights of {layout.about} do not show {', '.join(not_in_file)}",
            where="weights",
            hint=f"put the model's config.json beside the weights, or pass {not_in_file[0]}=… in Python",
        )
    ours = match.shapes(shapes)  # before anything is read off them
    facts = {**layout.fields, **known, **match.facts(shapes)}
    try:
        fields = layout.reading.fields(ours, facts, image_size, layout)
    except ModelFileError as error:
        raise ModelFileError(layout.in_their_names(error.what), where=error.where, hint=error.hint) from None
    config = layout.config.read(fields, where="config")
    refused = f"{layout.about} has no {lacking}" if (lacking := layout.lacks(config)) else layout.reading.refuses(config, layout)
    if refused:
        raise ModelFileError(refused, where="weights", hint="give weights and config.json of the same model")
    canonical = layout.reading.canonical
    wrong = [
        name
        for name in known
        if name not in layout.reading.choices
        and getattr(config, name) != known[name]  # the cheap test first: the next line is slow
        and getattr(canonical(config), name) != getattr(canonical(config.changed(**{name: known[name]})), name)
    ]
    if wrong:
        unequal = [row for name in wrong for row in _unequal(name, getattr(config, name), known[name])]
        stated = ", ".join(f"{name} is {value}, not {other}" for name, value, other in unequal)
        raise ModelFileError(
            f"the weights contradict config.json: {stated}", where="config", hint="give weights and config.json of the same model"
        )
    return config


def meta_shapes(config: ImageConfig) -> dict[str, Shape]:
    """Return the names and shapes of a model's parameters; nothing is allocated."""
    return {name: tuple(tensor.shape) for name, tensor in empty_model(config).state_dict().items()}


def _problems(match: Match, config: Any, shapes: Mapping[str, Shape]) -> str:
    """Return the missing, unexpected and misshaped tensors as text, by their names in the file; empty if all fit."""
    expected, ours, reading = meta_shapes(config), match.shapes(shapes), match.layout.reading
    missing, wrong = list(match.missing), []
    unexpected = list(match.unexpected)
    for name in sorted({*expected, *ours, *match.layout.needs}):
        theirs = [their for their in match.found[name][1] if their] if name in ours else []
        if name not in ours:
            place = match.layout.place(name, config)
            if not re.fullmatch(reading.optional, name) or name in match.layout.needs:
                missing += place[1] if place else [] if name.endswith(".bias") else [name]
        elif (held := reading.holds(name, ours[name], config)) is not None:
            if not held:
                wrong.append(f"{theirs[0]} {_text(shapes[theirs[0]])}, expected (…, {expected[name][-1]})")
        elif name not in expected:
            unexpected += theirs
        elif ours[name] != expected[name] and not _alike(ours[name], expected[name]):
            wrong.append(f"{' + '.join(theirs)} {_text(ours[name])}, expected {_text(expected[name])}")
    found = {"missing": missing, "unexpected": unexpected, "wrong shape": wrong}
    return ". ".join(f"{what}: {some(names, 12)}" for what, names in found.items() if names)


def _alike(a: Shape, b: Shape) -> bool:
    short, long = sorted((a, b), key=len)
    return long[len(long) - len(short) :] == short and set(long[: len(long) - len(short)]) <= {1}


def _text(shape: Shape) -> str:
    return f"({', '.join(map(str, shape))})"


def _misfit(match: Match, problems: str, hint: str, where: object, naming: Naming) -> ModelFileError:
    if not match.found:
        what = f"unknown layout of weights: {some(match.unexpected)}"
        return ModelFileError(
            what,
            where=where,
            hint="give weights in a layout that docs/weights.md lists; for a translation model give its whole folder",
        )
    as_read = f"Without the prefix {''.join(naming.dropped)} they" if naming.dropped else "They"
    nearest = f"{as_read} are nearest to {match.layout.about}: {match.keys} keys match"
    return ModelFileError(
        f"the weights do not fit. {nearest}; {problems}",
        where=where,
        hint=hint or "name the layout (--read-as, in Python layout=), or put the model's config.json beside the weights",
    )


def write(state: Mapping[str, Tensor], config: Any, layout: Layout) -> dict[str, Tensor]:
    """Return a model's state dict in a layout. Tensors that need no change are not copied.

    Raises:
        ConfigError: the layout cannot hold a part of the model, or would read it back as something else.
    """
    if not layout.written:
        what = f"{layout.about} can be read but not written: no library loads such files"
        raise ConfigError(what, where="--layout", hint="give another layout, such as timm")
    if lacking := [name for name in layout.needs if name not in state]:
        raise _inexpressible(layout, f"the layout requires {lacking[0]}, which the model lacks")
    layout.extra(config)  # raises ConfigError for a model that config.json cannot describe
    try:
        written = layout.write(layout.reading.share_out(state, config, layout), config)
    except KeyError as error:
        raise _inexpressible(layout, f"the layout cannot hold {error.args[0]}") from None
    shapes = {name: tuple(tensor.shape) for name, tensor in written.items() if tensor.numel()}
    if layout.activations and (activation := getattr(config, layout.activation_field)) not in layout.activations:
        raise _inexpressible(layout, f"the layout has no activation {activation}")
    not_in_file = {name: getattr(config, name) for name in ("heads", "image_size") if hasattr(config, name)}
    try:
        read = _configure(layout.match(shapes), shapes, {**not_in_file, **_stated(config, layout)}, None)
    except ModelFileError as error:
        raise _inexpressible(layout, error.what) from None
    ours, theirs = layout.reading.canonical(config), layout.reading.canonical(read)
    changed = [
        row
        for name in type(config).model_fields
        if name not in config.training_only and getattr(ours, name) != getattr(theirs, name)
        for row in _unequal(name, getattr(config, name), getattr(read, name))
    ]
    if changed:
        why = ", ".join(f"{name} is {value}, would be read as {other}" for name, value, other in changed)
        raise _inexpressible(layout, why)
    return written


def _unequal(name: str, value: Any, other: Any) -> list[tuple[str, Any, Any]]:
    """Return the name and both values of a field; for the configuration of a part, those of its fields that differ."""
    if not isinstance(value, ModelConfig) or type(value) is not type(other):
        return [(name, value, other)]
    fields = [(field, getattr(value, field), getattr(other, field)) for field in type(value).model_fields]
    return [(f"{name}.{field}", own, its) for field, own, its in fields if field not in value.training_only and own != its]


def first_that_holds(model: Model, layouts: Sequence[Layout]) -> tuple[Layout, dict[str, Tensor]]:
    """Return the first layout that can hold a model, and the model's tensors in this layout.

    Raises:
        ConfigError: no layout can. The message says why the first one cannot.
    """
    row, state = architecture_of(model.config), model.state_dict()
    readings = [(layout, layout.reading) for layout in layouts]
    layouts = [layout for layout, reading in readings if reading.architecture == row.name and reading.covers(model.config)]
    if not layouts:
        what = f"the layout cannot hold a {row.about} of {model.config.summary}"
        raise ConfigError(what, where="--layout", hint="give another layout")
    shapes = {name: tensor.to("meta") for name, tensor in state.items()}
    errors = []
    for layout in layouts:
        try:
            write(shapes, model.config, layout)  # on meta tensors: quick, and enough to reject almost all layouts
            return layout, write(state, model.config, layout)
        except ConfigError as error:
            errors.append(error)
    raise errors[0]


def _stated(config: Any, layout: Layout) -> Mapping[str, Any]:
    if layout.read and layout.describe:
        return layout.read(layout.describe(config))
    return described(describe(config, layout), layout) if layout.model_types else {}


def _inexpressible(layout: Layout, why: str) -> ConfigError:
    return ConfigError(f"the model cannot be written as {layout.about}: {why}", where="--layout", hint="give another layout")


def guesses(config: Any, stated: Mapping[str, Any], layout: Layout, *, guessed: bool) -> str:
    """Return a list, as text, of the fields that had to be guessed, and the layout if it was ``guessed``; empty if none was."""
    twin = [f"layout {layout.name} ({layout.twin} has the same keys)"] if guessed and layout.twin else []
    usual = []
    for name in layout.reading.not_in_file:
        value = getattr(config, name, None)
        text = "-".join(map(str, value)) if isinstance(value, tuple) else value
        usual += [name] if name not in type(config).model_fields else [] if name in stated else [f"{name} {text}"]
    return ", ".join(twin + usual + layout.reading.guesses(config, stated))

"""A checkpoint layout: which of our parameters stands under which of their keys, and what a description beside it means."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor

from vitrail.data.images.preparation import Preparation
from vitrail.errors import ModelFileError
from vitrail.models.configs.base import ImageConfig
from vitrail.models.registry import architecture
from vitrail.parts.positions.interpolation import ANTIALIASED, Interpolation
from vitrail.weights.keys import Index, Key, Shape
from vitrail.weights.normalization import HALF, Colours

Size = tuple[int, int]


@dataclass(frozen=True)
class Reading:
    """Rules to read the weights of one architecture, whatever library wrote them.

    Args:
        architecture: the name of its row; see `vitrail.models.registry`.
        fields: gives the fields of the configuration; from the shapes of our parameters, what is known, a size of images to
            try first, and the layout.
        choices: fields that the weights decide, whatever a description says.
        covers: the models of the architecture that it is meant for.
        any_size: whether parameters are alike for images of all sizes, so that only their preparation tells one.
        optional: a regular expression of parameters that need not be found.
        holds: whether a shape that is not ours has all numbers of a parameter: of its name, its shape and the configuration;
            None where it must be ours.
        settle: brings parameters into our form, in place.
        share_out: the opposite of ``settle``: parameters as a layout has them.
        canonical: one configuration for all that compute the same of the same weights.
        untold: what no file shows: fields, which are reported as guessed with their values unless they are given, and words.
        guesses: the same of an architecture where it is not so simple: from the configuration and the given fields.
        refuses: why a layout cannot hold a model, beside what it lacks; nothing where it can.
    """

    architecture: str
    fields: Callable[[Mapping[str, Shape], Mapping[str, Any], Size | None, "Layout"], dict[str, Any]]
    choices: frozenset[str] = frozenset(("image_size",))
    covers: Callable[[Any], bool] = lambda config: True
    any_size: bool = False
    optional: str = ""
    holds: Callable[[str, Shape, Any], bool | None] = lambda name, shape, config: None
    settle: Callable[[dict[str, Tensor], Any], None] = lambda tensors, config: None
    share_out: Callable[[Mapping[str, Tensor], Any, "Layout"], dict[str, Tensor]] = lambda tensors, config, layout: dict(tensors)
    canonical: Callable[[Any], Any] = lambda config: config
    untold: tuple[str, ...] = ()
    guesses: Callable[[Any, Mapping[str, Any]], list[str]] = lambda config, stated: []
    refuses: Callable[[Any, "Layout"], str] = lambda config, layout: ""


@dataclass(frozen=True)
class Layout:
    """Keys and description of the models of one architecture in a library.

    Args:
        name: what it is called on the command line.
        about: whose it is, for people.
        reading: what is alike in all layouts of its architecture.
        family: a name on the command line for several layouts, of which the first that can hold a model is written.
        keys: our parameters to theirs, below `prefix`; to several of theirs where models differ in it.
        heads: our parameters to theirs, beside `prefix`.
        prefix: what stands before all of `keys` in a model with a head, and may be left out in one without.
        older: rows that are read and not written; of a parameter that has more than one place.
        aliases: regular expressions of other spellings of their keys, to those in the tables.
        ignored: regular expressions of their keys that the model does not need.
        needs: our parameters without which a model is none of this layout.
        twin: the name of another layout of the same keys, which nothing in a file tells from this one.
        fields: what the configuration is where neither shapes nor a description tell.
        defaults: what a ``config.json`` of one of the ``model_types`` means where it leaves something out.
        described: fields of our configuration by the name they have in the ``config.json`` of this layout.
        harmless: what else ``config.json`` may say, which does not change what a model answers.
        fixed: what else it may say only with one of these values, as others would change the answer.
        read: fields of our configuration that a ``config.json`` tells, where that is more than the tables above; refuses what
            it does not understand.
        undecided: fields that neither keys nor shapes tell and nothing is usual for, so that somebody must.
        pools: what a model with a head may read its answer from; empty where that does not matter.
        lacks: what a model has that none of this layout can have, in a few words; nothing where it fits.
        activations: our name of an activation to theirs in ``config.json``; SwiGLU is there where they have it.
        activation: what ``config.json`` calls the activation.
        activation_field: what our configuration calls it.
        model_types: what ``config.json`` of transformers says as ``model_type`` where it is of this layout; the first is written.
        classes: of transformers, that the folder loads in; with a head, and without.
        extra: what else ``config.json`` says of a configuration.
        describe: what ``config.json`` says of a model that is none of transformers'.
        describe_data: what it says beside that, of labels, of images and of fine-tuning.
        register_positions: whether rows of the positions are for the registers, too.
        patch_positions: whether positions may be for the patches alone, where there are other tokens.
        colours: preparation of images where a checkpoint does not say.
        interpolation: of positions to another grid, as this library does it.
        empty: our parameters that a model may lack, to the keys under which theirs then has one of no rows.
        suffix: of the files it is kept in.
        weights: the path of the weights in a folder, which has their ``config.json`` beside them.
        written: whether models are written in it, too, as a library that can be installed loads such files.
    """

    name: str
    about: str
    reading: Reading
    keys: Mapping[str, Key | tuple[Key, ...]]
    heads: Mapping[str, Key] = field(default_factory=dict)
    prefix: str = ""
    older: Mapping[str, Key] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    twin: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    described: Mapping[str, str] = field(default_factory=dict)
    harmless: frozenset[str] = frozenset()
    fixed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    read: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    undecided: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    lacks: Callable[[Any], str] = lambda config: ""
    activations: Mapping[str, str] = field(default_factory=dict)
    activation: str = "hidden_act"
    activation_field: str = "mlp"
    model_types: tuple[str, ...] = ()
    classes: tuple[str, str] = ("", "")
    extra: Callable[[Any], dict[str, Any]] = lambda config: {}
    describe: Callable[[Any], dict[str, Any]] | None = None
    describe_data: Callable[["Layout", Any, list[str], Preparation], dict[str, Any]] | None = None
    register_positions: bool = False
    patch_positions: bool = False
    colours: Colours = HALF
    family: str = ""
    interpolation: Interpolation = ANTIALIASED
    empty: Mapping[str, str] = field(default_factory=dict)
    suffix: str = ".safetensors"
    weights: str = "model.safetensors"
    written: bool = True

    @property
    def config(self) -> type[ImageConfig]:
        """Return the configuration of the models that it holds."""
        return cast(type[ImageConfig], architecture(self.reading.architecture).config)

    def has_head(self, config: Any) -> bool:
        """Return whether a model has a head, as all have that are no models of images."""
        return bool(getattr(config, "num_classes", True))

    def match(self, names: Iterable[str]) -> "Match":
        """Find our parameters among their keys."""
        match, names = Match(self), list(names)
        prefixed = bool(self.prefix) and any(name.startswith(self.prefix) for name in names)
        for name in names:
            found = self._theirs.find(self._bare(name))
            if prefixed and not name.startswith(self.prefix):  # then it is no key of the backbone, whatever it is called
                found = [row for row in found if row[0][0] in self.heads or row[0][0] in self.older]
            for (ours, key, slot), numbers in found:
                parameter = ours.format(**numbers)
                row = match.found.setdefault(parameter, (key, [None] * len(key.names)))
                match.places.setdefault(parameter, [place.format(**numbers) for place in key.names])
                if row[0] is key and row[1][slot] is None:
                    row[1][slot] = name
                else:  # a parameter that another key has given already
                    match.unexpected.append(name)
            if not found and not self.passes_over(name):
                match.unexpected.append(name)
        return match

    def passes_over(self, name: str) -> bool:
        """Return whether a tensor of this name is none of a model's parameters, and without effect."""
        return any(ignored.fullmatch(name) for ignored in self._ignored)

    def place(self, ours: str, config: Any) -> tuple[Key, list[str]] | None:
        """Return the row of a parameter of this model and their keys for it; None if they have no place for it."""
        for (key, prefix), numbers in self._ours.find(ours):
            if key.when is None or key.when(config):
                return key, [(prefix if self.has_head(config) else "") + name.format(**numbers) for name in key.names]
        return None

    def in_their_names(self, text: str) -> str:
        """Return a message about our parameters with their keys in place of ours."""

        def theirs(word: re.Match[str]) -> str:
            rows = self._ours.find(word[0])
            return " + ".join(name.format(**rows[0][1]) for name in rows[0][0][0].names) if rows else word[0]

        return re.sub(r"\w+(\.\w+)*", theirs, text)

    def write(self, tensors: Mapping[str, Tensor], config: Any) -> dict[str, Tensor]:
        """Return our parameters under their keys; raises `KeyError` with one that they have no place for."""
        result: dict[str, Tensor] = {}
        for ours, tensor in tensors.items():
            place = self.place(ours, config)
            if place is None:
                raise KeyError(ours)
            key, names = place
            for name, part in zip(names, key.write(tensor, config), strict=True):
                result[name] = torch.cat([result[name], part]) if name in result else part  # parts come in their order
        for ours, name in self.empty.items():
            if ours not in tensors:
                ndim = next(key.ndim for parameter, key in self._places() if parameter == ours) or 2
                result[name] = torch.zeros((1,) * (ndim - 2) + (0, config.dim))
        return result

    def _bare(self, name: str) -> str:
        name = name.removeprefix(self.prefix)
        for alias, spelling in self._aliases:
            name = alias.sub(spelling, name)
        return name

    @cached_property
    def _aliases(self) -> list[tuple[re.Pattern[str], str]]:
        return [(re.compile(alias), spelling) for alias, spelling in self.aliases.items()]

    @cached_property
    def _ignored(self) -> list[re.Pattern[str]]:
        return [re.compile(ignored) for ignored in self.ignored]

    @cached_property
    def _theirs(self) -> "Index":
        rows = [*self.older.items(), *self._places(), *self.heads.items()]
        return Index([(name, (ours, key, slot)) for ours, key in rows for slot, name in enumerate(key.names)])

    @cached_property
    def _ours(self) -> "Index":
        below = [(ours, (key, self.prefix)) for ours, key in self._places()]
        return Index([*below, *((ours, (key, "")) for ours, key in self.heads.items())])

    def _places(self) -> list[tuple[str, Key]]:
        return [(ours, key) for ours, keys in self.keys.items() for key in (keys if isinstance(keys, tuple) else (keys,))]


@dataclass
class Match:
    """The parameters of a layout in a checkpoint."""

    layout: Layout
    found: dict[str, tuple[Key, list[str | None]]] = field(default_factory=dict)
    """Our parameters: their row, and their keys in its order; None where one is missing."""
    places: dict[str, list[str]] = field(default_factory=dict)
    """Our parameters: their keys in the order of the row, as they should be."""
    unexpected: list[str] = field(default_factory=list)
    """Their keys that the layout does not know."""

    @property
    def missing(self) -> list[str]:
        """Return their keys that are absent beside others of the same parameter."""
        absent = []
        for ours, (_, names) in self.found.items():
            absent += [name for name, found in zip(self.places[ours], names, strict=True) if found is None]
        return absent

    @property
    def keys(self) -> int:
        """Return the number of their keys that are ours."""
        return sum(name is not None for _, names in self.found.values() for name in names)

    def shapes(self, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
        """Return our parameters' shapes, as far as theirs tell; raises `ModelFileError` with one that cannot be."""
        result = {}
        for ours, (key, names) in self.found.items():
            theirs = {name: shapes[name] for name in names if name}
            try:
                result[ours] = key.shape(list(theirs.values()))
            except (IndexError, ValueError):  # of fewer dimensions than it must have
                what = ", ".join(f"{name} {shape}" for name, shape in theirs.items())
                raise ModelFileError(f"a shape that cannot be: {what}", where="weights", hint=None) from None
        return result

    def facts(self, shapes: Mapping[str, Shape]) -> dict[str, Any]:
        """Return fields of the configuration that only their shapes tell."""
        facts: dict[str, Any] = {}
        for key, names in self.found.values():
            facts |= key.facts([shapes[n] for n in names if n])
        return facts

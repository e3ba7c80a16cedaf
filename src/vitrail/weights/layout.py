"""A checkpoint layout: the library's key for each of Vitrail's parameters, and the meaning of its ``config.json``."""

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
    """Rules to read the weights of one architecture. They are the same for all libraries.

    Args:
        architecture: name of the architecture in `vitrail.models.registry`.
        fields: infers the configuration fields from the shapes of Vitrail's parameters, the fields that are known already, an
            image size to try first, and the layout.
        choices: fields that the weights decide, whatever ``config.json`` states.
        covers: returns whether these rules apply to a configuration of the architecture.
        any_size: whether the parameters are the same for all image sizes; only the preparation then shows the size.
        optional: a regular expression of parameters that a file may lack.
        holds: returns, for a parameter's name, a shape other than Vitrail's and the configuration, whether the tensor has all
            numbers of the parameter; None if the shape must be Vitrail's.
        settle: converts parameters from a layout's form to Vitrail's, in place.
        share_out: the inverse of ``settle``: returns the parameters in a layout's form.
        canonical: maps all configurations that compute the same function of the same weights to one of them.
        not_in_file: fields that no file shows, and other words. Fields that the user does not set are reported as guessed.
        guesses: returns further guesses to report, from the configuration and the fields that are stated.
        refuses: returns why a layout cannot hold a configuration, in addition to ``lacks`` of the layout; empty if it can.
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
    not_in_file: tuple[str, ...] = ()
    guesses: Callable[[Any, Mapping[str, Any]], list[str]] = lambda config, stated: []
    refuses: Callable[[Any, "Layout"], str] = lambda config, layout: ""


@dataclass(frozen=True)
class Layout:
    """Keys and ``config.json`` of one architecture in one library. "Their" keys are the library's, "our" names Vitrail's.

    Args:
        name: name on the command line.
        about: a description for messages.
        reading: the rules that all layouts of the architecture share.
        family: a name on the command line for several layouts; the first that can hold a model is written.
        keys: our parameters to their keys below `prefix`; to several keys where models of the library differ.
        heads: our parameters of the heads to their keys, which have no `prefix`.
        prefix: text before all of `keys` in a model with a head; a model without a head may omit it.
        older: like ``keys``, for keys of older files, which are read but never written.
        aliases: regular expressions of other spellings of their keys, to the spelling in the tables.
        ignored: regular expressions of their keys that the model does not need.
        needs: our parameters that every model of this layout has.
        twin: name of another layout with the same keys; a file does not show which of the two it has.
        fields: values of the configuration that are used if neither shapes nor ``config.json`` show them.
        defaults: values of entries that a ``config.json`` of one of the ``model_types`` omits.
        described: our configuration fields to their entries in ``config.json``.
        harmless: other entries of ``config.json`` that do not change a model's output.
        fixed: other entries of ``config.json`` to the only values that are supported.
        read: returns our configuration fields from ``config.json``, where the tables above do not suffice; raises
            `ModelFileError` for an entry that it does not understand.
        undecided: fields that neither keys nor shapes show and that have no usual value: the user must give them.
        pools: values of ``pool`` that a model with a head may have; empty where it does not matter.
        lacks: returns, in a few words, a feature of a configuration that this layout cannot hold; empty if it can hold all.
        activations: our name of each activation to theirs in ``config.json``, including SwiGLU where the library has it.
        activation: entry of ``config.json`` for the activation.
        activation_field: our configuration field for the activation.
        model_types: values of ``model_type`` in transformers' ``config.json`` for this layout; the first is written.
        classes: transformers' classes that load the folder: with a head, and without.
        extra: returns further entries of ``config.json`` for a configuration.
        describe: returns ``config.json`` for a configuration, in a library other than transformers.
        describe_data: returns further entries for ``describe``: labels, images and fine-tuning.
        register_positions: whether registers have position embeddings, too.
        patch_positions: whether position embeddings may be for the patches alone, although there are other tokens.
        colours: preparation of images for a checkpoint without one of its own.
        interpolation: the library's method to interpolate position embeddings to another grid.
        empty: our parameters that a model may lack, to keys that the library then stores with zero rows.
        suffix: suffix of the weights file.
        weights: path of the weights in a folder, which has ``config.json`` beside them.
        written: whether models can be written in this layout, which requires an installable library that loads it.
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
        """Return the configuration class of the layout's models."""
        return cast(type[ImageConfig], architecture(self.reading.architecture).config)

    def has_head(self, config: Any) -> bool:
        """Return whether a model has a head; models of other inputs than images always do."""
        return bool(getattr(config, "num_classes", True))

    def match(self, names: Iterable[str]) -> "Match":
        """Find our parameters among their keys."""
        match, names = Match(self), list(names)
        prefixed = bool(self.prefix) and any(name.startswith(self.prefix) for name in names)
        for name in names:
            found = self._theirs.find(self._bare(name))
            if prefixed and not name.startswith(self.prefix):  # all keys of the backbone have the prefix in this file
                found = [row for row in found if row[0][0] in self.heads or row[0][0] in self.older]
            for (ours, key, slot), numbers in found:
                parameter = ours.format(**numbers)
                row = match.found.setdefault(parameter, (key, [None] * len(key.names)))
                match.places.setdefault(parameter, [place.format(**numbers) for place in key.names])
                if row[0] is key and row[1][slot] is None:
                    row[1][slot] = name
                else:  # another key holds this parameter already
                    match.unexpected.append(name)
            if not found and not self.passes_over(name):
                match.unexpected.append(name)
        return match

    def passes_over(self, name: str) -> bool:
        """Return whether a tensor of this name can be ignored."""
        return any(ignored.fullmatch(name) for ignored in self._ignored)

    def place(self, ours: str, config: Any) -> tuple[Key, list[str]] | None:
        """Return the row and their keys for a parameter of a model; None if the layout cannot hold it."""
        for (key, prefix), numbers in self._ours.find(ours):
            if key.when is None or key.when(config):
                return key, [(prefix if self.has_head(config) else "") + name.format(**numbers) for name in key.names]
        return None

    def in_their_names(self, text: str) -> str:
        """Return a message with our parameter names replaced by their keys."""

        def theirs(word: re.Match[str]) -> str:
            rows = self._ours.find(word[0])
            return " + ".join(name.format(**rows[0][1]) for name in rows[0][0][0].names) if rows else word[0]

        return re.sub(r"\w+(\.\w+)*", theirs, text)

    def write(self, tensors: Mapping[str, Tensor], config: Any) -> dict[str, Tensor]:
        """Return our parameters under their keys; raises `KeyError` with the name of one that the layout cannot hold."""
        result: dict[str, Tensor] = {}
        for ours, tensor in tensors.items():
            place = self.place(ours, config)
            if place is None:
                raise KeyError(ours)
            key, names = place
            for name, part in zip(names, key.write(tensor, config), strict=True):
                result[name] = torch.cat([result[name], part]) if name in result else part  # parts come in order
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
    """The tensors of a checkpoint that belong to a layout, and those that do not."""

    layout: Layout
    found: dict[str, tuple[Key, list[str | None]]] = field(default_factory=dict)
    """Our parameter to its row and the keys in the file, in the order of the row; None for a missing key."""
    places: dict[str, list[str]] = field(default_factory=dict)
    """Our parameter to the keys that the layout expects, in the order of the row."""
    unexpected: list[str] = field(default_factory=list)
    """Keys in the file that the layout does not know."""

    @property
    def missing(self) -> list[str]:
        """Return the missing keys of parameters of which the file has only some keys."""
        absent = []
        for ours, (_, names) in self.found.items():
            absent += [name for name, found in zip(self.places[ours], names, strict=True) if found is None]
        return absent

    @property
    def keys(self) -> int:
        """Return the number of keys in the file that hold a parameter."""
        return sum(name is not None for _, names in self.found.values() for name in names)

    def shapes(self, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
        """Return the shapes of our parameters that the file holds; raises `ModelFileError` for an impossible shape."""
        result = {}
        for ours, (key, names) in self.found.items():
            theirs = {name: shapes[name] for name in names if name}
            try:
                result[ours] = key.shape(list(theirs.values()))
            except (IndexError, ValueError):  # it has too few dimensions
                what = ", ".join(f"{name} {shape}" for name, shape in theirs.items())
                raise ModelFileError(f"impossible shape: {what}", where="weights", hint=None) from None
        return result

    def facts(self, shapes: Mapping[str, Shape]) -> dict[str, Any]:
        """Return the configuration fields that follow from the shapes of their tensors, not from ours."""
        facts: dict[str, Any] = {}
        for key, names in self.found.values():
            facts |= key.facts([shapes[n] for n in names if n])
        return facts

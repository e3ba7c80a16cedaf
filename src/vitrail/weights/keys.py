"""The rows of a layout: one of Vitrail's parameters ("ours"), its keys in a library ("theirs"), and the conversion between them.

Names contain ``{i}`` for the number of a block, ``{s}`` and ``{j}`` for stage and block of a ResNet, all counted from zero.
``{S}`` and ``{J}`` count from one; ``{J:02}`` has at least two digits.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from vitrail.errors import ModelFileError

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Key:
    """One of our parameters under one of their keys, with the same numbers in the same order.

    Args:
        name: their key.
        ndim: number of dimensions of their tensor, if it differs from ours by leading dimensions of 1.
        when: returns whether a configuration uses this key, where a layout has several keys for the parameter.
        tells: configuration fields that every model with this key has.
    """

    name: str
    ndim: int | None = None
    when: Callable[[Any], bool] | None = field(default=None, kw_only=True, compare=False)
    tells: Mapping[str, Any] = field(default_factory=dict, kw_only=True, compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Return their keys that hold the parameter."""
        return (self.name,)

    def shape(self, shapes: list[Shape]) -> Shape:
        """Return our shape for their shapes; raises `IndexError` or `ValueError` for impossible shapes."""
        return shapes[0]

    def facts(self, shapes: list[Shape]) -> dict[str, Any]:
        """Return configuration fields that follow from this key or its shapes."""
        return dict(self.tells)

    def read(self, tensors: list[Tensor], config: Any) -> Tensor:
        """Convert their tensors to our parameter, for a model of this configuration."""
        return tensors[0]

    def write(self, tensor: Tensor, config: Any) -> list[Tensor]:
        """Convert our parameter to their tensors, for a model of this configuration."""
        if self.ndim is None:
            return [tensor]
        while tensor.ndim > self.ndim:
            tensor = tensor.squeeze(0)
        return [tensor[(None,) * (self.ndim - tensor.ndim)]]


@dataclass(frozen=True)
class Joined(Key):
    """One of our parameters whose rows they store in several tensors, such as queries, keys and values."""

    rest: tuple[str, ...] = ()
    shares: tuple[int, ...] = ()
    """Relative number of rows under each of their keys; equal by default."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.rest)

    def shape(self, shapes: list[Shape]) -> Shape:
        if len({shape[1:] for shape in shapes}) > 1:
            raise ValueError("parts of one matrix that do not fit together")
        return (sum(shape[0] for shape in shapes), *shapes[0][1:])

    def read(self, tensors: list[Tensor], config: Any) -> Tensor:
        return torch.cat(tensors)

    def write(self, tensor: Tensor, config: Any) -> list[Tensor]:
        shares = self.shares or (1,) * len(self.names)
        return list(tensor.split([len(tensor) * share // sum(shares) for share in shares]))


@dataclass(frozen=True)
class Part(Key):
    """One of our parameters that is a slice of their tensor: of ``parts`` equal parts those from ``first`` up to ``last``."""

    first: int = 0
    last: int = 3
    parts: int = 3

    def shape(self, shapes: list[Shape]) -> Shape:
        return (shapes[0][0] * (self.last - self.first) // self.parts, *shapes[0][1:])

    def read(self, tensors: list[Tensor], config: Any) -> Tensor:
        rows = len(tensors[0]) // self.parts
        return tensors[0][rows * self.first : rows * self.last]


@dataclass(frozen=True)
class Transposed(Key):
    """A matrix that they store as (in, out), or a kernel that they store as (height, width, in, out)."""

    def shape(self, shapes: list[Shape]) -> Shape:
        *sides, inputs, outputs = shapes[0]
        return (outputs, inputs, *sides)

    def read(self, tensors: list[Tensor], config: Any) -> Tensor:
        axes = (1, 0) if tensors[0].ndim == 2 else (3, 2, 0, 1)
        return tensors[0].permute(axes).contiguous()

    def write(self, tensor: Tensor, config: Any) -> list[Tensor]:
        return [tensor.permute((1, 0) if tensor.ndim == 2 else (2, 3, 1, 0))]


def weight_and_bias(rows: Mapping[str, str | tuple[str, ...]]) -> dict[str, Key]:
    """Return the rows for ``weight`` and ``bias`` of layers; several keys for one layer are joined."""
    keys: dict[str, Key] = {}
    for ours, theirs in rows.items():
        for part in ("weight", "bias"):
            first, *rest = [f"{name}.{part}" for name in ((theirs,) if isinstance(theirs, str) else theirs)]
            keys[f"{ours}.{part}"] = Joined(first, rest=tuple(rest)) if rest else Key(first)
    return keys


def within(rows: Mapping[str, Key | tuple[Key, ...]], ours: str, theirs: str) -> dict[str, Key]:
    """Return the rows of a model inside another one: our parameters below ``ours``, their keys below ``theirs``.

    Parameters with several keys are left out.
    """
    inside: dict[str, Key] = {}
    for name, key in rows.items():
        if isinstance(key, Joined):
            key = replace(key, rest=tuple(theirs + other for other in key.rest))
        if isinstance(key, Key):
            inside[ours + name] = replace(key, name=theirs + key.name)
    return inside


def layers(rows: Mapping[str, str], weight: str, bias: str, kind: type[Key] = Key, bias_kind: type[Key] = Key) -> dict[str, Key]:
    """Return the rows for weight and bias of layers whose keys end in ``weight`` and ``bias``, such as ``/kernel``."""
    weights: dict[str, Key] = {f"{ours}.weight": kind(theirs + weight) for ours, theirs in rows.items()}
    return weights | {f"{ours}.bias": bias_kind(theirs + bias) for ours, theirs in rows.items()}


BLOCK = ("attention.norm", "attention.layer.qkv", "attention.layer.output", "mlp.norm", "mlp.layer.expand", "mlp.layer.contract")


def block(theirs: str, *names: str | tuple[str, ...], ours: str = "blocks.{i}") -> dict[str, Key]:
    """Return the rows of a block. ``names`` are their names of the layers in `BLOCK`, below ``theirs``; "" omits a layer."""
    several = [(name,) if isinstance(name, str) else name for name in names]
    rows = zip(BLOCK, several, strict=True)
    return weight_and_bias(
        {f"{ours}.{layer}": tuple(f"{theirs}.{each}" for each in name) for layer, name in rows if name != ("",)}
    )


def count_of(numbers: Iterable[int], what: str) -> int:
    """Return 1 + the largest of ``numbers``, the count of blocks (or ``what`` they number).

    Raises:
        ModelFileError: most are missing. It takes seconds to build a thousand blocks and list their missing keys.
    """
    found = set(numbers)
    count = 1 + max(found, default=-1)
    if count > 2 * len(found) + 10:
        problem = f"there is a {what} {count - 1}, but {count - len(found)} of the {count - 1} before it are missing"
        raise ModelFileError(problem, where="weights", hint="give all of the model's weights")
    return count


def ratio_of(width: int, dim: int, known: float | None = None) -> float:
    """Return a ratio for which ``int(dim * ratio) == width``: ``known`` if it is one."""
    if known is not None and int(dim * known) == width:
        return known
    return width / dim if int(width / dim * dim) == width else (width + 0.5) / dim


def words(text: str) -> frozenset[str]:
    """Return the words in a text as a set, for long tables of names."""
    return frozenset(text.split())


class Index:
    """A table of rows by patterns such as ``blocks.{i}.norm`` that finds ``blocks.3.norm`` without trying every pattern."""

    def __init__(self, rows: list[tuple[str, Any]]):
        self.rows: dict[str, list[tuple[re.Pattern[str], Any]]] = defaultdict(list)
        for name, value in rows:
            pattern = re.sub(r"\\\{(\w)(:02)?\\\}", r"(?P<\1>[0-9]{1,4})", re.escape(name))
            self.rows[re.sub(r"\{\w(:02)?\}|[0-9]+", "#", name)].append((re.compile(pattern), value))

    def find(self, name: str) -> list[tuple[Any, dict[str, int]]]:
        """Return the values of the rows, each with the numbers in the name."""
        hits = ((row.fullmatch(name), value) for row, value in self.rows.get(re.sub(r"[0-9]+", "#", name), ()))
        found = []
        for hit, value in hits:
            if hit:  # small letters count from zero, capital letters from one
                zero = {letter.lower(): int(number) - letter.isupper() for letter, number in hit.groupdict().items()}
                found.append((value, zero | {letter.upper(): number + 1 for letter, number in zero.items()}))
        return found

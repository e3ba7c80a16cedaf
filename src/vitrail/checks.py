"""Checks of numbers in settings. An error names the numbers and the nearest values that would work."""

import math
from collections.abc import Mapping

from vitrail.errors import ConfigError


def nearest_multiple(value: float, divisor: int) -> int:
    """Return the multiple of ``divisor`` nearest to ``value``, at least ``divisor``."""
    return max(1, round(value / divisor)) * divisor


def nearest_multiples(value: int, divisor: int) -> list[int]:
    """Return the multiples of ``divisor`` just below and just above ``value``, without 0."""
    below = value // divisor * divisor
    return [n for n in (below, below + divisor) if n > 0]


def nearest_divisors(value: int, divisor: int) -> list[int]:
    """Return the divisors of ``value`` just below and just above ``divisor``."""
    divisors = [n for n in range(1, value + 1) if value % n == 0]
    below = [n for n in divisors if n < divisor][-1:]
    above = [n for n in divisors if n > divisor][:1]
    return below + above


def refuse_given(what: str, given: Mapping[str, bool]) -> None:
    """Raise `ConfigError` with the message ``what`` if a setting was given that has no effect here.

    ``given`` says for each setting's name whether the user gave it; the error names the first.
    """
    if where := next((name for name, is_given in given.items() if is_given), None):
        raise ConfigError(what, where=where, hint="leave it out")


def require_positive(**values: float) -> None:
    """Raise `ConfigError` unless all ``values`` are above zero; nan is an error, too."""
    for name, value in values.items():
        if not value > 0:
            raise ConfigError(f"{name} is {value}", where=name, hint=f"give {name} a value above 0")


def require_not_negative(**values: float) -> None:
    """Raise `ConfigError` unless all ``values`` are zero or above; nan is an error, too."""
    for name, value in values.items():
        if not value >= 0:
            raise ConfigError(f"{name} is {value}", where=name, hint=f"give {name} a value of 0 or more")


def require_at_most(name: str, value: int, most: int) -> None:
    """Raise `ConfigError` for a ``value`` above ``most``."""
    if value > most:
        raise ConfigError(f"{name} is {value:,}", where=name, hint=f"give {name} a value of at most {most:,}")


def require_divisible(name: str, value: int, divisor_name: str, divisor: int) -> None:
    """Raise `ConfigError` unless ``divisor`` divides ``value``."""
    require_positive(**{name: value, divisor_name: divisor})
    if value % divisor:
        raise ConfigError(
            f"{name} {value} is not divisible by {divisor_name} {divisor}",
            where=f"{name}, {divisor_name}",
            hint=f"nearest {name} that works: {_either(nearest_multiples(value, divisor))}; "
            f"nearest {divisor_name}: {_either(nearest_divisors(value, divisor))}",
        )


def require_multiple(name: str, value: int, factor: int, why: str) -> None:
    """Raise `ConfigError` unless ``value`` is a positive multiple of ``factor``; ``why`` names the part that needs it."""
    if value <= 0 or value % factor:
        raise ConfigError(
            f"{why} needs {name} divisible by {factor}, not {value}",
            where=name,
            hint=f"nearest {name} that works: {_either(nearest_multiples(max(value, 1), factor))}",
        )


def require_width(dim: int, heads: int, factor: int, why: str, *, per_head: bool = False) -> None:
    """Raise `ConfigError` unless ``heads`` divides ``dim`` and ``factor`` divides ``dim``, or ``dim / heads`` if ``per_head``."""

    def works(heads: int) -> bool:
        return dim % heads == 0 and (dim // heads if per_head else dim) % factor == 0

    if works(heads):
        return
    what = f"dim {dim} is not divisible by heads {heads}"
    if dim % heads == 0:
        what = f"{why} needs {'dim / heads' if per_head else 'dim'} divisible by {factor}, not dim {dim} with heads {heads}"
    unit = factor * heads if per_head else math.lcm(factor, heads)
    hint = f"nearest dim that works: {_either(nearest_multiples(dim, unit))}"
    others = [n for n in range(1, heads) if works(n)][-1:] + [n for n in range(heads + 1, dim + 1) if works(n)][:1]
    if others:
        hint += f"; nearest heads: {_either(others)}"
    raise ConfigError(what, where="dim, heads", hint=hint)


def _either(values: list[int]) -> str:
    return " or ".join(map(str, values))

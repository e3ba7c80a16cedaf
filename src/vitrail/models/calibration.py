"""From a measurement of this machine to what its processes compute with."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import cache
from typing import Any

from vitrail.parts.cpu.kernels import Kernels, use
from vitrail.runtime.measurements import keep, kept


@cache
def use_measured() -> None:
    """Compute with what was measured on this machine, if anything was; what counts is what was known when first asked for."""
    found = kernels_of(kept())
    if found is not None:
        use(found)


def remember(found: Kernels) -> None:
    """Compute with these, and keep them for the processes to come."""
    keep(asdict(found))
    use(found)


def kernels_of(values: Any) -> Kernels | None:
    """Return the kernels in a JSON document; None for any other document."""
    types = {field.name: field.type for field in fields(Kernels)}
    if not isinstance(values, Mapping) or {name: type(value) for name, value in values.items()} != types:
        return None
    return Kernels(**values)

"""Saved measurements of this machine, which decide the CPU kernels of its processes."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import cache
from typing import Any

from vitrail.parts.cpu.kernels import Kernels, use
from vitrail.runtime.measurements import keep, kept


@cache
def use_measured() -> None:
    """Use the kernels that were measured on this machine, if any. The file is read once per process."""
    found = kernels_of(kept())
    if found is not None:
        use(found)


def remember(found: Kernels) -> None:
    """Use these kernels, and save them for later processes."""
    keep(asdict(found))
    use(found)


def kernels_of(values: Any) -> Kernels | None:
    """Return the kernels in a JSON document; None for any other document."""
    types = {field.name: field.type for field in fields(Kernels)}
    if not isinstance(values, Mapping) or {name: type(value) for name, value in values.items()} != types:
        return None
    return Kernels(**values)

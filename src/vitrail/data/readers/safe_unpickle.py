"""Safe reading of a pickle of NumPy arrays: no code in the pickle is run."""

import pickle
from dataclasses import dataclass
from io import BytesIO
from typing import Any, ClassVar

import numpy as np

from vitrail.errors import DataError

NAMES = {
    *((f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")),
    *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}
"""The functions that a pickle of arrays and bytes refers to."""
ANEW = "download the data again"


def read_pickle(content: bytes, *, where: object) -> Any:
    """Read lists, mappings, numbers, text, bytes and uint8 arrays from a pickle of Python 2 or 3.

    Text of Python 2 and bytearrays become bytes. Nothing in the pickle is imported or called, not even NumPy: its calls are
    recorded as `_Note` objects, and arrays are built from them by `numpy.frombuffer`.

    Raises:
        DataError: the pickle is damaged, or holds other objects.
    """
    try:
        return _plain(_Notes(BytesIO(content), encoding="bytes").load(), {})
    except DataError as error:
        raise DataError(error.what, where=where, hint=f"do not trust this file; {ANEW}") from None
    except Exception as error:  # damaged pickles fail in many ways
        raise DataError(f"the pickle is damaged: {error}", where=where, hint=ANEW) from None


@dataclass(eq=False)
class _Note:
    """A recorded call in a pickle, with its arguments; it is never made."""

    name: str
    arguments: tuple[Any, ...] | None = None
    state: Any = None

    def __call__(self, *arguments: Any) -> "_Note":
        return _Note(self.name, arguments)

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Notes(pickle._Unpickler):  # in Python, since the C version allocates any size that a damaged pickle claims
    # a bytearray would be allocated before its content is read, so it is read like bytes
    dispatch: ClassVar[Any] = pickle._Unpickler.dispatch | {pickle.BYTEARRAY8[0]: pickle._Unpickler.dispatch[pickle.BINBYTES8[0]]}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in NAMES:
            raise DataError(f"the pickle calls {module}.{name}, which a pickle of arrays does not need")
        return _Note(name)


def _plain(value: Any, known: dict[int, Any]) -> Any:
    """Return the value with its notes replaced by arrays and bytes; a value with several references is built once."""
    if id(value) not in known:
        known[id(value)] = _made(value, known)
    return known[id(value)]


def _made(value: Any, known: dict[int, Any]) -> Any:
    match value:
        case dict():
            return {_plain(key, known): _plain(inner, known) for key, inner in value.items()}
        case list():
            return [_plain(inner, known) for inner in value]
        case _Note("encode", (str(text), "latin1" | b"latin1")):
            return text.encode("latin-1")
        case _Note("_reconstruct", tuple(), (_, shape, dtype, fortran, raw)):
            return _array(_plain(raw, known), dtype, shape, "F" if fortran else "C")
        case _Note("_frombuffer", (raw, dtype, shape, order)):
            return _array(_plain(raw, known), dtype, shape, order)
        case bytes() | str() | int() | float() | None:
            return value
    raise DataError(f"the pickle holds a {value.name if isinstance(value, _Note) else type(value).__name__} where data should be")


def _array(raw: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    match dtype:
        case _Note("dtype", ("u1" | b"u1", *_)):
            return np.frombuffer(raw, np.uint8).reshape(shape, order=order)
        case _Note("dtype", (kind, *_)):
            raise DataError(f"the pickle holds an array of type {kind!r}, not of uint8")
    raise DataError("the pickle holds an array of an unknown type")

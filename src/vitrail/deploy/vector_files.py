"""Files of vectors: NumPy's .npz and .parquet. Imports no torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vitrail.errors import ConfigError
from vitrail.files import whole_file

SUFFIXES = (".npz", ".parquet")


def require_suffix(file: Path) -> None:
    """Refuse a file for vectors that is neither of `SUFFIXES`, or that nothing here can write."""
    if file.suffix.lower() not in SUFFIXES:
        hint = f"give a name that ends in {' or '.join(SUFFIXES)}"
        raise ConfigError(f"{file.name} is no file for vectors", where="--out", hint=hint)
    if file.suffix.lower() == ".parquet":
        _pyarrow()


def write_vectors(file: Path, images: Sequence[str], vectors: np.ndarray) -> None:
    """Images and their vectors, ``images`` (N,) and ``vectors`` (N, D), as NumPy's .npz or as .parquet, whole or not at all.

    Raises:
        ConfigError: another suffix, or the library that writes .parquet is not installed.
    """
    require_suffix(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(file) as draft, draft.open("wb") as content:
        if file.suffix.lower() == ".parquet":
            pyarrow = _pyarrow()
            names = [image.encode("utf-8", "backslashreplace").decode() for image in images]  # a name may be in no encoding
            rows = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.ravel()), vectors.shape[1])
            pyarrow.parquet.write_table(pyarrow.table({"image": names, "vector": rows}), content)
        else:
            np.savez(content, images=np.array(images, dtype=np.str_), vectors=vectors)


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        what = "parquet files are written by the library pyarrow"
        hint = 'pip install "vitrail[hf]", or give a name that ends in .npz'
        raise ConfigError(what, where="--out", hint=hint) from None
    return pyarrow

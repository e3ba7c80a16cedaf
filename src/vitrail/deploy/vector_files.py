"""Files of vectors: NumPy's .npz and .parquet. Imports no torch."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from vitrail.errors import ConfigError
from vitrail.files import partial_of, whole_file
from vitrail.runtime.output import report_partial

SUFFIXES = (".npz", ".parquet")


def require_suffix(file: Path) -> None:
    """Refuse a file for vectors that is neither of `SUFFIXES`, or that nothing here can write."""
    if file.suffix.lower() not in SUFFIXES:
        hint = f"give a name that ends in {' or '.join(SUFFIXES)}"
        raise ConfigError(f"{file.name} is no file for vectors", where="--out", hint=hint)
    if file.suffix.lower() == ".parquet":
        _pyarrow()


class Vectors:
    """Images and their vectors, as they come; there is room for so many."""

    def __init__(self, most: int):
        self.images: list[Path] = []
        self._most, self._table = most, np.empty((0, 0), np.float32)

    @property
    def table(self) -> np.ndarray:
        """The vectors, float32 (N, D)."""
        return self._table[: len(self.images)]

    def add(self, image: Path, vector: np.ndarray) -> None:
        """Append an image and its vector (D,)."""
        if not self.images:
            self._table = np.empty((self._most, len(vector)), np.float32)
        self._table[len(self.images)] = vector
        self.images.append(image)


@contextmanager
def growing_vectors(file: Path, most: int) -> Iterator[Vectors]:
    """Write what is added at the end; if anything fails, what there is to `partial_of` the file, which a line on stderr names."""
    vectors = Vectors(most)
    try:
        yield vectors
        write_vectors(file, list(map(str, vectors.images)), vectors.table)
    except BaseException:
        if vectors.images:
            write_vectors(file, list(map(str, vectors.images)), vectors.table, to=partial_of(file))
            report_partial(file, f"{len(vectors.images):,} vectors")
        raise


def write_vectors(file: Path, images: Sequence[str], vectors: np.ndarray, *, to: Path | None = None) -> None:
    """Images and their vectors, ``images`` (N,) and ``vectors`` (N, D), as NumPy's .npz or as .parquet, whole or not at all.

    Args:
        file: its suffix says which.
        images, vectors: what is written.
        to: where it is written, by default to ``file``.

    Raises:
        ConfigError: another suffix, or the library that writes .parquet is not installed.
    """
    require_suffix(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(to or file) as draft, draft.open("wb") as content:
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

"""Files of feature vectors: .npz (NumPy) and .parquet. Imports no torch."""

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
    """Raise `ConfigError` for a suffix that is not in `SUFFIXES`, or for .parquet if pyarrow is not installed."""
    if file.suffix.lower() not in SUFFIXES:
        hint = f"give a name that ends in {' or '.join(SUFFIXES)}"
        raise ConfigError(f"vectors cannot be written to {file.name}", where="--out", hint=hint)
    if file.suffix.lower() == ".parquet":
        _pyarrow()


class Vectors:
    """A growing table of images and their vectors, with room for ``most`` of them."""

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
    """Yield a table for vectors, and write it to ``file`` at the end.

    On an error the vectors so far are written to `partial_of` the file, and a line on stderr names it.
    """
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
    """Write image names and their vectors to an .npz or .parquet file, which appears only when it is complete.

    Args:
        file: its suffix decides the format.
        images: names, (N,).
        vectors: (N, D).
        to: the file to write, by default ``file``.

    Raises:
        ConfigError: the suffix is unknown, or .parquet is requested and pyarrow is not installed.
    """
    require_suffix(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(to or file) as draft, draft.open("wb") as content:
        if file.suffix.lower() == ".parquet":
            pyarrow = _pyarrow()
            names = [image.encode("utf-8", "backslashreplace").decode() for image in images]  # a name may be invalid UTF-8
            rows = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.ravel()), vectors.shape[1])
            pyarrow.parquet.write_table(pyarrow.table({"image": names, "vector": rows}), content)
        else:
            np.savez(content, images=np.array(images, dtype=np.str_), vectors=vectors)


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        what = "pyarrow, which writes .parquet files, is not installed"
        hint = 'pip install "vitrail[hf]", or give a name that ends in .npz'
        raise ConfigError(what, where="--out", hint=hint) from None
    return pyarrow

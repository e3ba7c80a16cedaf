"""The members of a tar archive, by headers that may be damaged or hostile."""

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from vitrail.errors import DataError

BLOCK = 2**16


def entries(stream: BufferedIOBase, *, most: int) -> Iterator[tarfile.TarInfo]:
    """Yield the headers of an archive to its very end; the content of each lies at ``offset_data`` of the stream.

    Args:
        stream: an archive that is not compressed, or is unpacked on the way, and can be sought.
        most: bytes of headers, and behind the last file, before the archive is refused.

    Raises:
        tarfile.TarError: damaged; damage may raise other errors, too, so see `explained`.
    """
    headers: Any = _Headers(stream, most)
    with tarfile.TarFile(fileobj=headers) as tar:
        for entry in tar:
            if tar.offset <= entry.offset:
                raise tarfile.ReadError("a header leads backwards")
            yield entry
        headers.seek(tar.offset)  # the library stops at a damaged header as it does at the end, which is all zeros
        while block := headers.read(BLOCK):
            if block.strip(b"\0"):
                raise tarfile.ReadError(f"the header at byte {tar.offset:,} is damaged")


@contextmanager
def explained(archive: Path, *, hint: str) -> Iterator[None]:
    """Turn any error inside into a `DataError` that names the archive."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # damaged archives fail in many ways
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise DataError(f"cannot read the archive: {reason}", where=archive, hint=hint) from None


class _Headers:
    """A file of which only a limited number of bytes is read: a header may claim any length."""

    def __init__(self, stream: BufferedIOBase, most: int):
        self.tell, self.seek, self._read = stream.tell, stream.seek, stream.read
        self._most = self._left = most

    def read(self, size: int) -> bytes:
        content = self._read(min(size, self._left + 1))
        self._left -= len(content)
        if self._left < 0:
            raise tarfile.ReadError(f"its headers have more than {self._most:,} bytes")
        return content

"""Members of a tar archive, read safely from headers that may be damaged or malicious."""

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from vitrail.errors import DataError

BLOCK = 2**16


def entries(stream: BufferedIOBase, *, most: int) -> Iterator[tarfile.TarInfo]:
    """Yield the header of each member of an archive; the member's content begins at ``offset_data`` of the stream.

    Args:
        stream: the archive, uncompressed and seekable.
        most: largest total number of bytes in headers and after the last member.

    Raises:
        tarfile.TarError: the archive is damaged. Damage may raise other errors, too, so use `explained` around this.
    """
    headers: Any = _Headers(stream, most)
    with tarfile.TarFile(fileobj=headers) as tar:
        for entry in tar:
            if tar.offset <= entry.offset:
                raise tarfile.ReadError("a header leads backwards")
            yield entry
        headers.seek(tar.offset)  # tarfile also stops at a damaged header; at the real end only zeros follow
        while block := headers.read(BLOCK):
            if block.strip(b"\0"):
                raise tarfile.ReadError(f"the header at byte {tar.offset:,} is damaged")


@contextmanager
def explained(archive: Path, *, hint: str) -> Iterator[None]:
    """Convert any error inside the block to a `DataError` that names the archive."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # damaged archives fail in many ways
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise DataError(f"cannot read the archive: {reason}", where=archive, hint=hint) from None


class _Headers:
    """A file whose reads are limited to a number of bytes, since a header may claim any length."""

    def __init__(self, stream: BufferedIOBase, most: int):
        self.tell, self.seek, self._read = stream.tell, stream.seek, stream.read
        self._most = self._left = most

    def read(self, size: int) -> bytes:
        content = self._read(min(size, self._left + 1))
        self._left -= len(content)
        if self._left < 0:
            raise tarfile.ReadError(f"its headers have more than {self._most:,} bytes")
        return content

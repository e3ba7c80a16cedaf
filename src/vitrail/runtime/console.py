"""The console for progress bars: stderr, whether or not anybody reads it any more."""

import contextlib
import io
import sys
from typing import TextIO, cast

from rich.console import Console


class Stderr(io.TextIOBase):
    """stderr without its errors: no run ends because a terminal was closed, or because the disk that holds its log is full."""

    @property
    def stream(self) -> TextIO:
        """The current stderr, below the one that a bar puts in its place to keep lines above it."""
        stream: TextIO = getattr(sys.stderr, "rich_proxied_file", sys.stderr)
        return stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.stream.encoding

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self.stream.flush()

    def isatty(self) -> bool:
        return self.stream.isatty()

    def fileno(self) -> int:
        return self.stream.fileno()


def stderr_console() -> Console:
    """Return a console on stderr."""
    return Console(file=cast(TextIO, Stderr()))

"""The console for progress bars: stderr, without errors when it has been closed."""

import contextlib
import io
import sys
from typing import TextIO, cast

from rich.console import Console


class Stderr(io.TextIOBase):
    """stderr that raises no errors, so that a closed terminal or a full disk below the log ends no run."""

    @property
    def stream(self) -> TextIO:
        """The real stderr; a progress bar of rich replaces ``sys.stderr`` by a proxy."""
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

"""Files and folders that appear only when they are complete."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def path_of(text: str | Path) -> Path:
    """A path, with ``~`` as the home folder (``~nobody`` stays as it is).

    An empty text becomes a path that does not exist: ``Path("")`` would mean the current folder, which nobody named.
    """
    if not str(text):
        return Path(os.devnull, "empty path")
    return Path(os.path.expanduser(text))


def write_text(file: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    write_bytes(file, text.encode())


def write_bytes(file: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    draft = file.with_name(f".{file.name}.draft")
    try:
        draft.write_bytes(content)
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


def write_json(file: Path, values: Any) -> None:
    """Write JSON whole or not at all."""
    write_text(file, json.dumps(values, indent=2, ensure_ascii=False) + "\n")


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A draft folder to fill; it takes the place of ``folder`` at the end, and goes away if anything fails before."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    old = draft.with_name(f"{draft.name}-old")
    try:
        yield draft
        draft.chmod(0o755)
        if folder.exists():
            folder.rename(old)
        draft.rename(folder)
    except BaseException:
        if old.exists() and not folder.exists():
            old.rename(folder)
        raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)

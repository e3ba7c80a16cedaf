"""The errors that Vitrail raises on purpose: what is wrong, where, what to do, and the exit code of the command."""

from difflib import get_close_matches
from typing import ClassVar


class VitrailError(Exception):
    """Base of all deliberate errors. ``str(error)`` is up to three lines: what, where, what to do."""

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, where: object = None, hint: str | None = None):
        self.what, self.where, self.hint = what, where, hint
        lines = [what]
        if where is not None:
            lines.append(f"where: {where}")
        if hint is not None:
            lines.append(f"what to do: {hint}")
        super().__init__("\n".join(lines))


class DiskFullError(VitrailError):
    """The disk has no room for a file."""


class ConfigError(VitrailError):
    """Wrong usage: an unknown flag, an unknown name, a value or a combination that cannot work."""

    exit_code = 2


class DataError(VitrailError):
    """Images or labels that are missing, unreadable or unusable."""

    exit_code = 3


class UnreadableImageError(DataError):
    """One image that cannot be read."""


class ModelFileError(VitrailError):
    """A model that is missing, damaged or refused."""

    exit_code = 4


class DivergedError(VitrailError):
    """Training produced a loss that is not finite."""

    exit_code = 5


def nearest(word: str, known: list[str]) -> str | None:
    """Return the word of ``known`` that is most similar to ``word``; None if none is similar."""
    lower = {k.lower(): k for k in known}
    close = get_close_matches(word.lower(), list(lower), n=1, cutoff=0.5)
    return lower[close[0]] if close else None


def unknown(kind: str, word: str, known: list[str], *, where: object = None) -> ConfigError:
    """Return the error for a name that is not among ``known``, with the most similar known name in the hint."""
    close = nearest(word, known)
    hints = [f"did you mean {close!r}?"] if close else []
    if not close or len(known) <= 12:
        hints.append("known: " + ", ".join(known))
    return ConfigError(f"unknown {kind} {word!r}", where=where, hint=" ".join(hints))

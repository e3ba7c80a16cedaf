"""Removal of invisible characters from text: sentences, labels, column names and lists in files."""

import re
from unicodedata import normalize

_CONTROL = "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"
_BLANKS = "\x0b\x0c\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_INVISIBLE = (
    "\u00ad\u034f\u061c\u17b4\u17b5\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e001f"
)
_JOINERS = "\u115f\u1160\u180b-\u180d\u180f\u200c\u200d\ufe00-\ufe0f\U000e0020-\U000e007f\U000e0100-\U000e01ef"
_OTHER_SCRIPT = "[^\\s\x00-\u036f\u1e00-\u1eff\u2000-\u206f]"
"""Persian, Indic scripts and emoji need joiners between their letters; beside Latin letters and blanks joiners do nothing."""
_NEEDLESS = f"(?<!{_OTHER_SCRIPT})[{_JOINERS}]|[\u200c\u200d](?!{_OTHER_SCRIPT})"

_PRINTABLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Invisible characters that Python calls printable: for Unicode they are no format characters or blanks."""
_TO_BLANK = re.compile(f"[{_CONTROL}]")
_TO_NOTHING = re.compile(f"[{_INVISIBLE}]|{_NEEDLESS}")
_ODD = re.compile(f"[{_CONTROL}{_BLANKS}{_INVISIBLE}]|{_NEEDLESS}")


def clean(text: str) -> str:
    """Return a text with composed letters (NFC), single plain blanks, and no invisible characters.

    Runs of blanks and control characters become one blank; blanks at both ends are removed. A lone surrogate becomes "?".
    """
    if not _is_plain(text):
        whole = text.encode("utf-8", errors="replace").decode()
        text = _TO_NOTHING.sub("", _TO_BLANK.sub(" ", whole))
    return normalize("NFC", " ".join(text.split()))


def is_odd(text: str) -> bool:
    """Return whether a text has invisible characters, or blanks other than spaces and line ends."""
    return not _is_plain(text) and _ODD.search(text) is not None


def _is_plain(text: str) -> bool:
    """Return whether a text is certainly free of invisible characters and odd blanks; a fast check, which most texts pass."""
    return text.isprintable() and (text.isascii() or not _PRINTABLE.search(text))

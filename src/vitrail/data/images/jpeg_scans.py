"""A limit on the scans of a JPEG. A scan is a pass over all pixels, and a file of a few kilobytes may need thousands."""

import re

import numpy as np

from vitrail.errors import DataError

MAX_SCANS = 64
"""Largest number of scans of a JPEG; usual files have 1 to 20."""
_MARKER = re.compile(b"\xff[^\x00\x01\xd0-\xd8\xff]")
"""A marker that is followed by a length. It has one byte 255: matching a run of them would take quadratic time."""
SCAN, END = 0xDA, 0xD9
"""Markers of a scan and of the end of the image."""


def require_few_scans(jpeg: bytes) -> None:
    """Raise `DataError` for a JPEG of more than `MAX_SCANS` scans."""
    pairs = (np.frombuffer(jpeg, "<u2", (len(jpeg) - start) // 2, start) for start in (0, 1))
    scans = sum(int(np.count_nonzero(pair == 0xDAFF)) for pair in pairs)  # faster than `bytes.count`
    if scans > MAX_SCANS and (scans := _scans_in(jpeg)) > MAX_SCANS:  # count exactly: a phone may append a video to the image
        raise DataError(f"a JPEG of {scans:,} scans is over the limit of {MAX_SCANS}", hint="save it again")


def _scans_in(jpeg: bytes) -> int:
    scans, place = 0, 2
    while found := _MARKER.search(jpeg, place):
        marker, place = found[0][-1], found.end()
        if marker == END:
            break
        scans += marker == SCAN
        place += int.from_bytes(jpeg[place : place + 2], "big")
    return scans

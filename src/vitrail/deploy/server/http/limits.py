"""What the server takes on."""

from dataclasses import dataclass

MEBIBYTE, MILLION = 2**20, 10**6


@dataclass(frozen=True)
class Limits:
    """Bounds of a request, and of all of them together."""

    body: int = 20 * MEBIBYTE
    """Bytes of a request's body."""
    items: int = 32
    """Images, people or texts of a request."""
    characters: int = 5000
    """Characters of a text."""
    waiting: int = 256
    """Images, people, or pieces of texts, that are in the server at a time."""
    batch: int = 16
    """Images, people, or pieces of texts, that are computed together."""
    pixels: int = 25 * MILLION
    """Pixels of an image, which may take 16 bytes each while it is decoded."""
    deadline: float = 10.0
    """Seconds from a request's body to its answer."""


IMAGES = Limits()
TEXTS = Limits(body=MEBIBYTE)
"""What servers of models of images and of translators take on, where nobody says otherwise."""

"""Limits of the server."""

from dataclasses import dataclass

MEBIBYTE, MILLION = 2**20, 10**6


@dataclass(frozen=True)
class Limits:
    """Upper limits of one request, and of all requests together."""

    body: int = 20 * MEBIBYTE
    """Bytes in a request's body."""
    items: int = 32
    """Images, people or texts in a request."""
    characters: int = 5000
    """Characters in a text."""
    waiting: int = 256
    """Images, people, or pieces of texts, in the server at a time."""
    batch: int = 16
    """Images, people, or pieces of texts, in a batch."""
    pixels: int = 25 * MILLION
    """Pixels of an image; decoding may take 16 bytes for each."""
    deadline: float = 10.0
    """Seconds from the end of a request's body to the response."""


IMAGES = Limits()
TEXTS = Limits(body=MEBIBYTE)
"""Default limits: `IMAGES` for image models, `TEXTS` for translation models."""

"""What the server takes on."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of a request, and of all of them together."""

    body: int = 20 * 2**20
    """Bytes of a request's body."""
    images: int = 32
    """Images of a request."""
    waiting: int = 256
    """Images that are in the server at a time."""
    batch: int = 16
    """Images that are computed together."""
    deadline: float = 10.0
    """Seconds from a request's body to its answer."""

"""The access log: a line for every request."""

import time
from urllib.parse import quote

from starlette.types import Scope

MOST_PATH, MOST_METHOD = 200, 16
"""Characters of a path and of a method that are logged."""


def line(scope: Scope, status: int, sent: int, seconds: float) -> str:
    """Return time, client address, method, path, status, bytes of the response body (0 for HEAD), and milliseconds.

    The path is escaped, so that it is always a single word.
    """
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    client = scope["client"][0] if scope["client"] else "-"
    path = quote(scope["path"])
    path = path if len(path) <= MOST_PATH else f"{path[:MOST_PATH]}..."
    sent = 0 if scope["method"] == "HEAD" else sent
    return f"{now} {client} {scope['method'][:MOST_METHOD]} {path} {status} {sent} {1000 * seconds:.1f}"

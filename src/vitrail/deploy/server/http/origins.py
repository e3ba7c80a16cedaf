"""Cross-origin resource sharing (CORS), for allowed origins (https://fetch.spec.whatwg.org/#http-cors-protocol)."""

import re
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from vitrail.errors import ConfigError

PORTS = {"http": 80, "https": 443}
"""Default ports, which browsers omit in an origin."""
NO_PAGES = ("", "blob", "data", "file", "ftp", "ws", "wss")
"""Schemes that no web page's origin has."""
METHODS = "GET, HEAD, POST"
LASTS = "600"
"""Seconds for which a browser caches the response to a preflight request."""


def origin_of(url: str) -> str:
    """Return an origin in the form that browsers send: ``https://Shop.example:443/`` becomes ``https://shop.example``.

    Raises:
        ConfigError: it is not the origin of a single site.
    """
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname or "", parts.port
        name = f"[{host}]" if ":" in host else host.encode("idna").decode()
    except ValueError:
        name = ""
    more = parts.path.removesuffix("/") or parts.query or parts.fragment or parts.username
    if not re.fullmatch(r"\[[0-9a-f:.]+\]|[a-z0-9_.-]+", name) or parts.scheme in NO_PAGES or more:
        hint = "give scheme, host and port of the pages, such as https://shop.example or http://localhost:3000"
        raise ConfigError(f"{url!r} is not an origin", where="--allow-origin", hint=hint)
    return f"{parts.scheme}://{name}" + ("" if port in (None, PORTS.get(parts.scheme)) else f":{port}")


def is_preflight(method: str, headers: Mapping[str, str]) -> bool:
    """Return whether a request is a CORS preflight, by which a browser asks for permission; it never has a token."""
    return method == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers


def sharing_headers(headers: Mapping[str, str], origins: Collection[str]) -> dict[str, str]:
    """Return the CORS headers of a response or error, with which a browser lets a page of an allowed origin read it."""
    if not origins:
        return {}
    if (origin := headers.get("origin")) not in origins:
        return {"Vary": "Origin"}
    return {"Vary": "Origin", "Access-Control-Allow-Origin": str(origin), "Access-Control-Expose-Headers": "Retry-After"}


def preflight_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the additional headers of the response to the preflight request of an allowed origin."""
    asked = headers.get("access-control-request-headers")
    names = {} if asked is None else {"Access-Control-Allow-Headers": asked}
    return {"Access-Control-Allow-Methods": METHODS, "Access-Control-Max-Age": LASTS, **names}

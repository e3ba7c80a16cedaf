"""Pages of other origins that may ask: cross-origin resource sharing (https://fetch.spec.whatwg.org/#http-cors-protocol)."""

import re
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from vitrail.errors import ConfigError

PORTS = {"http": 80, "https": 443}
"""Ports that an origin leaves out."""
NO_PAGES = ("", "blob", "data", "file", "ftp", "ws", "wss")
"""Schemes that are in no origin of a page."""
METHODS = "GET, HEAD, POST"
LASTS = "600"
"""Seconds for which a browser remembers the answer to a preflight."""


def origin_of(url: str) -> str:
    """Return the origin of a page as browsers send it: ``https://Shop.example:443/`` becomes ``https://shop.example``.

    Raises:
        ConfigError: it is no origin, or not one site's alone.
    """
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname or "", parts.port
        name = f"[{host}]" if ":" in host else host.encode("idna").decode()
    except ValueError:
        name = ""
    more = parts.path.removesuffix("/") or parts.query or parts.fragment or parts.username
    if not re.fullmatch(r"\[[0-9a-f:.]+\]|[a-z0-9_.-]+", name) or parts.scheme in NO_PAGES or more:
        hint = "give scheme, host and port of its pages, such as https://shop.example or http://localhost:3000"
        raise ConfigError(f"{url!r} is no origin", where="--allow-origin", hint=hint)
    return f"{parts.scheme}://{name}" + ("" if port in (None, PORTS.get(parts.scheme)) else f":{port}")


def is_preflight(method: str, headers: Mapping[str, str]) -> bool:
    """Return whether a browser asks for a page if it may ask; that request never has a token."""
    return method == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers


def sharing_headers(headers: Mapping[str, str], origins: Collection[str]) -> dict[str, str]:
    """Return the headers of an answer, or an error, by which the browser gives it to a page of one of the origins."""
    if not origins:
        return {}
    if (origin := headers.get("origin")) not in origins:
        return {"Vary": "Origin"}
    return {"Vary": "Origin", "Access-Control-Allow-Origin": str(origin), "Access-Control-Expose-Headers": "Retry-After"}


def preflight_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the further headers of the answer to the preflight of a page that may ask."""
    asked = headers.get("access-control-request-headers")
    names = {} if asked is None else {"Access-Control-Allow-Headers": asked}
    return {"Access-Control-Allow-Methods": METHODS, "Access-Control-Max-Age": LASTS, **names}

"""Access control: by a token, or restricted to this machine."""

import hmac
import ipaddress
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from vitrail.deploy.server.http.problems import ProblemError

SAFE = ("GET", "HEAD", "OPTIONS")
LONGEST = 200
"""Characters of an origin in a message."""


@dataclass(frozen=True)
class Access:
    """Rules for access: clients with the token; if there is no token, any program on this machine."""

    token: str | None = None
    origins: frozenset[str] = frozenset()
    """Origins of web pages that may send requests from a browser and read the responses (CORS)."""

    def require(self, scope: Scope, unguarded: Collection[str]) -> None:
        """Refuse a request that is not allowed.

        Without a token, the Host must be this machine and the Origin must not be another site. A browser sends requests for
        any page, also to a foreign host name that resolves to this machine (DNS rebinding).

        Args:
            scope: the request.
            unguarded: paths that need no token.

        Raises:
            ProblemError: 401, 403 or 421.
        """
        headers = Headers(scope=scope)
        if self.token is None:
            self._require_local(scope["method"], headers)
        elif scope["path"] not in unguarded:
            _require_token(headers, self.token)

    def _require_local(self, method: str, headers: Headers) -> None:
        host = headers.get("host", "")
        if not _is_local(_name(host)):
            raise ProblemError(421, "the Host is not this machine", hint="use localhost, or start the server with a token")
        origin = headers.get("origin")
        if method not in SAFE and origin is not None and origin not in self.origins and not _is_of(origin, host):
            raise foreign_page(origin)


def _require_token(headers: Headers, token: str) -> None:
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(value.strip().encode(), token.encode()):
        hint = "send the header Authorization: Bearer TOKEN"
        raise ProblemError(401, "the token is missing or wrong", hint=hint, headers={"WWW-Authenticate": "Bearer"})


def foreign_page(origin: str) -> ProblemError:
    """Return the error for a web page of an origin that is not allowed."""
    what = f"the request comes from a page of another site: {origin[:LONGEST]}"
    return ProblemError(403, what, hint="start the server with --allow-origin and this origin, or send it from a program")


def _name(host: str) -> str:
    """The name in a Host header, without the port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_local(name: str) -> bool:
    """Return whether a name always means this machine: a loopback address or ``localhost``, which DNS cannot redirect."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _is_of(origin: str, host: str) -> bool:
    """Return whether an Origin header is a page of this Host."""
    try:
        return urlsplit(origin).netloc == host
    except ValueError:
        return False

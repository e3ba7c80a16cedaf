"""Who may ask: by a token, or from this machine."""

import asyncio
import contextlib
import hmac
import ipaddress
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Scope

from vitrail.deploy.server.http.clients import LEFT, network
from vitrail.deploy.server.http.problems import ProblemError
from vitrail.deploy.server.http.rate_limited_log import Seldom

SAFE = ("GET", "HEAD", "OPTIONS")
FREE, PERIOD = 10, 60.0
"""Wrong tokens of an address in so many seconds for which nobody waits."""
RATE = 100.0
"""Tokens of such an address that are looked at in a second, at most."""
LONGEST = 200
"""Characters of an origin that are told."""
SHORTEST = 0.25
"""Seconds that a single one waits."""
GUESSERS = 10_000
"""Addresses that are remembered."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Access:
    """Who may ask: whoever has the token, or without one any program of this machine."""

    token: str | None = None
    origins: frozenset[str] = frozenset()
    """Pages of other origins that browsers may let ask, and read the answers."""

    async def require(self, scope: Scope, unguarded: Collection[str], guesses: "Guesses") -> None:
        """Refuse a request that may not be.

        Without a token it must be meant for this machine by name, and not come from a page of another site: a browser sends
        what any page asks it to, also to a name that its owner has pointed here.

        Args:
            scope: the request.
            unguarded: paths that need no token.
            guesses: wrong tokens so far.

        Raises:
            ProblemError: 401, 403 or 421.
            ClientDisconnect: nobody waits for an answer any more.
        """
        headers = Headers(scope=scope)
        if self.token is None:
            self._require_local(scope["method"], headers)
        elif scope["path"] not in unguarded:
            await self._require_token(scope, headers, self.token, guesses)

    def _require_local(self, method: str, headers: Headers) -> None:
        host = headers.get("host", "")
        if not _is_local(_name(host)):
            raise ProblemError(421, "the Host is not this machine", hint="ask for localhost, or start the server with a token")
        origin = headers.get("origin")
        if method not in SAFE and origin is not None and origin not in self.origins and not _is_of(origin, host):
            raise foreign_page(origin)

    async def _require_token(self, scope: Scope, headers: Headers, token: str, guesses: "Guesses") -> None:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and given:
            who = network(scope["client"][0] if scope["client"] else "")
            await guesses.wait(who, scope["state"][LEFT])
            if hmac.compare_digest(given.strip().encode(), token.encode()):
                return
            guesses.add(who)
        hint = "send the header Authorization: Bearer TOKEN"
        raise ProblemError(401, "the token is missing or wrong", hint=hint, headers={"WWW-Authenticate": "Bearer"})


def foreign_page(origin: str) -> ProblemError:
    """Return the error for a page of an origin that is not allowed."""
    what = f"a page of another site asks: {origin[:LONGEST]}"
    return ProblemError(403, what, hint="start the server with --allow-origin and that address, or ask from a program")


def _name(host: str) -> str:
    """The name in a Host, without the port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_local(name: str) -> bool:
    """Whether a name can only be this machine: a loopback address, which nobody can point elsewhere, or ``localhost``."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _is_of(origin: str, host: str) -> bool:
    """Whether an Origin is a page of that Host."""
    try:
        return urlsplit(origin).netloc == host
    except ValueError:
        return False


@dataclass
class _Guesser:
    """An address with wrong tokens."""

    since: float
    wrong: int = 0
    waiting: int = 0


class Guesses:
    """Wrong tokens, by address. Who has sent many waits for the answer to the next one, whether it is right or wrong.

    If a right token were answered sooner, the time would give it away. Nobody is refused: behind a proxy good clients have the
    same address. They wait, too, while somebody guesses there, and the longer the more guesses wait beside them.

    Args:
        counter: called for every wrong token.
    """

    def __init__(self, counter: Callable[[], None]):
        self._counter = counter
        self._seldom = Seldom(log, "%d requests with a wrong token, the last one from %s", 1.0)
        self._guessers: OrderedDict[str, _Guesser] = OrderedDict()

    async def wait(self, who: str, left: asyncio.Event) -> None:
        """Until the token of a request may be looked at.

        Raises:
            ClientDisconnect: the client has not waited, and learns nothing.
        """
        found = self._guessers.get(who)
        if found is None or found.wrong < FREE or self._is_over(found):
            return
        found.waiting += 1
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SHORTEST + found.waiting / RATE):
                    await left.wait()
                    raise ClientDisconnect
        finally:
            found.waiting -= 1

    def add(self, who: str) -> None:
        """There was a wrong one."""
        self._counter()
        self._seldom.happened(who)
        if who not in self._guessers or self._is_over(self._guessers[who]):
            self._guessers.pop(who, None)
            self._guessers[who] = _Guesser(time.monotonic())
        self._guessers[who].wrong += 1
        if len(self._guessers) > GUESSERS:
            self._guessers.popitem(last=False)

    def _is_over(self, found: _Guesser) -> bool:
        return not found.waiting and time.monotonic() - found.since > PERIOD

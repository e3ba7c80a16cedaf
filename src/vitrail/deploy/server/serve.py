"""A model behind HTTP."""

import gc
import os
import socket
import threading
from collections.abc import Callable, Sequence
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from vitrail.checks import require_at_most, require_positive
from vitrail.deploy.export.artefact import graph_of
from vitrail.deploy.server.http.origins import origin_of
from vitrail.deploy.server.workers.shared_state import MOST_WORKERS, Board, Place
from vitrail.errors import ConfigError, nearest
from vitrail.files import path_of, read_text
from vitrail.runtime.device import pick_device
from vitrail.runtime.output import name_of
from vitrail.task_registry import TaskRow
from vitrail.weights.locate import is_exported_translator

if TYPE_CHECKING:
    from vitrail.deploy.server.operation import ServerSettings

TOKEN = "VITRAIL_TOKEN"
"""The environment's name for the token."""
NEW_TOKEN = "make one: python -c 'import secrets; print(secrets.token_urlsafe())'"
TOKEN_LENGTH, TOKEN_VARIETY = 16, 5
"""Characters of a token, and different ones among them, at least."""


def serve(
    model: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token_file: str | Path | None = None,
    allow_origins: Sequence[str] = (),
    workers: int = 1,
    on_start: Callable[[str], None] = lambda address: None,
    on_answer: Callable[[str], None] | None = None,
    **options: Any,
) -> int:
    """Answer over HTTP until a signal comes and everything that was let in is answered. Return the signal's number.

    Args:
        model: a run folder, a model folder, a file of weights, a hub id or an exported model.
        host: an address or a name of this machine. One that others can reach needs a token.
        port: 0 is for any that is free.
        token_file: holds the token, of at least 16 characters; by default it is in the environment's ``VITRAIL_TOKEN``.
        allow_origins: addresses of pages, such as ``https://shop.example``, that may ask from a browser; others may not.
        workers: processes that answer, which share the processor's cores. From two on they are forks of this process, in which
            torch must not have computed yet: one that dies is replaced, and the others go on.
        on_start: called with the address, once it listens.
        on_answer: called with a line for an access log after every request.
        options: of the model's task. All take ``limits``, what the server takes on: a `vitrail.deploy.server.http.limits.Limits`.
            A model of images takes ``precision``, and with an exported one ``engine``, as in `vitrail.predict`; one of classes
            takes ``reject``, too.

    Raises:
        ConfigError: the extra is not installed, a token is missing or can be guessed, or the task has no such option.
        ModelFileError: the model is missing, damaged, refused, or gives vectors.
        VitrailError: the address cannot be listened at, or requests were given up at the end.
    """
    require_positive(**{"--workers": workers})
    try:
        from vitrail.deploy.server.http.access import Access
        from vitrail.deploy.server.http.app import application
        from vitrail.deploy.server.opening import task_of
        from vitrail.deploy.server.service import Service
        from vitrail.deploy.server.workers import running
        from vitrail.deploy.server.workers.connections import Door
        from vitrail.deploy.server.workers.supervisor import Supervisor
    except ImportError as error:
        hint = "pip install 'vitrail[serve]'"
        raise ConfigError(f"the server needs an extra: {error}", where="vitrail serve", hint=hint) from None
    token, origins = _token(token_file), frozenset(map(origin_of, allow_origins))
    with running.listen(host, port) as bound:
        _require_token(token, running.is_loopback(bound))
        address = running.address(bound)
        threads = 0 if workers == 1 else _threads_of_each(workers, exported=_is_exported(model))
        row, opened = task_of(model)
        settings = _settings(row, options)
        served = row.module("service").open_served(opened, settings)

        def answer(place: Place, door: socket.socket, ready: Callable[[], None]) -> int:
            service = Service(served(place), name_of(str(model)), place)
            return running.run(application(service, Access(token, origins), on_answer), service, door, ready)

        if workers == 1:
            return answer(Place.alone(), bound, lambda: on_start(address))

        def work(place: Place) -> None:
            torch.set_num_threads(threads)
            door = Door(bound, place)
            bound.close()
            answer(place, door, place.begin)

        gc.collect()
        gc.freeze()  # what is here now is shared by all workers as long as nobody writes to it, which a collection would
        try:
            return Supervisor(Board(workers), work, bound, running.patience(settings.limits)).run(lambda: on_start(address))
        finally:
            gc.unfreeze()
            torch.set_num_threads(workers * threads)


COMMON = [name for name, parameter in signature(serve).parameters.items() if parameter.kind == parameter.KEYWORD_ONLY]
"""Options of any server."""


def _settings(row: TaskRow, options: dict[str, Any]) -> "ServerSettings":
    """Return the settings of a server that are its task's own; raises `ConfigError` where the task has none by some name."""
    settings: type[ServerSettings] = row.module("service").Settings
    for name in options.keys() - settings.model_fields.keys():
        flag, close = f"--{name.replace('_', '-')}", nearest(name, [*COMMON, *settings.model_fields])
        hint = f"did you mean {close!r}?" if close else "leave it out"
        raise ConfigError(f"a model of the task {row.name} is served without {flag}", where=flag, hint=hint)
    return settings.read({name: value for name, value in options.items() if value is not None}, where="serve")


def _token(file: str | Path | None) -> str | None:
    """The token, which must be what a header can hold."""
    where = f"${TOKEN}" if file is None else str(file)
    try:
        token = os.environ.get(TOKEN) if file is None else read_text(path_of(file)).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the token cannot be read: {error}", where=where, hint="name a file that holds it") from None
    if token is not None and not (token.isascii() and token.isprintable() and token and " " not in token):
        raise ConfigError("the token is empty, or has more than letters, digits and signs", where=where, hint=NEW_TOKEN)
    return token


def _require_token(token: str | None, loopback: bool) -> None:
    """Refuse a token that can be guessed, and an address that others can reach without one.

    A proxy brings strangers to a loopback address, too.
    """
    if token is not None and (len(token) < TOKEN_LENGTH or len(set(token)) < TOKEN_VARIETY):
        least = f"take at least {TOKEN_LENGTH} characters, {TOKEN_VARIETY} of them different"
        raise ConfigError("the token can be guessed", where=f"--token-file or ${TOKEN}", hint=f"{least}; {NEW_TOKEN}")
    if token is None and not loopback:
        hint = f"give --token-file FILE or ${TOKEN}, or leave --host at 127.0.0.1. {NEW_TOKEN.capitalize()}"
        raise ConfigError("others can reach this address, which needs a token", where="--host", hint=hint)


def _threads_of_each(workers: int, *, exported: bool) -> int:
    """The threads of each worker; from here on this process has none, as only such a one can be forked.

    Raises:
        ConfigError: there can be no workers here.
    """
    require_at_most("--workers", workers, MOST_WORKERS)
    if not hasattr(os, "fork"):
        raise ConfigError(
            "several workers need a system that forks", where="--workers", hint="leave it out, or use Linux or macOS"
        )
    if (device := pick_device().type) != "cpu" and not exported:
        hint = "leave it out: one process keeps that busy"
        raise ConfigError(f"several workers share a processor, and this model runs on {device}", where="--workers", hint=hint)
    if threading.current_thread() is not threading.main_thread():
        raise ConfigError(
            "several workers can only be started by a program's main thread", where="--workers", hint="leave it out"
        )
    threads = max(1, torch.get_num_threads() // workers)
    torch.set_num_threads(1)
    return threads


def _is_exported(model: str | Path) -> bool:
    """Whether an engine answers, which computes on the processor."""
    return graph_of(model) is not None or is_exported_translator(model)

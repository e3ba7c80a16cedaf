"""Serving a model over HTTP."""

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitrail.checks import require_at_most, require_positive
from vitrail.deploy.server.http.origins import origin_of
from vitrail.errors import ConfigError, VitrailError, nearest
from vitrail.files import path_of, read_text
from vitrail.runtime.output import name_of
from vitrail.task_registry import TaskRow

if TYPE_CHECKING:
    from vitrail.deploy.server.operation import ServerSettings
    from vitrail.deploy.server.service import Service

TOKEN = "VITRAIL_TOKEN"
"""Environment variable that holds the token."""
NEW_TOKEN = "make one: python -c 'import secrets; print(secrets.token_urlsafe())'"
TOKEN_LENGTH, TOKEN_VARIETY = 16, 5
"""Minimum number of characters in a token, and of different characters."""
MOST_WORKERS = 64


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
    """Serve a model over HTTP until a signal comes; return the signal's number once every accepted request is answered.

    Args:
        model: a run folder, a model folder, a weights file, a hub id or an exported model.
        host: an address or a name of this machine. An address that other machines can reach needs a token.
        port: the port; 0 means any free one.
        token_file: a file with the token, at least 16 characters; by default ``VITRAIL_TOKEN`` in the environment holds it.
        allow_origins: origins of web pages, such as ``https://shop.example``, that may send requests from a browser.
        workers: number of processes, each with its own copy of the model and an equal part of the cores. Two or more are run
            by uvicorn's process manager: a program that starts them needs ``if __name__ == "__main__"``, and ``on_answer``
            must be a function at the top level of a module.
        on_start: called with the server's URL, once it listens.
        on_answer: called with a line for an access log after every request.
        options: options of the model's task. All tasks accept ``limits``, a `vitrail.deploy.server.http.limits.Limits`. Image
            models accept ``precision``, and if exported ``engine``, as in `vitrail.predict`; classifiers also ``reject``,
            segmenters ``window``.

    Raises:
        ConfigError: the extra ``serve`` is not installed, a token is missing or weak, or the task has no such option.
        ModelFileError: the model is missing, damaged, refused, or returns feature vectors only.
        VitrailError: the server cannot listen at the address, or requests were not answered before the end.
    """
    require_positive(**{"--workers": workers})
    require_at_most("--workers", workers, MOST_WORKERS)
    try:
        from vitrail.deploy.bench.engines import ENGINES
        from vitrail.deploy.server import running
        from vitrail.deploy.server.http.app import application  # noqa: F401 - imports all that the extra installs
    except ImportError as error:
        hint = "pip install 'vitrail[serve]'"
        raise ConfigError(f"the extra serve is not installed: {error}", where="vitrail serve", hint=hint) from None
    token, origins = _token(token_file), frozenset(map(origin_of, allow_origins))
    with running.listen(host, port) as bound:
        _require_token(token, running.is_loopback(bound))
        address = running.address(bound)
        build = Build(str(model), options, token, origins, on_answer)
        service, app = build.opened()
        if workers == 1:
            return running.run(app, service, bound, lambda: on_start(address))
        limits, engine = service.limits, service.described()["engine"].split()[0]
        del service, app  # opened only to find errors early; each worker opens its own
        chosen = {"engine": engine} if engine in ENGINES else {}
        build = replace(build, options={**options, **chosen}, workers=workers)
        return running.run_workers(build, workers, limits, bound, lambda: on_start(address))


@dataclass(frozen=True)
class Build:
    """All values that a process needs to build its application. Each worker gets a pickled copy."""

    model: str
    options: dict[str, Any]
    token: str | None
    origins: frozenset[str]
    on_answer: Callable[[str], None] | None
    workers: int = 1

    def opened(self) -> "tuple[Service, Any]":
        """Return the service and its application; raises `VitrailError` for a bad model or bad options."""
        from vitrail.deploy.server.http.access import Access
        from vitrail.deploy.server.http.app import application
        from vitrail.deploy.server.opening import task_of
        from vitrail.deploy.server.service import Service

        row, opened = task_of(self.model)
        settings = _settings(row, self.options)
        served = row.module("service").open_served(opened, settings)
        service = Service(served, name_of(self.model), str(os.getpid()) if self.workers > 1 else "")
        return service, application(service, Access(self.token, self.origins), self.on_answer)

    def __call__(self) -> Any:
        """Return the application of a worker, ready for requests; on an error the process exits with `STARTUP_FAILURE`."""
        import torch
        from uvicorn.config import STARTUP_FAILURE

        try:
            torch.set_num_threads(max(1, torch.get_num_threads() // self.workers))
            service, app = self.opened()
            service.start()
            gc.collect()
            gc.freeze()
            threading.Thread(target=_end_with_parent, daemon=True).start()
        except VitrailError as error:
            sys.stderr.write(f"{error}\n")
            sys.exit(STARTUP_FAILURE)
        return app


def _end_with_parent() -> None:
    """Stop this worker gracefully when the process that manages it is killed."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


COMMON = [name for name, parameter in signature(serve).parameters.items() if parameter.kind == parameter.KEYWORD_ONLY]
"""Names of the options of any server."""


def _settings(row: TaskRow, options: dict[str, Any]) -> "ServerSettings":
    """Return the task's settings from ``options``; raises `ConfigError` for an option that the task does not have."""
    settings: type[ServerSettings] = row.module("service").Settings
    for name in options.keys() - settings.model_fields.keys():
        flag, close = f"--{name.replace('_', '-')}", nearest(name, [*COMMON, *settings.model_fields])
        hint = f"did you mean {close!r}?" if close else "leave it out"
        raise ConfigError(f"a server of the task {row.name} has no option {flag}", where=flag, hint=hint)
    return settings.read({name: value for name, value in options.items() if value is not None}, where="serve")


def _token(file: str | Path | None) -> str | None:
    """Return the token; raises `ConfigError` if it cannot be sent in an HTTP header."""
    where = f"${TOKEN}" if file is None else str(file)
    try:
        token = os.environ.get(TOKEN) if file is None else read_text(path_of(file)).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the token cannot be read: {error}", where=where, hint="give a file that holds the token") from None
    if token is not None and not (token.isascii() and token.isprintable() and token and " " not in token):
        raise ConfigError("the token is empty, or has spaces or characters outside ASCII", where=where, hint=NEW_TOKEN)
    return token


def _require_token(token: str | None, loopback: bool) -> None:
    """Raise `ConfigError` for a weak token, and for an address that other machines can reach without a token.

    A weak token is refused for a loopback address, too, as a proxy may make it public.
    """
    if token is not None and (len(token) < TOKEN_LENGTH or len(set(token)) < TOKEN_VARIETY):
        least = f"use at least {TOKEN_LENGTH} characters, {TOKEN_VARIETY} of them different"
        raise ConfigError("the token is easy to guess", where=f"--token-file or ${TOKEN}", hint=f"{least}; {NEW_TOKEN}")
    if token is None and not loopback:
        hint = f"give --token-file FILE or ${TOKEN}, or leave --host at 127.0.0.1. {NEW_TOKEN.capitalize()}"
        raise ConfigError("other machines can reach this address, so it needs a token", where="--host", hint=hint)

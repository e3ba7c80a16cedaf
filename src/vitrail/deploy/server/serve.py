"""A model behind HTTP."""

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
"""Name of the token in the environment."""
NEW_TOKEN = "make one: python -c 'import secrets; print(secrets.token_urlsafe())'"
TOKEN_LENGTH, TOKEN_VARIETY = 16, 5
"""Characters of a token, and different ones among them, at least."""
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
    """Answer over HTTP until a signal comes and every accepted request is answered. Return the signal's number.

    Args:
        model: a run folder, a model folder, a file of weights, a hub id or an exported model.
        host: an address or a name of this machine. An address that other machines can reach needs a token.
        port: 0 is for any that is free.
        token_file: holds the token, of at least 16 characters; by default it is in the environment's ``VITRAIL_TOKEN``.
        allow_origins: addresses of pages, such as ``https://shop.example``, that may ask from a browser; others may not.
        workers: processes that answer, each with its own copy of the model and its share of the cores. From two on they are run
            by uvicorn's process manager: a program that starts them guards itself by ``if __name__ == "__main__"``, and
            ``on_answer`` is a function of a module.
        on_start: called with the address, once it listens.
        on_answer: called with a line for an access log after every request.
        options: of the model's task. All take ``limits``, the bounds of requests: a `vitrail.deploy.server.http.limits.Limits`.
            A model of images takes ``precision``, and with an exported one ``engine``, as in `vitrail.predict`; one of classes
            takes ``reject``, too.

    Raises:
        ConfigError: the extra is not installed, a token is missing or can be guessed, or the task has no such option.
        ModelFileError: the model is missing, damaged, refused, or gives vectors.
        VitrailError: the address cannot be listened at, or requests were given up at the end.
    """
    require_positive(**{"--workers": workers})
    require_at_most("--workers", workers, MOST_WORKERS)
    try:
        from vitrail.deploy.bench.engines import ENGINES
        from vitrail.deploy.server import running
        from vitrail.deploy.server.http.app import application  # noqa: F401 - imports all that the extra installs
    except ImportError as error:
        hint = "pip install 'vitrail[serve]'"
        raise ConfigError(f"the server needs an extra: {error}", where="vitrail serve", hint=hint) from None
    token, origins = _token(token_file), frozenset(map(origin_of, allow_origins))
    with running.listen(host, port) as bound:
        _require_token(token, running.is_loopback(bound))
        address = running.address(bound)
        build = Build(str(model), options, token, origins, on_answer)
        service, app = build.opened()
        if workers == 1:
            return running.run(app, service, bound, lambda: on_start(address))
        limits, engine = service.limits, service.described()["engine"].split()[0]
        del service, app  # opened to find what is wrong with it; each worker opens its own
        chosen = {"engine": engine} if engine in ENGINES else {}
        build = replace(build, options={**options, **chosen}, workers=workers)
        return running.run_workers(build, workers, limits, bound, lambda: on_start(address))


@dataclass(frozen=True)
class Build:
    """Everything that a process needs to build its application. Each worker gets a pickled copy."""

    model: str
    options: dict[str, Any]
    token: str | None
    origins: frozenset[str]
    on_answer: Callable[[str], None] | None
    workers: int = 1

    def opened(self) -> "tuple[Service, Any]":
        """Return the service and its application; raises a `VitrailError` of the model or the options."""
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
        """Return the application of a worker, ready to answer; an error ends the process as one that could not start."""
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
    """End this worker, in order, when the process that manages it was killed."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


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
    """Return the token; raises `ConfigError` where a header cannot hold it."""
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

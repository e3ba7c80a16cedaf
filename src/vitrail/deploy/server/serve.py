"""A model behind HTTP."""

import gc
import os
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from vitrail.checks import refuse_given, require_at_most, require_positive
from vitrail.deploy.export.artefact import graph_of
from vitrail.deploy.predict import open_predictor
from vitrail.deploy.predictor import Predictor
from vitrail.deploy.server.http.limits import IMAGES, TEXTS, Limits
from vitrail.deploy.server.http.origins import origin_of
from vitrail.deploy.server.workers.shared_state import MOST_WORKERS, Board, Place
from vitrail.errors import ConfigError
from vitrail.files import path_of, read_text
from vitrail.runtime.device import Precision, pick_device
from vitrail.runtime.output import name_of
from vitrail.tasks.captioning.predictor import Writer
from vitrail.tasks.classification.predictor import of_classes
from vitrail.tasks.pose.predictor import PosePredictor
from vitrail.tasks.translation.predictor import is_translator, writer_of
from vitrail.weights.locate import is_captioner, is_exported_translator
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import open_model

if TYPE_CHECKING:
    from vitrail.deploy.server.images import Look
    from vitrail.deploy.server.service import Service

TOKEN = "VITRAIL_TOKEN"
"""The environment's name for the token."""
NEW_TOKEN = "make one: python -c 'import secrets; print(secrets.token_urlsafe())'"
TOKEN_LENGTH, TOKEN_VARIETY = 16, 5
"""Characters of a token, and different ones among them, at least."""
Opened = Callable[[Place], "Service[Any, Any]"]
"""Makes what answers in one process; what all can share has been opened before."""
LookOf = Callable[[TrainedModel], "tuple[Look | None, str]"]
"""Gives the function that computes a model's attention maps; or why there is none."""


def serve(
    model: str | Path,
    *,
    look_of: LookOf,
    relevance_of: LookOf | None = None,
    joints_of: LookOf | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    token_file: str | Path | None = None,
    allow_origins: Sequence[str] = (),
    precision: Precision | None = None,
    engine: str = "auto",
    reject: bool = False,
    limits: Limits | None = None,
    workers: int = 1,
    on_start: Callable[[str], None] = lambda address: None,
    on_answer: Callable[[str], None] | None = None,
) -> int:
    """Answer over HTTP until a signal comes and everything that was let in is answered. Gives the signal's number.

    Args:
        model: a run folder, a model folder, a file of weights, a hub id or an exported model; it gives classes or
            joints, translates, or writes about images.
        look_of: gives the function that computes attention maps.
        relevance_of: and the function that computes what speaks for the best label; without it only attention is shown.
        joints_of: of a model that finds joints, gives the function that computes where their queries look, in place of both.
        host: an address or a name of this machine. One that others can reach needs a token.
        port: 0 is for any that is free.
        token_file: holds the token, of at least 16 characters; by default it is in the environment's ``VITRAIL_TOKEN``.
        allow_origins: addresses of pages, such as ``https://shop.example``, that may ask from a browser; others may not.
        precision, engine: as in `open_predictor`; a translator has but one of each.
        reject: of a model of classes, whether images are rejected; see `vitrail.predict`.
        limits: what the server takes on; by default `IMAGES` or `TEXTS` of `vitrail.deploy.server.http.limits`.
        workers: processes that answer, which share the processor's cores. From two on they are forks of this process, in which
            torch must not have computed yet: one that dies is replaced, and the others go on.
        on_start: called with the address, once it listens.
        on_answer: called with a line for an access log after every request.

    Raises:
        ConfigError: the extra is not installed, or a token is missing or can be guessed.
        ModelFileError: the model is missing, damaged, refused, or has neither classes nor joints.
        VitrailError: the address cannot be listened at, or requests were given up at the end.
    """
    require_positive(**{"--workers": workers})
    texts = is_translator(model)
    captions = not texts and is_captioner(model)
    if texts:
        given = {"--precision": precision is not None, "--engine": engine not in ("auto", "torch")}
        refuse_given("a translator answers as it is, in Python or exported", {**given, "--reject": reject})
    elif captions:
        refuse_given("a captioner writes in Python", {"--engine": engine not in ("auto", "torch"), "--reject": reject})
    try:
        from vitrail.deploy.server.http.access import Access
        from vitrail.deploy.server.http.app import application
        from vitrail.deploy.server.workers import running
        from vitrail.deploy.server.workers.connections import Door
        from vitrail.deploy.server.workers.supervisor import Supervisor
    except ImportError as error:
        hint = "pip install 'vitrail[serve]'"
        raise ConfigError(f"the server needs an extra: {error}", where="vitrail serve", hint=hint) from None
    token, origins = _token(token_file), frozenset(map(origin_of, allow_origins))
    with running.listen(host, port) as bound:
        _require_token(token, running.is_loopback(bound))
        limits, address = limits or (TEXTS if texts else IMAGES), running.address(bound)

        def answer(place: Place, door: socket.socket, ready: Callable[[], None]) -> int:
            service = opened(place)
            return running.run(application(service, Access(token, origins), on_answer), service, door, ready)

        threads = 0 if workers == 1 else _threads_of_each(workers, exported=_is_exported(model))
        looks = {"labels": look_of, "relevance": relevance_of, "joints": joints_of}
        if texts:
            opened = _of_texts(model, limits)
        elif captions:
            opened = _of_captions(model, limits, precision)
        else:
            opened = _of_images(model, limits, looks, precision, engine, reject)
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
            return Supervisor(Board(workers), work, bound, running.patience(limits)).run(lambda: on_start(address))
        finally:
            gc.unfreeze()
            torch.set_num_threads(workers * threads)


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


def _of_texts(model: str | Path, limits: Limits) -> Opened:
    from vitrail.tasks.translation.service import TextService

    name = name_of(str(model))
    if is_exported_translator(model):  # whose engine has threads: each worker opens its own
        return lambda place: TextService(writer_of(model), name, limits, place)
    writer = writer_of(model)
    return lambda place: TextService(writer, name, limits, place)


def _of_captions(model: str | Path, limits: Limits, precision: Precision | None) -> Opened:
    from vitrail.tasks.captioning.service import CaptionService

    writer = Writer(model, precision=precision or "fp32")
    return lambda place: CaptionService(writer, name_of(str(model)), limits, place)


def _of_images(
    model: str | Path,
    limits: Limits,
    looks: "dict[str, LookOf | None]",
    precision: Precision | None,
    engine: str,
    reject: bool,
) -> Opened:
    """With the functions that compute maps, or why there are none."""

    def chosen(predictor: Predictor) -> Predictor:
        return of_classes(predictor).rejecting() if reject else predictor

    name = name_of(str(model))
    if graph_of(model) is not None:
        unseen = "an exported model keeps its attention to itself"
        return lambda place: _service(chosen(_predictor(model, precision, engine, place)), name, limits, place, unseen=unseen)
    trained = open_model(model)
    predictor = chosen(open_predictor(trained, precision, engine=engine))
    finds_joints = isinstance(predictor, PosePredictor)
    look, unseen = _seen(looks["joints" if finds_joints else "labels"], trained)
    relevance = None if finds_joints else _seen(looks["relevance"], trained)[0]
    return lambda place: _service(predictor, name, limits, place, look, unseen, relevance)


def _seen(of: "LookOf | None", trained: TrainedModel) -> "tuple[Look | None, str]":
    return (None, "") if of is None else of(trained)


def _service(
    predictor: Predictor,
    name: str,
    limits: Limits,
    place: Place,
    look: "Look | None" = None,
    unseen: str = "",
    relevance: "Look | None" = None,
) -> "Service[Any, Any]":
    """What answers in one process, by what the model gives."""
    from vitrail.deploy.server.images import ImageService
    from vitrail.tasks.pose.server.service import PoseService

    if isinstance(predictor, PosePredictor):
        return PoseService(predictor, name, limits, look, unseen, place)
    return ImageService(predictor, name, limits, look, unseen, relevance, place)


def _predictor(model: str | Path, precision: Precision | None, engine: str, place: Place) -> Predictor:
    """Of an exported model; the first worker finds out which engine is the quickest, and the others believe it."""
    found: Predictor = open_predictor(model, precision, engine=place.board.head.engine.decode() or engine)
    place.board.head.engine = found.name.split()[0].encode()
    return found

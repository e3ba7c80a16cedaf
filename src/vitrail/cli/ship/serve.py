"""``vitrail serve``."""

import contextlib
import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from vitrail.cli.console import Whole, note
from vitrail.cli.flags import Engine, ModelOrExported, Precision
from vitrail.errors import ConfigError

if TYPE_CHECKING:
    from vitrail.deploy.server.http.limits import Limits

HOUR = 3600


def serve(
    model: ModelOrExported,
    *,
    port: Whole = 8000,
    host: str = "127.0.0.1",
    token_file: str | None = None,
    allow_origin: list[str] | None = None,
    engine: Engine = "auto",
    precision: Precision = None,
    batch_size: Whole = 16,
    queue: Whole = 256,
    deadline: float = 10.0,
    workers: Whole = 1,
    max_images: Whole | None = None,
    max_megapixels: Whole | None = None,
    max_texts: Whole | None = None,
    max_characters: Whole | None = None,
    max_mebibytes: Whole | None = None,
    reject: bool = False,
    window: str | None = None,
    access_log: bool = False,
) -> None:
    """Serve a model over HTTP, with a web page: labels, captions, joints or masks of images, translations, or images from noise.

    The server stops on Ctrl-C or SIGTERM, after answering all accepted requests. Clients on other machines send the token as
    Authorization: Bearer TOKEN. The token is read from a file or from the environment, since other users of this machine can see
    the arguments of a command.

    Parameters
    ----------
    port
        The port; 0 for any free port.
    host
        An address of this machine, or 0.0.0.0 for all. Any address but the default can be reached from other machines and
        needs a token.
    token_file
        The file with the token. Default: the token in $VITRAIL_TOKEN, if it is set.
    allow_origin
        The address of web pages that may send requests from a browser, such as https://shop.example; may be given several
        times. Default: only the server's own page.
    batch_size
        Largest number of images, people or pieces of texts that are computed together; of images from noise, in one pass.
    queue
        Largest number of images, people or pieces of texts in the server; further ones are refused.
    deadline
        Seconds until a request must be answered.
    workers
        Number of processes, which share the cores. With two or more, a process that dies is replaced while the others continue.
    max_images
        Images per request, read or made, or people for pose models. Default: 32.
    max_megapixels
        Millions of pixels per image; decoding a million may take 16 MB of memory. Default: 25.
    max_texts
        Texts per request. Default: 32.
    max_characters
        Characters per text. Default: 5000.
    max_mebibytes
        Size of a request in MiB. Default: 20; for a translator 1.
    reject
        Give an image no label if its most probable label is below the threshold from the validation images: see docs/deploy.md.
    window
        For segmenters: height and width of windows in which images are segmented, 512 or 512x384, rounded up to what the model
        takes. Default: the whole image, and windows of the model's size for an image of over four megapixels, which
        may need a longer --deadline.
    access_log
        Write a line for each request to stderr: time, address, method, path, status, bytes, milliseconds.
    """
    from vitrail.weights.locate import require_possible, translates

    require_possible(model)  # before torch is imported
    from vitrail.checks import require_at_most, require_not_negative, require_positive
    from vitrail.deploy.server.http.origins import origin_of

    origins = [origin_of(url) for url in allow_origin or []]
    require_not_negative(**{"--port": port})
    require_at_most("--port", port, 65_535)
    if not 0 < deadline <= HOUR:
        raise ConfigError(f"--deadline is {deadline}", where="--deadline", hint="give seconds above 0, at most 3600")
    require_positive(**{"--batch-size": batch_size, "--queue": queue, "--workers": workers})
    sizes = {
        "--max-images": max_images,
        "--max-megapixels": max_megapixels,
        "--max-texts": max_texts,
        "--max-characters": max_characters,
        "--max-mebibytes": max_mebibytes,
    }
    texts = translates(model)
    limits = _limits(texts, {name: size for name, size in sizes.items() if size is not None}, queue)
    from vitrail import api
    from vitrail.cli.ship.calibration import measure_before

    measure_before(model)
    options = {"precision": precision, "engine": None if engine == "auto" else engine, "reject": reject or None, "window": window}
    received = api.serve(
        model,
        host=host,
        port=port,
        token_file=token_file,
        allow_origins=origins,
        workers=workers,
        on_start=lambda address: note(f"listening at {address}"),
        on_answer=_noted if access_log else None,
        limits=replace(limits, waiting=queue, batch=batch_size, deadline=deadline),
        **{name: value for name, value in options.items() if value is not None},
    )
    if received == signal.SIGINT:
        sys.exit(128 + received)


def _noted(line: str) -> None:
    """Write a line to stderr; a closed stderr is no error."""
    with contextlib.suppress(OSError, ValueError):
        note(line)


def _limits(texts: bool, given: dict[str, int], queue: int) -> "Limits":
    """Return the limits of a request; raises `ConfigError` for a limit that does not apply to this kind of model."""
    from vitrail.checks import refuse_given, require_at_most, require_positive
    from vitrail.data.images.decode import MAX_PIXELS
    from vitrail.deploy.server.http.limits import IMAGES, MEBIBYTE, MILLION, TEXTS

    foreign = ("--max-images", "--max-megapixels") if texts else ("--max-texts", "--max-characters")
    what = "a translator takes texts, not images" if texts else "a model of images takes no texts"
    refuse_given(what, {name: name in given for name in foreign})
    require_positive(**given)
    default, flag = (TEXTS, "--max-texts") if texts else (IMAGES, "--max-images")
    items = given.get(flag, min(default.items, queue))
    require_at_most(flag, items, queue)
    body = given["--max-mebibytes"] * MEBIBYTE if "--max-mebibytes" in given else default.body
    pixels = given["--max-megapixels"] * MILLION if "--max-megapixels" in given else default.pixels
    require_at_most("--max-megapixels", pixels // MILLION, MAX_PIXELS // MILLION)
    characters = given.get("--max-characters", default.characters)
    return replace(default, body=body, items=items, pixels=pixels, characters=characters)

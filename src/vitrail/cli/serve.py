"""``vitrail serve``."""

import signal
import sys
from typing import Literal

from vitrail.cli.console import Whole, note
from vitrail.errors import ConfigError

MEBIBYTE = 2**20
HOUR = 3600


def serve(
    model: str,
    *,
    port: Whole = 8000,
    host: str = "127.0.0.1",
    token_file: str | None = None,
    engine: Literal["auto", "torch", "onnxruntime", "openvino"] = "auto",
    precision: Literal["fp32", "bf16"] | None = None,
    batch_size: Whole = 16,
    queue: Whole = 256,
    deadline: float = 10.0,
    max_images: Whole = 32,
    max_mebibytes: Whole = 20,
) -> None:
    """Answer over HTTP: labels of images, where the model looked, and a page to try it on.

    It stops on Ctrl-C or SIGTERM, when everything it has let in is answered. Whoever reaches it from elsewhere sends the token
    as Authorization: Bearer TOKEN; it is read from a file or from the environment, as all may see the words of a command.

    Parameters
    ----------
    model
        A run folder, a model folder, an exported model, a file of weights, a hub id or a name of vitrail models --pretrained.
    port
        0 is for any that is free.
    host
        An address of this machine; all of them: 0.0.0.0. Other machines can reach any but the default: it needs a token.
    token_file
        The file that holds the token. Default: the token in $VITRAIL_TOKEN, if it is set.
    engine
        What runs an exported model; auto takes the quicker one.
    precision
        fp32, or bf16: about twice as fast on processors that have it, exact to two or three digits. Default: fp32; an exported
        model has its own.
    batch_size
        Images that are computed together at most.
    queue
        Images that are in the server at most; further ones are refused.
    deadline
        Seconds to an answer.
    max_images
        Images of a request.
    max_mebibytes
        The size of a request.
    """
    from vitrail.weights.locate import require_possible

    require_possible(model)  # before torch is imported
    from vitrail import api
    from vitrail.checks import require_at_most, require_not_negative, require_positive
    from vitrail.deploy.server.limits import Limits

    require_not_negative(**{"--port": port})
    require_at_most("--port", port, 65_535)
    require_positive(**{"--batch-size": batch_size, "--queue": queue})
    if not 0 < deadline <= HOUR:
        raise ConfigError(f"--deadline is {deadline}", where="--deadline", hint="give it a number of seconds, up to an hour")
    require_positive(**{"--max-images": max_images, "--max-mebibytes": max_mebibytes})
    require_at_most("--max-images", max_images, queue)
    limits = Limits(body=max_mebibytes * MEBIBYTE, images=max_images, waiting=queue, batch=batch_size, deadline=deadline)
    received = api.serve(
        model,
        host=host,
        port=port,
        token_file=token_file,
        engine=engine,
        precision=precision,
        limits=limits,
        on_start=lambda address: note(f"listening at {address}"),
    )
    if received == signal.SIGINT:
        sys.exit(128 + received)

"""A user's transform of training images: any callable, such as a torchvision transform."""

import random as python_random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vitrail.data.images.preparation import Preparation
from vitrail.errors import ConfigError
from vitrail.runtime.device import forks

Transform = Callable[[Image.Image], Any]
"""A function from the decoded image to an image, or to pixels (C, H, W) of the model's size, as an array or tensor."""


def transformed(
    transform: Transform, image: Image.Image, preparation: Preparation, random: np.random.Generator
) -> Image.Image | np.ndarray:
    """Apply ``transform`` to an image: return an image in the model's colours, or final pixels, uint8 (C, H, W).

    Floating-point pixels of 0…1 are scaled to 0…255. The generators of Python, NumPy and torch are seeded from ``random``, and
    restored afterwards.

    Raises:
        ConfigError: the transform returns anything else.
    """
    try:
        with _seeded(random):
            result = transform(image)
    except RuntimeError as error:
        if "forked subprocess" not in str(error):
            raise
        hint = "set data.workers to 0"
        raise ConfigError("the transform uses a GPU, and a worker process cannot", where="transform", hint=hint) from None
    if isinstance(result, Image.Image):
        return preparation.decode(result)
    if isinstance(result, Tensor):
        result = (result.float() if result.is_floating_point() else result).detach().cpu().numpy()
    if isinstance(result, np.ndarray):
        return _finished(result, (preparation.channels, *preparation.image_size))
    raise _refused(f"a {type(result).__name__}", "return a PIL image, an array or a tensor")


def _finished(pixels: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if pixels.shape != shape:
        raise _refused(f"pixels of shape {pixels.shape}", f"the model takes {shape}: resize, or return a PIL image")
    if pixels.dtype == np.uint8:
        return np.ascontiguousarray(pixels)
    if not np.issubdtype(pixels.dtype, np.floating):
        raise _refused(f"pixels of type {pixels.dtype}", "return uint8, or floating-point values of 0…1")
    if not (pixels.min() >= 0 and pixels.max() <= 1):
        what = f"values from {pixels.min():.3g} to {pixels.max():.3g}, not of 0…1"
        raise _refused(what, "remove the normalization: Vitrail normalizes the result")
    return np.ascontiguousarray(np.rint(pixels * 255).astype(np.uint8))


def _refused(what: str, hint: str) -> ConfigError:
    return ConfigError(f"the transform returns {what}", where="transform", hint=hint)


@contextmanager
def _seeded(random: np.random.Generator) -> Iterator[None]:
    seed = int(random.integers(2**32))
    python_state, numpy_state = python_random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            python_random.seed(seed)
            np.random.seed(seed)
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed GPUs, too
            yield
    finally:
        python_random.setstate(python_state)
        np.random.set_state(numpy_state)


def require_sendable(transform: Transform) -> None:
    """Raise `ConfigError` for a transform that cannot be pickled for worker processes; forked processes need no pickle."""
    if forks():
        return
    try:
        ForkingPickler.dumps(transform)
    except Exception as error:  # pickling fails with many types of errors
        what = f"the transform cannot be sent to worker processes: {error}"
        hint = "define it as a function of a module, not as a lambda or inner function, or set data.workers to 0"
        raise ConfigError(what, where="transform", hint=hint) from None

"""Errors of the export, each reduced to one clear line."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from vitrail.errors import VitrailError


class ExportError(VitrailError):
    """A graph that cannot be created, or whose outputs differ from the model's."""


def first_line(error: Exception) -> str:
    """Return the first line of a library's error; for OpenVINO's, which begin with source positions, the last line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[-1 if lines[0].startswith("Exception from ") else 0][:300]


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Silence exporters inside this context, and raise `ExportError` with ``what`` for any error of theirs."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir", "nncf", "openvino")]
    before = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    except VitrailError:
        raise
    except Exception as error:
        hint = "try another --to; --debug shows the complete error"
        raise ExportError(f"{what}: {first_line(error)}", where="export", hint=hint) from error
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)

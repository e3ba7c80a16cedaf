"""The libraries of the extra ``export``: imported when they are used, with their telemetry disabled."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vitrail.errors import ConfigError

os.environ["ORT_DISABLE_TELEMETRY"] = "1"
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # as if it were not installed
# Both lines must run before any import of the libraries. Otherwise ONNX Runtime would store an id in the user's cache and report
# its sessions over the network, and OpenVINO and NNCF would report their import.


@contextmanager
def extra(library: str) -> Iterator[None]:
    """Turn an `ImportError` inside this context into a `ConfigError` that names the extra."""
    try:
        yield
    except ImportError:
        raise ConfigError(f"{library} is not installed", where="export", hint="pip install 'vitrail[export]'") from None


def openvino() -> Any:
    """Import OpenVINO; raises `ConfigError` if it is not installed."""
    with extra("openvino"):
        import openvino
    return openvino


def onnxruntime() -> Any:
    """Import ONNX Runtime; raises `ConfigError` if it is not installed."""
    with extra("onnxruntime"):
        import onnxruntime
    return onnxruntime


def onnx() -> Any:
    """Import ONNX; raises `ConfigError` if it is not installed."""
    with extra("onnx"):
        import onnx
    return onnx

"""The libraries of the extra ``export``, each imported when it is used, and none of them reporting to anybody."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vitrail.errors import ConfigError

os.environ["ORT_DISABLE_TELEMETRY"] = "1"
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # as if that part were not installed
# Both before either library is imported, by us or by an exporter: ONNX Runtime would leave an identity in the user's cache and
# report its sessions over the network, OpenVINO and NNCF that they were imported.


@contextmanager
def extra(library: str) -> Iterator[None]:
    """Raise `ConfigError` that names the extra where a library cannot be imported."""
    try:
        yield
    except ImportError:
        raise ConfigError(f"{library} is not installed", where="export", hint="pip install 'vitrail[export]'") from None


def openvino() -> Any:
    """Return OpenVINO; raises `ConfigError` where it is not installed."""
    with extra("openvino"):
        import openvino
    return openvino


def onnxruntime() -> Any:
    """Return ONNX Runtime; raises `ConfigError` where it is not installed."""
    with extra("onnxruntime"):
        import onnxruntime
    return onnxruntime


def onnx() -> Any:
    """Return ONNX; raises `ConfigError` where it is not installed."""
    with extra("onnx"):
        import onnx
    return onnx

"""The files of an exported model, which may be a stranger's: checked before an engine opens them, and read for what they say."""

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitrail.deploy.bench.libraries import onnx, openvino
from vitrail.deploy.export.artefact import KEY, Description, Sides
from vitrail.deploy.problems import first_line
from vitrail.errors import ConfigError, ModelFileError
from vitrail.weights.formats.checksums import verified

LARGEST = {".onnx": 2**31, ".xml": 2**28}
"""Bytes of a graph: ONNX allows no more, and OpenVINO keeps the weights elsewhere."""
HINT = "export the model again"


@dataclass(frozen=True, slots=True)
class Signature:
    """The metadata, inputs and outputs of a graph."""

    text: str | None
    """Its description, if it is ours."""
    inputs: Sequence[tuple[str, str, Sides | None]]
    """Name, type and shape of each."""
    outputs: Sequence[Sides | None]


def description_in(graph: Path) -> Description:
    """The description that is stored in a graph, whose files no engine has opened yet.

    Raises:
        ModelFileError: it is no graph, damaged, of somebody else, names files elsewhere, or does not fit its description or the
            sums of its folder.
        ConfigError: the library that reads it is not installed.
    """
    with verified(graph.parent, sorted(file.name for file in graph.parent.glob(f"{glob.escape(graph.stem)}.*"))):
        return _description(graph)


def _description(graph: Path) -> Description:
    kind = graph.suffix.lower()
    read = _onnx if kind == ".onnx" else _openvino
    if (size := graph.stat().st_size) > LARGEST[kind]:
        raise ModelFileError(f"{graph.name} has {size:,} bytes, which is too large for a graph", where=graph, hint=HINT)
    try:
        signature = read(graph)
    except (ConfigError, ModelFileError):
        raise
    except Exception as error:  # the libraries raise many kinds
        raise ModelFileError(f"{graph.name} cannot be read: {first_line(error)}", where=graph, hint=HINT) from error
    about: Description = Description.of(signature.text, where=graph)
    _require_fit(signature, about, graph)
    return about


def _require_fit(signature: Signature, about: Description, graph: Path) -> None:
    """Refuse a graph that does not take the inputs that its description speaks of, or not give an answer for each label."""
    given, wanted = {name: shape for name, _, shape in signature.inputs}, about.inputs
    kinds = {name: kind for name, kind, _ in signature.inputs}
    problem = None
    if list(given) != list(wanted) or not all(_agree(given[name], shape) for name, (_, shape) in wanted.items()):
        described = " and ".join(f"{name} of the shape {shape}" for name, (_, shape) in wanted.items())
        problem = f"takes {[*given.values()]}, not {described}"
    elif wrong := [name for name, (kind, _) in wanted.items() if kinds[name] != kind]:
        problem = f"takes {kinds[wrong[0]]}, not {wanted[wrong[0]][0]}"
    elif len(signature.outputs) != 1 or not _agree(signature.outputs[0], about.answer_shape):
        problem = f"gives {[*signature.outputs]}, not {about.each.format(len(about.labels))}"
    if problem is not None:
        raise ModelFileError(f"the graph does not fit what it says of itself: it {problem}", where=graph, hint=HINT)


def _agree(found: Sides | None, wanted: Sides) -> bool:
    """Return whether two shapes can be the same."""
    if found is None:
        return True
    return len(found) == len(wanted) and all(a == b or None in (a, b) for a, b in zip(found, wanted, strict=True))


# ONNX


def _onnx(graph: Path) -> Signature:
    library = onnx()
    model = library.load(graph, load_external_data=False)
    newest = library.defs.onnx_opset_version()
    if any(not 0 < opset.version <= newest for opset in model.opset_import if opset.domain in ("", "ai.onnx")):
        raise ValueError(f"its operators are none of the versions 1 to {newest}")  # engines count up to any other
    context = library.checker.C.CheckerContext()
    context.ir_version, context.opset_imports = model.ir_version, {own.domain: own.version for own in model.opset_import}
    for node in model.graph.node:  # ONNX Runtime 1.31 crashes at a convolution without inputs
        library.checker.check_node(node, context)
    for tensor in _tensors(model, library.TensorProto):
        _require_inside(graph, {entry.key: entry.value for entry in tensor.external_data})
    proto = library.TensorProto
    kinds = {proto.FLOAT: "float32", proto.UINT8: "uint8", proto.INT64: "int64"}
    kept = {tensor.name for tensor in model.graph.initializer}  # early versions list their weights among the inputs, too
    inputs = [(value.type.tensor_type, value.name) for value in model.graph.input]
    return Signature(
        {entry.key: entry.value for entry in model.metadata_props}.get(KEY),
        [(name, kinds.get(kind.elem_type, "another type"), _shape(kind)) for kind, name in inputs if name not in kept],
        [_shape(value.type.tensor_type) for value in model.graph.output],
    )


def _shape(kind: Any) -> Sides | None:
    """Return the shape of a value in ONNX; None where it is unknown."""
    sides: Iterable[Any] = kind.shape.dim
    return tuple(side.dim_value if side.HasField("dim_value") else None for side in sides) if kind.HasField("shape") else None


def _tensors(message: Any, tensor: type[Any]) -> Iterator[Any]:
    """Every tensor in a message, however deep, whose numbers lie in another file."""
    rest = [message]
    while rest:
        message = rest.pop()
        if isinstance(message, tensor):
            if message.external_data or message.data_location == tensor.EXTERNAL:
                yield message
            continue
        for field, value in message.ListFields():
            if field.message_type is not None:
                rest.extend([value] if hasattr(value, "ListFields") else value)


def _require_inside(graph: Path, told: dict[str, str]) -> None:
    """Refuse a tensor whose numbers are not in a file of the graph's own folder.

    Engines would read what else this process may read; of a location that means a place in its memory ONNX Runtime's own name
    ``*/_ORT_MEM_ADDR_/*`` is one, at which OpenVINO 2026.4 crashes.
    """
    name = told.get("location", "")
    if not name or Path(name).name != name or "\\" in name:
        what = f"its weights are said to be in {name!r}, which is no plain file name"
        raise ModelFileError(what, where=graph, hint="it may be an attack; take a model from somebody whom you trust")
    size = require_beside(graph, name)
    offset, length = (_count(told.get(key, "0")) for key in ("offset", "length"))
    if offset is None or length is None or offset + length > size:
        what = f"its weights are said to be where {name}, of {size:,} bytes, has none"
        raise ModelFileError(what, where=graph, hint=HINT)


def _count(text: str) -> int | None:
    """A number of bytes; None of what is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def require_beside(graph: Path, name: str) -> int:
    """The size of a file of weights that lies beside a graph.

    Raises:
        ModelFileError: it is missing, no regular file, or a link to somewhere else.
    """
    file = graph.parent / name
    if not file.is_file():
        raise ModelFileError(f"{name}, which holds the weights of {graph.name}, is missing", where=file, hint="copy all files")
    places = {os.path.realpath(graph.parent), os.path.dirname(os.path.realpath(graph))}  # the hub's cache keeps links to files
    if os.path.dirname(os.path.realpath(file)) not in places:
        hint = "put the file itself in its place, if you trust it"
        raise ModelFileError(f"{name} is a link to another folder", where=file, hint=hint)
    return file.stat().st_size


# OpenVINO


def _openvino(graph: Path) -> Signature:
    require_beside(graph, graph.with_suffix(".bin").name)
    model = openvino().Core().read_model(graph)
    return Signature(
        str(model.get_rt_info(KEY).value) if model.has_rt_info(KEY) else None,
        [(given.get_any_name(), _kind(given), _partial(given)) for given in model.inputs],
        [_partial(given) for given in model.outputs],
    )


def _kind(value: Any) -> str:
    """The type of a value in OpenVINO."""
    return {"f32": "float32", "u8": "uint8", "i64": "int64"}.get(value.get_element_type().get_type_name(), "another type")


def _partial(value: Any) -> Sides | None:
    """The shape of a value in OpenVINO."""
    shape = value.get_partial_shape()
    return None if shape.rank.is_dynamic else tuple(None if side.is_dynamic else side.get_length() for side in shape)

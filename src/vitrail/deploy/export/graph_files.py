"""The files of an exported model: untrusted, so checked before an engine opens them; and the metadata in them."""

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
"""Most bytes of a graph file: ONNX's limit, and less for OpenVINO, which stores weights in another file."""
HINT = "export the model again"


@dataclass(frozen=True, slots=True)
class Signature:
    """The metadata, inputs and outputs of a graph."""

    text: str | None
    """The description that Vitrail stored, as JSON; None in a graph of another program."""
    inputs: Sequence[tuple[str, str, Sides | None]]
    """Name, type ("float32", "uint8", "int64" or "another type") and shape of each input."""
    outputs: Sequence[Sides | None]


def description_in(graph: Path) -> Description:
    """Check the files of a graph, and return the description that is stored in it.

    Raises:
        ModelFileError: the file is no graph, is damaged, is not Vitrail's, names files elsewhere, or does not fit its
            description or the checksums of its folder.
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
    except Exception as error:  # the libraries raise many kinds of errors
        raise ModelFileError(f"{graph.name} cannot be read: {first_line(error)}", where=graph, hint=HINT) from error
    about: Description = Description.of(signature.text, where=graph)
    _require_fit(signature, about, graph)
    return about


def _require_fit(signature: Signature, about: Description, graph: Path) -> None:
    """Raise `ModelFileError` for a graph whose inputs or output have another type or shape than in its description."""
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
        raise ModelFileError(f"the graph does not fit its description: it {problem}", where=graph, hint=HINT)


def _agree(found: Sides | None, wanted: Sides) -> bool:
    """Return whether two shapes can be equal; None fits any side."""
    if found is None:
        return True
    return len(found) == len(wanted) and all(a == b or None in (a, b) for a, b in zip(found, wanted, strict=True))


# ONNX


def _onnx(graph: Path) -> Signature:
    library = onnx()
    model = library.load(graph, load_external_data=False)
    newest = library.defs.onnx_opset_version()
    if any(not 0 < opset.version <= newest for opset in model.opset_import if opset.domain in ("", "ai.onnx")):
        raise ValueError(f"its operator set is not one of the versions 1 to {newest}")  # engines would loop up to any version
    context = library.checker.C.CheckerContext()
    context.ir_version, context.opset_imports = model.ir_version, {own.domain: own.version for own in model.opset_import}
    for node in model.graph.node:  # ONNX Runtime 1.31 crashes at a convolution without inputs
        library.checker.check_node(node, context)
    for tensor in _tensors(model, library.TensorProto):
        _require_inside(graph, {entry.key: entry.value for entry in tensor.external_data})
    proto = library.TensorProto
    kinds = {proto.FLOAT: "float32", proto.UINT8: "uint8", proto.INT64: "int64"}
    kept = {tensor.name for tensor in model.graph.initializer}  # old ONNX versions list weights as inputs, too
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
    """Yield every tensor in a protobuf message, at any depth, whose data are in another file."""
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


def _require_inside(graph: Path, entry: dict[str, str]) -> None:
    """Raise `ModelFileError` for a tensor whose data are not in a file of the graph's own folder.

    Engines would read any file that this process may read. ONNX Runtime even has a location for addresses in memory,
    ``*/_ORT_MEM_ADDR_/*``, at which OpenVINO 2026.4 crashes.
    """
    name = entry.get("location", "")
    if not name or Path(name).name != name or "\\" in name:
        what = f"the graph's weights are stored in {name!r}, which is not a plain file name"
        raise ModelFileError(what, where=graph, hint="it may be an attack; use a model from a source that you trust")
    size = require_beside(graph, name)
    offset, length = (_count(entry.get(key, "0")) for key in ("offset", "length"))
    if offset is None or length is None or offset + length > size:
        what = f"the graph's weights are outside of {name}, which has {size:,} bytes"
        raise ModelFileError(what, where=graph, hint=HINT)


def _count(text: str) -> int | None:
    """Parse a number of bytes; None if the text is not one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def require_beside(graph: Path, name: str) -> int:
    """Return the size in bytes of a weights file beside a graph.

    Raises:
        ModelFileError: the file is missing, is not a regular file, or is a link to another folder.
    """
    file = graph.parent / name
    if not file.is_file():
        raise ModelFileError(f"{name}, which holds the weights of {graph.name}, is missing", where=file, hint="copy all files")
    places = {os.path.realpath(graph.parent), os.path.dirname(os.path.realpath(graph))}  # the hub's cache consists of links
    if os.path.dirname(os.path.realpath(file)) not in places:
        hint = "if you trust the file, replace the link by the file itself"
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

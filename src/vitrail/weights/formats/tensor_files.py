"""Files of tensors: safetensors and NumPy's .npz are read; pickles are refused unless the user trusts them."""

import json
import math
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from vitrail.errors import ModelFileError
from vitrail.files import is_text
from vitrail.weights.formats.safe_files import refuse_pickle, some
from vitrail.weights.keys import words

TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
COMPUTED = ("relative_position_index", "position_ids")
"""Last words of names of integer buffers in older files; every model can compute them."""
OPTIMIZER = "optim"
"""First letters of the key of an optimizer's state, which is skipped."""
DEEPEST = 4
"""Most levels of nested dictionaries that are searched."""
PASSED_OVER = words(
    """
    argparse.Namespace builtins.dict builtins.float builtins.frozenset builtins.int builtins.list builtins.range builtins.slice
    datetime.date datetime.datetime datetime.time datetime.timedelta datetime.timezone decimal.Decimal fractions.Fraction
    mmengine.logging.history_buffer.HistoryBuffer numpy.core.multiarray._reconstruct numpy.core.multiarray.scalar
    numpy._core.multiarray._reconstruct numpy._core.multiarray.scalar numpy.dtype numpy.ndarray
    numpy.random._pickle.__bit_generator_ctor numpy.random._pickle.__generator_ctor numpy.random._pickle.__randomstate_ctor
    pathlib.PosixPath pathlib.PurePosixPath pathlib.PureWindowsPath pathlib.WindowsPath pathlib._local.PosixPath
    pathlib._local.PurePosixPath pathlib._local.PureWindowsPath pathlib._local.WindowsPath types.SimpleNamespace uuid.SafeUUID
    uuid.UUID
    """
)
"""Types of plain values that training scripts save beside weights. These types are never imported or called."""
NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
"""Types of tensors, by their names in a safetensors file."""
MOST_PACKED = 8
"""The largest accepted ratio of unpacked to packed bytes: weights hardly compress."""


class _PassedOver:
    """A placeholder for a value in a pickle that is not read."""

    def __init__(self, *content: object):
        pass

    def __setstate__(self, state: object) -> None:
        pass


def read_tensors(file: Path) -> dict[str, Tensor]:
    """Return all tensors of a .safetensors or .npz file.

    Raises:
        ModelFileError: the file is missing, damaged, or a pickle, which is never opened.
    """
    refuse_pickle(file)
    if not file.is_file():
        raise ModelFileError(f"{file.name} is missing", where=file, hint="check the path")
    if file.suffix.lower() == ".npz":
        return _read_npz(file)
    if not is_text(str(file)):
        raise ModelFileError("the path of the weights is not valid UTF-8", where=file, hint="rename the folder or file")
    try:
        return load_file(file)
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(f"damaged weights: {error}", where=file, hint="write or download the file again") from None


def _read_npz(file: Path) -> dict[str, Tensor]:
    name, tensors = "", {}
    try:
        _require_little(file)
        with np.load(file) as arrays:
            for name in arrays.files:
                tensors[name] = _of_array(arrays[name])
        return tensors
    except TypeError as error:  # torch raises it for an array of anything but numbers
        what, hint = f"{name} has an unsupported type: {error}", "save the weights as floats"
        raise ModelFileError(what, where=file, hint=hint) from None
    except Exception as error:  # NumPy lets through any error of Python's zip reader and of literal parsing
        raise ModelFileError(f"damaged weights: {error}", where=file, hint="write or download the file again") from None


def _of_array(array: np.ndarray) -> Tensor:
    """Return a NumPy array as a tensor; raises `TypeError` for anything but numbers.

    NumPy has no bfloat16: it reads JAX's as two raw bytes each, which are converted. Numbers of the other byte order are
    swapped.
    """
    array = np.ascontiguousarray(array)
    if array.dtype == np.dtype("V2"):
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))


def _require_little(file: Path) -> None:
    """Raise `ValueError` for an archive that would fill the memory when unpacked (a zip bomb)."""
    if not zipfile.is_zipfile(file):
        return
    with zipfile.ZipFile(file) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    if unpacked > MOST_PACKED * file.stat().st_size:
        raise ValueError(f"it unpacks to {unpacked:,} bytes, more than {MOST_PACKED} times its size")


def read_pickle(file: Path) -> dict[str, dict[str, Tensor]]:
    """Return every dictionary of tensors in a pickle that the user trusts, by its path in the pickle (``state.model``).

    The file is opened by torch's restricted reader (``weights_only=True``). Values of the types in `PASSED_OVER` and the state
    of an optimizer are skipped.

    Raises:
        ModelFileError: the file is damaged, or holds other objects than tensors and plain values.
    """
    try:
        _require_little(file)
        names: list[Any] = [*((_PassedOver, name) for name in PASSED_OVER), (lambda *content: {}, "collections.defaultdict")]
        with torch.serialization.safe_globals(names):
            content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch lets through any error of its formats
        raise ModelFileError(
            f"torch.load(weights_only=True) cannot read the file: {_reason(error)}",
            where=file,
            hint="in the program that wrote it, save the model's state_dict() as safetensors",
        ) from None
    models = {path: tensors for path, tensors in _dictionaries(content) if tensors}
    if not models:
        raise ModelFileError("the file holds no dictionary of tensors", where=file, hint="give a file that holds a state_dict()")
    return models


def _reason(error: Exception) -> str:
    """Return the reason of torch's error on one line."""
    refused = re.search(r"GLOBAL (\S+) was not an allowed global", str(error))
    return f"it holds {refused[1]}" if refused else next(iter(str(error).splitlines()), type(error).__name__)


def dense(tensors: Mapping[str, Tensor], files: Sequence[Path]) -> dict[str, Tensor]:
    """Return the tensors of one or more pickles as contiguous tensors that share no memory.

    Views, such as a transposed matrix, and tensors that share memory are copied. The size of all copies is limited, as a few
    bytes in a pickle can define huge views.

    Raises:
        ModelFileError: a tensor is sparse, quantised or without data, or the copies need more bytes than the files have.
    """
    strange = [
        name for name, tensor in tensors.items() if tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized
    ]
    problems = [f"{name} is sparse, quantised or on the meta device" for name in strange]
    shared = _sharing({name: tensor for name, tensor in tensors.items() if name not in strange})
    copied = {
        name: tensors[name] for name in tensors if name not in strange and (name in shared or not tensors[name].is_contiguous())
    }
    size = sum(file.stat().st_size for file in files)
    if sum(view.nbytes for view in copied.values()) > max(size, 2**20):
        largest = max(copied, key=lambda name: copied[name].nbytes)
        problems.append(f"{largest} claims {copied[largest].nbytes:,} bytes, but the file has {size:,}")
    if problems:
        what, hint = f"tensors that cannot be read: {some(problems)}", "save them as dense tensors: tensor.contiguous()"
        raise ModelFileError(what, where=files[0], hint=hint)
    return {
        name: tensor.clone(memory_format=torch.contiguous_format) if name in copied else tensor
        for name, tensor in tensors.items()
    }


def _sharing(tensors: Mapping[str, Tensor]) -> set[str]:
    """Return the names of tensors that begin in memory of another of the tensors; the first in memory is not among them."""
    shared, end = set(), 0
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].data_ptr()):
        if tensor.data_ptr() < end:
            shared.add(name)
        end = max(end, tensor.data_ptr() + tensor.nbytes)
    return shared


def _dictionaries(content: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield every dictionary in a checkpoint with its path, reduced to its tensors; the optimizer's state is skipped."""
    if not isinstance(content, Mapping) or len(path) > DEEPEST:
        return
    yield ".".join(path), {str(name): value.detach() for name, value in content.items() if isinstance(value, Tensor)}
    for name, value in content.items():
        if not str(name).startswith(OPTIMIZER):
            yield from _dictionaries(value, (*path, str(name)))


def require_numbers(tensors: Mapping[str, Tensor], where: object) -> None:
    """Raise `ModelFileError` for tensors of other types than floats, and for values that are not finite."""
    types = [
        f"{k} has the type {t.dtype}"
        for k, t in tensors.items()
        if t.dtype not in TYPES and t.numel() > 1 and not (t.dtype == torch.int64 and k.endswith(COMPUTED))
    ]
    values = [f"{k} holds values that are not finite" for k, t in tensors.items() if t.dtype in TYPES and not _finite(t)]
    if types or values:
        hint = "save them as floats" if types else "use a checkpoint from before training diverged, or download the file again"
        raise ModelFileError(f"the weights cannot be used: {some([*types, *values])}", where=where, hint=hint)


def _finite(tensor: Tensor) -> bool:
    return math.isfinite(tensor.sum()) or bool(tensor.isfinite().all())  # the sum needs no memory


def write_tensors(file: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] = MappingProxyType({})) -> None:
    """Write a safetensors file with metadata. A tensor that has several names is written once for each name."""
    file.touch()
    mode = file.stat().st_mode
    written = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    written |= {name: written[name].clone() for name in _sharing(written)}
    save_file(written, file, metadata={"format": "pt", **metadata})
    file.chmod(mode)  # safetensors makes files readable for their owner alone, whatever the umask


def write_in_turn(file: Path, like: Mapping[str, Tensor], tensors: Iterable[Tensor]) -> None:
    """Write a safetensors file from tensors that come one after another, so that only one must be in memory.

    Args:
        file: the file to write (https://huggingface.co/docs/safetensors, "Format").
        like: tensors with the names, shapes and types of ``tensors``, in the same order.
        tensors: the tensors themselves.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in like.items():
        begin, end = end, end + tensor.nbytes
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as opened:
        opened.write(len(text).to_bytes(8, "little") + text)
        for _, tensor in zip(like, tensors, strict=True):
            opened.write(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)

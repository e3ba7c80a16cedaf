"""Files of tensors: safetensors and NumPy's .npz are read, pickles are refused unless they are trusted."""

import argparse
import math
import re
import zipfile
from collections.abc import Mapping
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
from vitrail.weights.plain_files import refuse_pickle, some

TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
COMPUTED = ("relative_position_index", "position_ids")
"""Last words of tables of integers that older files hold and every model can compute."""
WRAPPERS = ("module.", "_orig_mod.")
"""What PyTorch puts before every name where several processes train a model, and where it is compiled."""
AVERAGED = re.compile(r"(.*_)?(ema|teacher)(_.*)?")
"""What a training checkpoint calls averaged weights, which training was for."""
OPTIMIZER = "optim"
"""How it begins to call the state of its optimizer, which is no model."""
MOST_PACKED = 8
"""How many times as large as its file what is unpacked of it may be: weights hardly shrink."""


def read_tensors(file: Path) -> dict[str, Tensor]:
    """All tensors of a .safetensors or .npz file.

    Raises:
        ModelFileError: missing or damaged, or a pickle, which is never opened.
    """
    refuse_pickle(file)
    if not file.is_file():
        raise ModelFileError(f"{file.name} is missing", where=file, hint="check the path")
    if file.suffix.lower() == ".npz":
        return _read_npz(file)
    if not is_text(str(file)):
        raise ModelFileError(
            "weights at a path that is not in UTF-8 cannot be opened", where=file, hint="rename the folder or file"
        )
    try:
        return load_file(file)
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(f"damaged weights: {error}", where=file, hint="write or fetch the file again") from None


def unwrapped(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors without the `WRAPPERS` before all of their names."""
    for wrapper in WRAPPERS:
        if tensors and all(name.startswith(wrapper) for name in tensors):
            return unwrapped({name.removeprefix(wrapper): tensor for name, tensor in tensors.items()})
    return tensors


def _read_npz(file: Path) -> dict[str, Tensor]:
    try:
        _require_little(file)
        with np.load(file) as arrays:
            return {name: torch.from_numpy(np.ascontiguousarray(arrays[name])) for name in arrays.files}
    except Exception as error:  # NumPy raises what Python's own readers of archives and of literals raise
        raise ModelFileError(f"damaged weights: {error}", where=file, hint="write or fetch the file again") from None


def _require_little(file: Path) -> None:
    """Refuse an archive of nothing, which would fill the memory; raises `ValueError`."""
    if not zipfile.is_zipfile(file):
        return
    with zipfile.ZipFile(file) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    if unpacked > MOST_PACKED * file.stat().st_size:
        raise ValueError(f"it unpacks to {unpacked:,} bytes, which no weights do")


def read_pickle(file: Path) -> dict[str, Tensor]:
    """The tensors of a pickle that the user trusts, by torch's restricted reader, which calls nothing it does not know.

    Where they lie deeper, as in training checkpoints, the largest dictionary of tensors is taken; of several as large the one of
    averaged weights (``state_dict_ema``, ``teacher``), which training was for. A script's arguments beside them are passed over.

    Raises:
        ModelFileError: damaged, or holding more than tensors and plain values.
    """
    try:
        _require_little(file)
        with torch.serialization.safe_globals([argparse.Namespace]):  # it has values alone
            content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises what its formats raise
        raise ModelFileError(
            f"torch does not read it as weights alone: {_reason(error)}",
            where=file,
            hint="save the model's state_dict() as safetensors where it was made",
        ) from None
    found = max(_dictionaries(content), key=len, default={})
    if not found:
        raise ModelFileError("it holds no tensors by name", where=file, hint="give a file that holds a state_dict()")
    _require_dense(found, file)
    return {name: tensor.contiguous() for name, tensor in found.items()}


def _reason(error: Exception) -> str:
    """Why torch reads no weights, in a line: what it stumbled over, where it says so."""
    refused = re.search(r"GLOBAL (\S+) was not an allowed global", str(error))
    return f"it holds {refused[1]}" if refused else next(iter(str(error).splitlines()), type(error).__name__)


def _require_dense(tensors: Mapping[str, Tensor], file: Path) -> None:
    """Refuse tensors without numbers of their own, and views of far more numbers than the file has; raises `ModelFileError`.

    A view, say of a transposed matrix, is copied to be read in order. A few bytes can claim any number of views of any size.
    """
    strange = [
        name for name, tensor in tensors.items() if tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized
    ]
    problems = [f"{name} is sparse, quantised or without numbers" for name in strange]
    views = {name: tensor for name, tensor in tensors.items() if name not in strange and not tensor.is_contiguous()}
    most = max(file.stat().st_size, 2**20)
    if sum(view.nbytes for view in views.values()) > most:
        largest = max(views, key=lambda name: views[name].nbytes)
        problems.append(f"{largest} claims {views[largest].nbytes:,} bytes, and the file has {file.stat().st_size:,}")
    if problems:
        what, hint = f"tensors that are no plain numbers: {some(problems)}", "save them as they are: tensor.contiguous()"
        raise ModelFileError(what, where=file, hint=hint)


def _dictionaries(content: Any, depth: int = 0) -> list[dict[str, Tensor]]:
    """Every dictionary of tensors in what a checkpoint holds, averaged weights before others, without an optimizer's."""
    if not isinstance(content, Mapping) or depth > 4:
        return []
    own = {str(name): value.detach() for name, value in content.items() if isinstance(value, Tensor)}
    names = [name for name in content if not str(name).startswith(OPTIMIZER)]
    inner = [content[name] for name in sorted(names, key=lambda name: not AVERAGED.fullmatch(str(name)))]
    return [own, *(found for value in inner for found in _dictionaries(value, depth + 1))]


def require_numbers(tensors: Mapping[str, Tensor], where: object) -> None:
    """Refuse tensors that are no plain numbers, and numbers that are not finite; raises `ModelFileError`."""
    problems = [
        f"{k} has the type {t.dtype}"
        for k, t in tensors.items()
        if t.dtype not in TYPES and t.numel() > 1 and not (t.dtype == torch.int64 and k.endswith(COMPUTED))
    ]
    problems += [f"{k} holds values that are not finite" for k, t in tensors.items() if t.dtype in TYPES and not _finite(t)]
    if problems:
        raise ModelFileError(f"the weights cannot be used: {some(problems)}", where=where, hint="fetch or write the file again")


def _finite(tensor: Tensor) -> bool:
    """Whether all numbers are; their sum, which needs no memory, is not finite if one of them is not."""
    return math.isfinite(tensor.sum()) or bool(tensor.isfinite().all())


def write_tensors(file: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] = MappingProxyType({})) -> None:
    """Write a safetensors file, with some texts beside its tensors."""
    file.touch()
    mode = file.stat().st_mode
    save_file({k: t.detach().contiguous() for k, t in tensors.items()}, file, metadata={"format": "pt", **metadata})
    file.chmod(mode)  # safetensors keeps its files to their owner, whatever the umask allows

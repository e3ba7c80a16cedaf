"""The files of a model that hold no tensors, and which files are never opened. Imports no torch."""

import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from safetensors import SafetensorError, safe_open

from vitrail.data.text.pieces import FILES
from vitrail.errors import ModelFileError
from vitrail.files import SMALL, read_text, regular_file
from vitrail.settings import brief

CONFIG, PREPROCESSOR, PROCESSOR, CARD = "config.json", "preprocessor_config.json", "processor_config.json", "README.md"
TOKENIZER, TOKENIZER_CONFIG, GENERATION = "tokenizer.json", "tokenizer_config.json", "generation_config.json"
OPEN_CLIP_CONFIG = "open_clip_config.json"
"""Files of a model folder beside its weights."""
DESCRIBING = (CONFIG, OPEN_CLIP_CONFIG, PREPROCESSOR, PROCESSOR, GENERATION, TOKENIZER, *FILES)
"""All of them that say what the model computes."""
SKELETON = ("skeleton", "edges")
"""Keys of ``config.json`` of a model that finds joints: the skeleton, and its limbs by transformers' name for them."""
PALETTE = ("palette", "semantic_loss_ignore_index")
"""Keys of ``config.json`` of a model that gives masks: the colour of each class, and the value of void, by transformers' name."""
LATENTS = "latents"
"""A key of ``config.json`` of a model that makes images: the VAE whose latents it makes; a model of pixels has none."""
WEIGHTS = (".safetensors", ".npz")
GRAPHS = {"onnx": "model.onnx", "openvino": "model.xml", "torch": "model.pt2"}
"""The file of an exported model that holds its graph."""
PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".pth.tar", ".pyth", ".t7")
INDEX = ".index.json"
"""The end of the name of a file that lists the tensors of several files."""
SHARD = re.compile(r"(?P<start>.+-)[0-9]{5}-of-(?P<count>(?!00000)[0-9]{5})(?P<end>\.(safetensors|bin))")
"""The name of one of several files that hold a model together."""

OWN = "vitrail"
"""Under which a file that we have written says what it is: its labels, in the words of ``config.json``, and more."""
PREPARED, LAYOUT, CONFIGURED = "preprocessor_config", "layout", "config"
"""Under which it says there how images are prepared, what its layout is, and the whole configuration in our own words."""


def parts_of(name: str) -> list[str]:
    """Return the names of all files that hold a model's weights together with the named one, in order; else its name alone."""
    shard = SHARD.fullmatch(name)
    if shard is None:
        return [name]
    return [f"{shard['start']}{number:05}-of-{shard['count']}{shard['end']}" for number in range(1, int(shard["count"]) + 1)]


def together_with(file: Path) -> list[str]:
    """Return the names of all files that hold a model's weights together with one: by an index beside them, else by its name.

    Raises:
        ModelFileError: the index is damaged, or names files elsewhere.
    """
    kinds = () if file.name == "model.safetensors" else (".safetensors", ".bin")  # it is a whole model
    for index in (index for kind in kinds for index in sorted(file.parent.glob(f"*{kind}{INDEX}"))):
        if names := indexed(index, file.name):
            return names
    return parts_of(file.name)


def indexed(index: Path, name: str | None = None) -> list[str]:
    """Return the names of all files in an index, sorted; none where it does not list the file ``name``.

    Raises:
        ModelFileError: the index is damaged, or names files elsewhere.
    """
    names = sorted({*map(str, section(read_json(index), "weight_map").values())})
    if name is not None and name not in names:
        return []
    if elsewhere := [name for name in names if not name or "/" in name or "\\" in name or name in (".", "..")]:
        what = f"{index.name} names a file that is not beside it: {brief(elsewhere[0])}"
        raise ModelFileError(what, where=index, hint="put all parts into one folder, and their names without a path")
    return names


def is_pickle(file: Path) -> bool:
    """Return whether a file is a pickle: by its name, or by its first bytes where the name tells nothing."""
    return file.name.lower().endswith(PICKLES) or (
        file.suffix.lower() not in (*WEIGHTS, *(Path(graph).suffix for graph in GRAPHS.values())) and _begins_as_pickle(file)
    )


def _begins_as_pickle(file: Path) -> bool:
    """Return whether a file begins as a pickle does, or is an archive of one, which torch writes."""
    try:
        with regular_file(file) as content:
            start = content.read(2)
            if start == b"PK":
                with zipfile.ZipFile(content) as archive:
                    return any(name.endswith("data.pkl") for name in archive.namelist())
    except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError):  # zipfile raises all of them for odd entries
        return False
    return start in (b"\x80\2", b"\x80\3", b"\x80\4", b"\x80\5")


def refuse_pickle(file: Path) -> None:
    """Raise `ModelFileError` for a pickle, which can run code when it is loaded."""
    if is_pickle(file):
        ending = max((end for end in PICKLES if file.name.lower().endswith(end)), key=len, default="")
        out = file.name[: -len(ending)] if ending else f"{file.stem}-converted"
        command = f"vitrail convert {quote(str(file))} {quote(out)} --trust-pickle"
        raise ModelFileError(
            f"{file.name} is a pickle, which can run code when loaded",
            where=file,
            hint=f"give a .safetensors file; if you trust it: {command}",
        )


def require_regular_files(folder: Path) -> None:
    """Refuse a model folder with a pipe, a socket or a device in it, before a library that would wait for it opens its files.

    Raises:
        ModelFileError: with its name.
    """
    for file in sorted(folder.iterdir()):
        if file.exists() and not (file.is_file() or file.is_dir()):
            raise ModelFileError(f"{file.name} is no regular file", where=file, hint="fetch or write the folder again")


def parse_json(text: str, *, any_name: bool = False) -> Any:
    """Return the content of JSON; raises `ValueError` or `RecursionError`, also for half a letter without ``any_name``."""
    values = json.loads(text)
    if not any_name and "\\ud" in text.lower():  # halves of letters can be written in JSON, and in nothing that names them later
        json.dumps(values, ensure_ascii=False).encode()
    return values


def read_json(file: Path, most: int = SMALL, *, any_name: bool = False) -> dict[str, Any]:
    """Return the JSON object in a file, of a model folder or of one with ``any_name``; raises `ModelFileError`."""
    try:
        values = parse_json(read_text(file, most), any_name=any_name)
    except FileNotFoundError:
        raise ModelFileError(f"{file.name} is missing", where=file, hint="give a complete model folder") from None
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        what = f"{file.name} is not in UTF-8: {error.reason}"
        raise ModelFileError(what, where=file, hint="write its names anew, in UTF-8") from None
    except OSError as error:
        raise ModelFileError(f"{file.name} cannot be read: {error.strerror}", where=file, hint="write the folder again") from None
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{file.name} is damaged: {error}", where=file, hint="write the folder again") from None
    if not isinstance(values, dict):
        raise ModelFileError(f"{file.name} holds no object", where=file, hint="write the folder again")
    return values


def read_metadata(file: Path) -> dict[str, str]:
    """Return the metadata of a safetensors file; none of any other file, or one that `read_tensors` refuses."""
    if file.suffix.lower() != ".safetensors" or not file.is_file():
        return {}
    try:
        with safe_open(file, "np") as opened:
            return opened.metadata() or {}
    except (SafetensorError, OSError, ValueError):
        return {}


def metadata_of(file: Path) -> dict[str, Any]:
    """Return the description in a file's own metadata under `OWN`, or in the JSON file beside it."""
    beside = beside_file(file)
    if (text := read_metadata(file).get(OWN)) is None:
        return section(read_json(beside), OWN) if beside.is_file() else {}
    try:
        if len(text) > SMALL:
            raise ValueError(f"it has {len(text):,} letters, more than the {SMALL:,} that are read")
        values = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"what the file says of itself is damaged: {error}", where=file, hint="write it again") from None
    return values if isinstance(values, dict) else {}


def beside_file(file: Path) -> Path:
    """Return the file that describes one without metadata: ``B_16.npz.json`` beside ``B_16.npz``."""
    return file.with_name(f"{file.name}.json")


def section(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the values that a description has together under a name; none where it has no such section."""
    found = values.get(name)
    return found if isinstance(found, dict) else {}


def some(names: Sequence[str], most: int = 8) -> str:
    """Return the first of some names, and how many more there are."""
    return "; ".join(names[:most]) + (f"; and {len(names) - most} more" if len(names) > most else "")

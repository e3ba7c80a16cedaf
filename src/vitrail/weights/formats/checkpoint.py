"""A checkpoint: what lies in a folder or file of weights, and what it was understood to be."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any

from torch import Tensor

from vitrail.errors import ModelFileError
from vitrail.files import read_bytes
from vitrail.models.configs.base import ImageConfig
from vitrail.parts.positions.interpolation import Interpolation
from vitrail.settings import brief
from vitrail.weights.formats.checksums import verified
from vitrail.weights.formats.pipeline import around, denoiser_in
from vitrail.weights.formats.safe_files import (
    CARD,
    CONFIG,
    CONFIGURED,
    DESCRIBING,
    INDEX,
    OPEN_CLIP_CONFIG,
    PREPARED,
    PREPROCESSOR,
    PROCESSOR,
    WEIGHTS,
    beside_file,
    indexed,
    is_pickle,
    metadata_of,
    read_json,
    section,
    some,
    together_with,
)
from vitrail.weights.formats.several import one_model
from vitrail.weights.formats.tensor_files import dense, read_pickle, read_tensors
from vitrail.weights.keys import words
from vitrail.weights.normalization import CLIP_COLOURS, Colours

OPEN_CLIP_USUAL = {
    "resize_mode": "shortest",
    "interpolation": CLIP_COLOURS.resampling,
    "mean": CLIP_COLOURS.mean,
    "std": CLIP_COLOURS.std,
}
"""OpenCLIP's preparation of images where its description says nothing."""
OPEN_CLIP_WORDS = {
    "resize_mode": {"shortest": "center", "squash": "squash"},
    "interpolation": {"bicubic": "bicubic", "bilinear": "bilinear", "random": "bicubic"},  # random is for training alone
}
"""OpenCLIP's words, to timm's."""

TIMM_DATA = words(
    """
    url file hf_hub_id hf_hub_filename source tag custom_load input_size test_input_size min_input_size fixed_input_size
    interpolation crop_pct test_crop_pct crop_mode mean std label_offset pool_size test_pool_size first_conv classifier license
    description origin_url paper_name paper_ids notes
    """
)
"""Keys of timm's ``pretrained_cfg``, which stand at the top of an older description."""

TIMM_WRAPPER = "timm_wrapper"
"""Model type of a folder in which transformers keeps a model of timm's, under ``timm_model.``."""


@dataclass(frozen=True)
class Checkpoint:
    """The files of a model: its tensors, and the descriptions beside them."""

    file: Path
    """The file of tensors, or the first of several."""
    tensors: dict[str, Tensor]
    config: dict[str, Any] = field(default_factory=dict)
    """``config.json``; empty where there is none."""
    preprocessor: dict[str, Any] | None = None
    """``preprocessor_config.json``, where there is one."""
    card: str = ""
    """The model card."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """The description in a file that `vitrail convert` wrote; see `OWN`."""

    @property
    def prepared(self) -> bool:
        """Return whether the files say how images are prepared."""
        return self.preprocessor is not None or "pretrained_cfg" in self.config

    @classmethod
    @contextmanager
    def opened(cls, path: Path, *, trust_pickle: bool = False, key: str | None = None) -> Iterator["Checkpoint"]:
        """Open a model folder, or a file of tensors with what stands beside it; pickles only where they are trusted.

        Of several models in a file the one that is called ``key`` is read; see `one_model`.
        What is made of it inside is compared with the folder's sums meanwhile; see `verified`.

        Raises:
            ModelFileError: missing, damaged or refused.
        """
        folder = path if path.is_dir() else path.parent
        file = weights_in(folder, trust_pickle) if path.is_dir() else path
        with verified(folder, (*DESCRIBING, *together_with(file), beside_file(file).name)):
            yield cls._read(folder, file, trust_pickle, key)

    @classmethod
    def _read(cls, folder: Path, file: Path, trust_pickle: bool, key: str | None) -> "Checkpoint":
        stated = metadata_of(file)
        config = {}
        if stated.get(CONFIGURED) is None:  # else what stands beside may be another file's
            config = _description(file) | around(file)
        preprocessor = section(stated, PREPARED) or None
        if preprocessor is None and "model_cfg" not in config:  # OpenCLIP has both in one file
            preprocessor = _preprocessor(folder)
        card = _card(folder / CARD) if config else ""
        tensors = _all_tensors(file, trust_pickle, key)
        if not tensors:
            raise ModelFileError("it holds no weights", where=file, hint="fetch or write the file again")
        return cls(file, tensors, config, preprocessor, card, stated)


@dataclass(frozen=True)
class Source:
    """A checkpoint that is understood."""

    tensors: dict[str, Tensor]
    """The parameters under our names."""
    config: ImageConfig
    labels: list[str]
    multi_label: bool
    colours: Colours
    interpolation: Interpolation
    thresholds: tuple[float, ...]
    """One for each of several labels; empty where the files have none."""
    about: str
    """The layout and the model in words; empty where the folder is our own."""


def _all_tensors(file: Path, trust_pickle: bool, key: str | None) -> dict[str, Tensor]:
    """Return the tensors of a file, and of those that hold a model's weights together with it."""
    parts = [file.with_name(name) for name in together_with(file)]
    if len(parts) > 1 and (missing := [part.name for part in parts if not part.is_file()]):
        what = f"the weights are split into {len(parts)} files, and of them are missing: {some(missing)}"
        raise ModelFileError(what, where=file.parent, hint="fetch or write the folder again")
    models: dict[str, dict[str, Tensor]] = {}
    pickles = [part for part in parts if trust_pickle and is_pickle(part)]
    for part in parts:
        for path, tensors in (read_pickle(part) if part in pickles else {"": read_tensors(part)}).items():
            merged = models.setdefault(path, {})
            if twice := sorted(merged.keys() & tensors.keys()):
                what = f"{part.name} has tensors that another of the {len(parts)} files has, too: {some(twice)}"
                raise ModelFileError(what, where=file.parent, hint="fetch or write the folder again")
            merged |= tensors
    tensors = one_model(models, file if len(parts) == 1 else file.parent, key)
    return dense(tensors, pickles) if pickles else tensors


def _card(file: Path) -> str:
    """Return the model card; an empty text where it cannot be read."""
    try:
        return read_bytes(file).decode(errors="replace")
    except OSError:
        return ""


def _description(file: Path) -> dict[str, Any]:
    """Return the ``config.json`` beside a file of weights, or what OpenCLIP has in its place."""
    usual, other = file.parent / CONFIG, file.parent / OPEN_CLIP_CONFIG
    if not other.exists() or (usual.exists() and not file.name.startswith("open_clip")):
        return _as_timm_reads(read_json(usual)) if usual.exists() else {}
    values = read_json(other)
    return {**values, "pretrained_cfg": _in_timms_words(section(values, "preprocess_cfg"), other)}


def _as_timm_reads(values: dict[str, Any]) -> dict[str, Any]:
    if "architecture" not in values:
        return values
    values = dict(values)
    if values.get("model_type") == TIMM_WRAPPER:
        del values["model_type"]
        if not any("Classification" in str(name) for name in values.get("architectures") or ()):
            values |= {"num_classes": 0, "label_names": None}  # it counts two classes in a model without a head
    if "pretrained_cfg" not in values and (data := {name: values.pop(name) for name in TIMM_DATA & values.keys()}):
        values["pretrained_cfg"] = data
    labels = values.pop("labels", None) or section(values, "pretrained_cfg").get("label_names")
    return {"label_names": labels, **values} if labels else values


def _in_timms_words(prepared: Mapping[str, Any], where: Path) -> dict[str, Any]:
    """Return OpenCLIP's preparation in timm's words; it resizes images to the very size that the model takes."""
    stated = OPEN_CLIP_USUAL | {name: value for name, value in prepared.items() if value is not None}
    for name, theirs in OPEN_CLIP_WORDS.items():
        if not isinstance(stated[name], str) or stated[name] not in theirs:
            raise ModelFileError(
                f"{name} {brief(stated[name])} is not known here", where=where, hint=f"known: {', '.join(theirs)}"
            )
        stated[name] = theirs[stated[name]]
    kept = {name: stated[name] for name in ("interpolation", "mean", "std")}
    return {**kept, "crop_mode": stated["resize_mode"], "crop_pct": CLIP_COLOURS.crop_ratio}


def _preprocessor(folder: Path) -> dict[str, Any] | None:
    """Return the preparation in a folder of transformers; from version 5 on it stands in another file."""
    if (folder / PREPROCESSOR).exists():
        return read_json(folder / PREPROCESSOR)
    return (section(read_json(folder / PROCESSOR), "image_processor") or None) if (folder / PROCESSOR).exists() else None


def weights_in(folder: Path, trust_pickle: bool) -> Path:
    """Return the one file of tensors in a folder, or the first of those that hold a model's weights together."""
    folder = denoiser_in(folder)
    usual = folder / "model.safetensors"
    if usual.exists():
        return usual
    if (index := folder / f"{usual.name}{INDEX}").exists():
        return folder / (indexed(index) or [usual.name])[0]
    files = sorted(file for file in folder.iterdir() if file.is_file())
    found = [file for file in files if file.suffix.lower() in WEIGHTS]
    pickles = [] if found else [file for file in files if is_pickle(file)]
    if trust_pickle and not found:
        found = pickles
    if found and {file.name for file in found} <= set(together_with(found[0])):
        return found[0]
    if found:
        what, hint = f"several files of weights: {', '.join(file.name for file in found[:5])}", "give one of them"
    elif pickles:
        what = f"model.safetensors is missing, and {pickles[0].name} is a pickle, which can run code when loaded"
        hint = f"if you trust it: vitrail convert {quote(str(folder))} OUT --trust-pickle"
    else:
        what = f"{usual.name if (folder / CONFIG).exists() else CONFIG} is missing"
        hint = "give a model folder, a run folder or a file of weights"
    raise ModelFileError(what, where=folder, hint=hint)


def tower(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the section ``vision_config`` or ``text_config`` of a CLIP of transformers.

    Older files say it under ``vision_config_dict`` as well. Where that stands, transformers takes it whole, with its defaults
    for all that it leaves out, in place of the other.
    """
    older = f"{name}_dict"
    return section(values, name if values.get(older) is None else older)

"""diffusers' pipelines: folders of which one part is a model's weights, and others say how it is used. Imports no torch."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vitrail.errors import ConfigError
from vitrail.weights.formats.safe_files import CONFIG, LATENTS, read_json, section

MODEL_INDEX, DENOISER, VAE = "model_index.json", "transformer", "vae"
PIPELINE, SCHEDULER, LABELS = "pipeline", "scheduler", "id2label"
"""Keys under which the pipeline's class, its scheduler and its labels stand beside what the model's own ``config.json`` says."""
AROUND = (PIPELINE, SCHEDULER, LABELS)
SCHEDULER_FILE, VAE_WEIGHTS = "scheduler/scheduler_config.json", "diffusion_pytorch_model.safetensors"
PIPELINE_FILES = (MODEL_INDEX, f"{DENOISER}/{CONFIG}", SCHEDULER_FILE, f"{VAE}/{CONFIG}", f"{VAE}/{VAE_WEIGHTS}")
"""Files of a pipeline beside its denoiser's weights."""


def denoiser_in(folder: Path) -> Path:
    """Return the folder of a pipeline's denoiser; any other folder as it is."""
    return folder / DENOISER if (folder / MODEL_INDEX).is_file() else folder


def around(file: Path) -> dict[str, Any]:
    """Return what a pipeline says of the denoiser whose weights are in a file, and where its VAE is; nothing without a pipeline.

    Raises:
        ModelFileError: a part is missing or damaged.
    """
    folder = file.parent.parent
    if file.parent.name != DENOISER or not (folder / MODEL_INDEX).is_file():
        return {}
    index = read_json(folder / MODEL_INDEX)
    stated = {PIPELINE: index.get("_class_name"), LABELS: index.get(LABELS), LATENTS: None}
    if _has(index, SCHEDULER):
        stated[SCHEDULER] = read_json(folder / SCHEDULER_FILE)
    if _has(index, VAE):
        stated[LATENTS] = str((folder / VAE).resolve())
    return {name: value for name, value in stated.items() if value is not None}


def _has(index: Mapping[str, Any], part: str) -> bool:
    """Return whether a pipeline has a part: ``["diffusers", CLASS]``; ``[null, null]`` is none."""
    return isinstance(index.get(part), list) and all(index[part])


def latent_side(vae: str | None) -> int:
    """Return the pixels on a side of a latent: as the folder of a VAE says, else 8 as of Stable Diffusion's.

    Raises:
        ModelFileError: the folder's ``config.json`` is damaged.
    """
    file = Path(vae or "", CONFIG)
    levels = read_json(file).get("block_out_channels") if vae and file.is_file() else None
    return 2 ** (len(levels) - 1) if isinstance(levels, list) and levels else 8


def pipeline_files(described: Mapping[str, Any], labels: Sequence[str], vae: str | None) -> dict[str, Mapping[str, Any] | bytes]:
    """Return the files of a pipeline beside its denoiser, which is ``described`` as `around` has it.

    Raises:
        ConfigError: the VAE is not here in the form in which it could be copied.
    """
    scheduler = section(described, SCHEDULER)
    index = {
        "_class_name": described[PIPELINE],
        DENOISER: ["diffusers", described["_class_name"]],
        SCHEDULER: ["diffusers", scheduler["_class_name"]],
        VAE: [None, None] if vae is None else ["diffusers", "AutoencoderKL"],
        LABELS: {str(number): label for number, label in enumerate(labels)},
    }
    return {MODEL_INDEX: index, SCHEDULER_FILE: scheduler, **_vae_files(vae)}


def _vae_files(vae: str | None) -> dict[str, bytes]:
    if vae is None:
        return {}
    files = {f"{VAE}/{name}": Path(vae, name) for name in (CONFIG, VAE_WEIGHTS)}
    if missing := [str(file) for file in files.values() if not file.is_file()]:
        hint = "save the VAE there: AutoencoderKL.from_pretrained(…).save_pretrained(FOLDER)"
        raise ConfigError(f"the VAE of the model is not whole: {missing[0]} is missing", where="OUT", hint=hint)
    return {name: file.read_bytes() for name, file in files.items()}

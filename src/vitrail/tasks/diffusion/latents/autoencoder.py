"""Images to latents and back, by diffusers' `AutoencoderKL` (Kingma and Welling 2014, https://arxiv.org/abs/1312.6114)."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitrail.errors import ConfigError, ModelFileError
from vitrail.tasks.diffusion.latents.vae_folder import WEIGHTS, VaeFolder, require_diffusers

PIXELS = 2**18
"""Pixels that pass the VAE at once, so that its memory is bounded: those of four images of 256×256."""


def moments_of(vae: VaeFolder, images: Tensor) -> Tensor:
    """Return mean and deviation of the latents of images in [-1, 1], (B, 3, H, W): float16 (B, 2C, h, w).

    Raises:
        ModelFileError: values that are not finite, or too large for float16.
    """
    model = _opened(vae.path)

    def moments(some: Tensor) -> Tensor:
        latents = model.encode(some).latent_dist
        return torch.cat([latents.mean, latents.std], dim=1).half()

    result = _in_parts(model, moments, images, images.shape[2] * images.shape[3])
    if not result.isfinite().all():
        hint = "its weights are damaged, or it is no VAE of such images"
        raise ModelFileError("the VAE gives latents that are not finite", where=vae.path, hint=hint)
    return result


def drawn_latents(vae: VaeFolder, moments: Tensor, noise: Tensor) -> Tensor:
    """Return ``(mean + deviation · ε - shift) · scale``, the latents that a model learns: (B, 2C, h, w) to (B, C, h, w)."""
    mean, deviation = moments.float().chunk(2, dim=1)
    return (mean + deviation * noise - vae.shift) * vae.scale


def decoded(vae: VaeFolder, latents: Tensor) -> Tensor:
    """Return the images of latents, in about [-1, 1]: (B, C, h, w) to (B, 3, H, W)."""
    model = _opened(vae.path)
    pixels = latents.shape[2] * latents.shape[3] * vae.factor**2
    return _in_parts(model, lambda some: model.decode(some).sample, latents.float() / vae.scale + vae.shift, pixels)


@torch.no_grad()
def _in_parts(model: Any, call: Any, values: Tensor, pixels: int) -> Tensor:
    """Return what the VAE makes of values (B, …) whose images have so many pixels, a few of them at a time."""
    model.to(values.device)
    with torch.autocast(values.device.type, enabled=False):
        return torch.cat([call(some) for some in values.split(max(1, PIXELS // pixels))])


@lru_cache(maxsize=1)
def _opened(path: Path) -> Any:
    """Return the VAE of a folder, read from its safetensors alone, in float32.

    Raises:
        ModelFileError: the weights are damaged, or not those of the configuration.
        ConfigError: diffusers is not installed, or does not start.
    """
    require_diffusers()
    try:
        from diffusers import AutoencoderKL
    except Exception as error:  # of any of the libraries that it imports
        what = f"diffusers is installed, and cannot be imported: {str(error).splitlines()[-1]}"
        raise ConfigError(what, where="latents", hint="pip install 'vitrail[diffusers]' in an environment of its own") from error
    try:
        model, report = AutoencoderKL.from_pretrained(
            path, local_files_only=True, use_safetensors=True, low_cpu_mem_usage=False, output_loading_info=True
        )
    except Exception as error:  # of diffusers, which has no class of its own for damaged files
        what = f"the VAE cannot be read: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        raise ModelFileError(what, where=path / WEIGHTS, hint="fetch the folder again") from None
    if wrong := [*report["missing_keys"], *report["mismatched_keys"]]:
        what = f"the weights do not fit the VAE's configuration: {wrong[0]} is missing or of another shape"
        raise ModelFileError(what, where=path / WEIGHTS, hint="fetch the folder again")
    return model.float().eval().requires_grad_(False)

"""The folder of a variational autoencoder, as diffusers saves an `AutoencoderKL`: what it says of itself. Imports no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shlex import quote
from typing import Any, Self

from vitrail.checks import nearest_multiple
from vitrail.errors import ConfigError, ModelFileError
from vitrail.files import path_of
from vitrail.weights.formats.safe_files import CONFIG, read_json

KIND, WEIGHTS, PICKLE = "AutoencoderKL", "diffusion_pytorch_model.safetensors", "diffusion_pytorch_model.bin"


@dataclass(frozen=True)
class VaeFolder:
    """A VAE that turns images into latents and back, before its weights are read."""

    path: Path
    factor: int
    """Pixels of an image for one position of its latents, along each side."""
    colors: int
    """Channels of its images: 1 or 3."""
    channels: int
    """Channels of its latents."""
    scale: float
    """Latents are multiplied by this, so that their deviation is about 1: 0.18215 for Stable Diffusion."""
    shift: float
    """Is subtracted from latents before."""
    image_size: int
    """Side of the images that it was trained with."""

    @classmethod
    def read(cls, folder: str | Path, *, where: object, hint: str) -> Self:
        """Read what a folder says of its VAE.

        Args:
            folder: its path.
            where: the flag or file that names it, for errors.
            hint: how to name another one.

        Raises:
            ConfigError: there is no such folder, or diffusers is not installed.
            ModelFileError: the folder holds another model, or is damaged, or has its weights as a pickle.
        """
        path = path_of(folder)
        if not path.is_dir():
            raise ConfigError(f"there is no VAE folder {str(folder)!r}", where=where, hint=hint)
        if not (path / CONFIG).is_file():
            inside = (path / "vae").is_dir()
            hint = f"give its part: {path / 'vae'}" if inside else f"give a folder with {CONFIG} and {WEIGHTS}"
            raise ModelFileError(f"{str(folder)!r} is no VAE folder: {CONFIG} is missing", where=where, hint=hint)
        values = read_json(path / CONFIG)
        _require_known(values, path)
        _require_weights(path)
        require_diffusers()
        try:
            sides = 2 ** (len(values["block_out_channels"]) - 1)
            colors, channels = int(values.get("in_channels", 3)), int(values.get("latent_channels", 4))
            scale, shift = float(values.get("scaling_factor", 0.18215)), float(values.get("shift_factor") or 0)
            size = values.get("sample_size", 32)
            image_size = int(max(size) if isinstance(size, list) else size)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ModelFileError(f"{CONFIG} is damaged: {error}", where=path / CONFIG, hint="fetch the folder again") from None
        if colors not in (1, 3) or min(channels, scale) <= 0 or not 1 <= sides <= 2**8:
            raise ModelFileError("its numbers of channels or its scale cannot be", where=path / CONFIG, hint="take another VAE")
        if channels in (1, 3):
            what = f"its latents have {channels} channels, and cannot be distinguished from pixels"
            raise ModelFileError(what, where=path / CONFIG, hint="take a VAE with latents of 4 channels or more")
        return cls(path.resolve(), sides, colors, channels, scale, shift, image_size)

    def latent_size(self, image_size: Sequence[int], patch_size: Sequence[int]) -> tuple[int, int]:
        """Return height and width of the latents of images; raises `ConfigError` where these make no whole patches."""
        multiples = [self.factor * patch for patch in patch_size]
        if any(side % multiple for side, multiple in zip(image_size, multiples, strict=True)):
            size, patch = ("×".join(map(str, pair)) for pair in (image_size, patch_size))
            nearest = [nearest_multiple(side, multiple) for side, multiple in zip(image_size, multiples, strict=True)]
            raise ConfigError(
                f"images of {size} pixels have no whole patches: the VAE makes one latent of {self.factor}×{self.factor} pixels, "
                f"and a patch has {patch} latents",
                where="--image-size",
                hint=f"give the size of the images in pixels, the nearest is {'x'.join(map(str, dict.fromkeys(nearest)))}",
            )
        return image_size[0] // self.factor, image_size[1] // self.factor

    def require_channels(self, channels: int, *, where: object) -> None:
        """Refuse a model of latents with other ``channels``; raises `ConfigError`."""
        if channels != self.channels:
            what = f"the VAE makes latents of {self.channels} channels, and the model takes {channels}"
            raise ConfigError(what, where=where, hint=f"{self.path} is another VAE than the model's: give that one")


def vae_of_run(folder: str, run: object = None) -> VaeFolder:
    """Return the VAE of a new run, or of the ``run`` of this folder; raises as `VaeFolder.read`."""
    hint = "give the folder of an AutoencoderKL, as diffusers saves it"
    if run is not None:
        hint = f"bring it back, or say where it is now: vitrail resume {quote(str(run))} --task.latents FOLDER"
    return VaeFolder.read(folder, where="--task.latents" if run is None else f"task.latents of the run {run}", hint=hint)


def require_diffusers() -> None:
    """Raise `ConfigError` that names the extra where diffusers is not installed; imports nothing."""
    try:
        version("diffusers")
    except PackageNotFoundError:
        hint = "pip install 'vitrail[diffusers]'"
        raise ConfigError("VAEs are read by the library diffusers, which is not installed", where="latents", hint=hint) from None


def _require_known(values: dict[str, Any], path: Path) -> None:
    """Refuse another kind of model, and latents with a mean and a deviation for each channel; raises `ModelFileError`."""
    kind = values.get("_class_name", KIND)
    if kind != KIND:
        hint = f"take an {KIND}, such as the vae of a Stable Diffusion or DiT pipeline"
        raise ModelFileError(f"the folder holds {kind!r}, and only {KIND} is read here", where=path / CONFIG, hint=hint)
    for name in ("latents_mean", "latents_std"):
        if values.get(name) is not None:
            what = f"{name} is set, and latents with numbers for each channel are not scaled here"
            raise ModelFileError(what, where=path / CONFIG, hint="take a VAE with scaling_factor and shift_factor alone")


def _require_weights(path: Path) -> None:
    """Refuse a folder without weights, or with a pickle in their place; raises `ModelFileError`."""
    if (path / WEIGHTS).is_file():
        return
    what, hint = f"{WEIGHTS} is missing", "fetch the folder again"
    if (path / PICKLE).is_file():
        what = f"{WEIGHTS} is missing, and {PICKLE} is a pickle, which can run code when loaded"
        hint = 'if you trust it: python -c "from diffusers import AutoencoderKL as A; A.from_pretrained('
        hint += f"{str(path)!r}, use_safetensors=False).save_pretrained('NEW')\""
    raise ModelFileError(what, where=path, hint=hint)

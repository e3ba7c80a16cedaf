"""Settings of diffusion. Imports no torch."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from vitrail.checks import refuse_given
from vitrail.data.images.augment import Augmentation
from vitrail.models.configs.base import Probability
from vitrail.tasks.diffusion.latents.vae_folder import VaeFolder, vae_of_run
from vitrail.tasks.settings import TaskSettings


class DiffusionSettings(TaskSettings):
    """Images made from noise, by a model that takes the noise out of images."""

    name: str = "diffusion"
    classes: bool = True
    """Use the labels of the data, where it has some; without, the model knows no classes."""
    label_dropout: Probability = 0.1
    """Fraction of the training images that are learned without their class, which guidance needs (Ho and Salimans 2022,
    https://arxiv.org/abs/2207.12598)."""
    latents: str | None = None
    """Folder of a VAE whose latents are learned in place of pixels: an ``AutoencoderKL``, as diffusers saves it. ``--image-size``
    is that of the images in pixels; the model takes one latent for every 8×8 pixels of most VAEs (Rombach et al. 2022,
    https://arxiv.org/abs/2112.10752). Images are encoded once, so that nothing but the horizontal flip can change them."""
    min_snr: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Bound γ of the weight of an image's error, 5 in the paper (Hang et al. 2023, https://arxiv.org/abs/2303.09556); none by
    default, which weighs all times alike."""
    best: Literal["loss", "kernel"] = "loss"
    """Metric that chooses the epoch that is kept: the validation loss, or the kernel distance of 64 samples from validation
    images, by their pixels. The samples cost an epoch about as much as 200 more training images."""

    places: ClassVar[tuple[str, ...]] = ("latents",)

    def require_possible(self, run: Any, *, starts: bool) -> None:
        if self.latents is not None:
            require_unchanged(run.augmentation)
            vae = vae_of_run(self.latents)
            if not starts:
                vae.latent_size(image_size_of(run, vae), run.model.config.size_multiple)

    def require_places(self, run: str | Path) -> None:
        if self.latents is not None:
            vae_of_run(self.latents, run)


def image_size_of(run: Any, vae: VaeFolder) -> tuple[int, int]:
    """Return height and width of a run's images in pixels: the model's, unless a preparation shows that these are of latents.

    So it is in the complete settings of a run, and where it starts from a model of latents.
    """
    height, width = run.model.config.image_size
    pixels = vae.factor * height, vae.factor * width
    return pixels if run.preparation is not None and run.preparation.image_size == pixels else (height, width)


def require_unchanged(augmentation: Augmentation) -> None:
    """Refuse changes of images that are encoded once, but for the horizontal flip; raises `ConfigError`."""
    changes = ("vertical_flip", "rotation", "brightness", "contrast", "saturation", "hue", "erasing", "mixup", "cutmix")
    given = {f"augmentation.{name}": getattr(augmentation, name) != 0 for name in changes}
    given |= {f"augmentation.{name}": getattr(augmentation, name) != "none" for name in ("crop", "policy")}
    refuse_given("latents are encoded once, and of all changes only the horizontal flip is made", given)


SETTINGS = DiffusionSettings

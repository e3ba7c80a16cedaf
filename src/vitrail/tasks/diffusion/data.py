"""The data of a run of diffusion: images, and their classes where they have some."""

from typing import Any, cast

from vitrail.config.settings import RunSettings
from vitrail.data.images.decode import upright_size
from vitrail.data.images.preparation import Preparation
from vitrail.data.items import ImageData
from vitrail.data.loading.sampler import spread
from vitrail.errors import DataError
from vitrail.models.configs.base import ImageConfig
from vitrail.task_registry import Labels, task_row
from vitrail.tasks.diffusion.latents.moments import encode_once
from vitrail.tasks.diffusion.latents.vae_folder import vae_of_run
from vitrail.tasks.diffusion.settings import DiffusionSettings, image_size_of, require_unchanged
from vitrail.training.images import ImageRunData
from vitrail.training.run_data import BeforeSteps
from vitrail.weights.model_folder.folder import TrainedModel

LOOKED_AT = 200
"""Training images whose size is compared with the model's."""


class DiffusionData(ImageRunData):
    """Images that a model learns to make, with classes unless the settings say otherwise."""

    counts_batch_memory = True
    scored_with_run = True

    def labels_for(self, settings: RunSettings) -> Labels:
        """Return "none" where the settings leave the classes out."""
        return self.row.labels if _own(settings).classes else "none"

    def require_learnable(self, source: ImageData) -> None:
        """Refuse data without training images, or whose images have several labels; raises `DataError`."""
        super().require_learnable(source)
        if source.classes and source.multi_label:
            hint = "give images with one class each, or add --task.classes false"
            raise DataError("images have several labels each, and a sample is made of one class", where=source.source, hint=hint)

    def complete(self, settings: RunSettings, source: ImageData, start: TrainedModel | None) -> RunSettings:
        """Return the settings with what the data and the VAE decide, and with absolute paths.

        Where latents are learned, ``model.image_size`` is in pixels before, and in latents afterwards.
        """
        folder = _own(settings).latents or getattr(start, "latents", None)
        if folder is None:
            return super().complete(settings, source, start)
        vae, model = vae_of_run(folder), cast(ImageConfig, settings.model.config)
        require_unchanged(settings.augmentation)
        for config, where in ((model, "--model.channels"), *([] if start is None else [(start.config, "--from")])):
            if start is not None or config.channels not in (1, 3):  # by default a recipe has those of pixels
                vae.require_channels(config.channels, where=where)
        pixels = image_size_of(settings, vae)
        if start is not None and pixels == start.config.image_size:  # no other is requested
            pixels = vae.factor * pixels[0], vae.factor * pixels[1]
        size = vae.latent_size(pixels, model.size_multiple)
        named = settings.changed(task=settings.task.changed(latents=str(vae.path)))
        completed = super().complete(named, source, start)
        return completed.changed(
            model=completed.model.changed(image_size=size, channels=vae.channels),
            preparation=Preparation.standard(pixels, vae.colors, settings.data.crop_ratio or 1.0, crop_rounding="down"),
        )

    def preparation_of(self, settings: RunSettings, source: Any) -> Any:
        """Return the preparation of the images; where latents are learned `complete` has decided it."""
        return super().preparation_of(settings, source) if _own(settings).latents is None else settings.preparation

    def advice(self, settings: RunSettings, source: ImageData) -> str | None:
        """Return a line for images that are far smaller than those that the VAE was trained with: recipes are for pixels."""
        prepared = settings.preparation
        if (folder := _own(settings).latents) is None or prepared is None:
            return None
        size, usual = max(prepared.image_size), vae_of_run(folder).image_size
        if 2 * size > usual:
            return None
        side = max(settings.model.config.image_size)
        return f"images of {size} pixels have {side} latents a side; the VAE was trained with {usual}: add --image-size {usual}"

    def before_steps(self, work: BeforeSteps) -> None:
        """Encode the images where latents are learned; a run that goes on finds them in its folder."""
        if work.learner.task.latents is not None:
            encode_once(work)

    def warnings(self, settings: RunSettings, source: ImageData) -> list[str]:
        """Return a line for images below the model's size, which would be enlarged, beside what every run of images warns of."""
        assert settings.preparation is not None
        lines, size = super().warnings(settings, source), settings.preparation.image_size
        items = source.split("train")
        some = [items[place].image for place in spread(len(items), LOOKED_AT)]
        small = sum(width < size[1] or height < size[0] for width, height in map(upright_size, some))
        if small:
            what = f"{small} of {len(some)} training images that were looked at are smaller than the model's {size[0]}×{size[1]}"
            lines.append(f"{what}: enlarged images are blurred, and so are those that are learned from them; lower --image-size")
        return lines


def _own(settings: RunSettings) -> DiffusionSettings:
    assert isinstance(settings.task, DiffusionSettings)
    return settings.task


DATA = DiffusionData(task_row("diffusion"))

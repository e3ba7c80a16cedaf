"""The advice to start from a trained model, told when a run begins."""

from vitrail.config.settings import RunSettings
from vitrail.data.items import ImageData
from vitrail.weights.published import SMALLEST

FEW = 10_000
"""With fewer training images than this, a model that has seen millions of others does far better than one that has seen none."""
LEAST_SIDE = 64
"""Models are published for photographs; images with a shorter side are digits, icons or CIFAR-10's."""


def advice_to_start(settings: RunSettings, source: ImageData) -> str | None:
    """Return a line that names a trained model to start from, for a classifier that learns from few photographs alone."""
    images = len(source.split("train"))
    if settings.start is not None or images >= FEW or min(settings.model.config.image_size) < LEAST_SIDE:
        return None
    return (
        f"{images:,} images are few to learn from scratch: a model that is trained already usually answers far better, "
        f"within minutes: add --from {SMALLEST} (in Python start={SMALLEST!r}; needs the extra hf, and a network once)"
    )

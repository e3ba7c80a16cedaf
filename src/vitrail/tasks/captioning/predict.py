"""``vitrail.caption``: pictures in, sentences about them out."""

from collections.abc import Iterable
from copy import copy
from pathlib import Path
from typing import Any

from vitrail.checks import require_positive
from vitrail.data.images.pictures import Picture, pictures_of
from vitrail.data.loading.prefetch import each_answer
from vitrail.deploy.predictor import predict_each
from vitrail.models.configs.texts import CAPTION_BEAMS, CAPTION_NO_REPEAT, LONGEST_CAPTION
from vitrail.runtime.device import Precision
from vitrail.tasks.captioning.predictor import Writer
from vitrail.tasks.captioning.weights import TrainedCaptioner
from vitrail.tasks.captioning.words import Caption


def caption(
    model: str | Path | TrainedCaptioner | Writer,
    images: Picture | Iterable[Picture],
    *,
    beams: int = CAPTION_BEAMS,
    samples: int = 0,
    no_repeat: int = CAPTION_NO_REPEAT,
    max_length: int = LONGEST_CAPTION,
    precision: Precision = "fp32",
    attention: bool = False,
    batch_size: int = 16,
) -> list[Caption]:
    """A sentence about every picture.

    >>> caption("runs/captions", ["cat.jpg", "dog.jpg"])[0].text  # doctest: +SKIP
    'A cat is sitting outside.'

    Args:
        model: a run folder, a model folder or a loaded captioner; or a `Writer`, which has the choices below.
        images: as in `vitrail.predict`.
        beams, samples, no_repeat, max_length, precision: as in `Writer`.
        attention: whether each word of a caption is to know where the model looked, a map over the image's patches.
        batch_size: images per batch.

    Raises:
        ModelFileError: a model that writes no captions.
        DataError: an image that cannot be read.
    """
    require_positive(batch_size=batch_size)
    options: dict[str, Any] = {"beams": beams, "samples": samples, "no_repeat": no_repeat, "max_length": max_length}
    options["precision"] = precision
    writer = model if isinstance(model, Writer) else Writer(model, **options)
    asked = copy(writer)
    asked.attention = attention
    return list(each_answer(predict_each(asked, pictures_of(images), batch_size=batch_size)))

"""Pictures in, sentences about them out, with the place that the model looked at for each word."""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitrail.checks import refuse_given, require_at_most, require_not_negative, require_positive
from vitrail.data.images.decode import Source
from vitrail.data.images.pictures import Picture, pictures_of
from vitrail.data.loading.prefetch import answer_ahead, each_answer
from vitrail.deploy.speculative_decoding import fast_copy
from vitrail.errors import DataError, ModelFileError
from vitrail.models.configs.texts import CAPTION_BEAMS, CAPTION_NO_REPEAT, LONGEST_CAPTION
from vitrail.models.inference import for_inference, in_evaluation_mode, sharing_copy
from vitrail.runtime.device import Precision, pick_device
from vitrail.tasks.captioning.task import write
from vitrail.tasks.captioning.weights import TrainedCaptioner, open_captioner
from vitrail.tasks.captioning.words import Caption, captions_of

MOST_BEAMS, MOST_SAMPLES = 64, 1024


class Writer:
    """A trained captioner, ready to answer.

    Args:
        model: a captioner, or the MODEL that it is behind.
        beams: captions that are followed side by side; 1 takes the likeliest token each time.
        samples: captions that are drawn from the model, of which the beam most like them is taken, for better captions in a
            multiple of the time; 0 takes the likeliest beam.
        no_repeat: so many tokens in a row are written once in a caption; 0 for no such rule.
        max_length: tokens of a caption, at most; a model that has learned longer ones can write them.
        precision: fp32 or bf16, of what looks at the images; the decoder computes in fp32.
    """

    def __init__(
        self,
        model: str | Path | TrainedCaptioner,
        *,
        beams: int = CAPTION_BEAMS,
        samples: int = 0,
        no_repeat: int = CAPTION_NO_REPEAT,
        max_length: int = LONGEST_CAPTION,
        precision: Precision = "fp32",
    ):
        require_positive(beams=beams, max_length=max_length)
        require_at_most("beams", beams, MOST_BEAMS)
        require_not_negative(samples=samples)
        require_at_most("samples", samples, MOST_SAMPLES)
        require_not_negative(no_repeat=no_repeat)
        refuse_given("samples choose among several beams, and there is one", {"samples": beams == 1 and samples > 0})
        self.trained = model if isinstance(model, TrainedCaptioner) else open_captioner(model)
        self.device = pick_device()
        self.model = in_evaluation_mode(self.trained.model, self.device)
        self.preparation, self.tokenizer = self.trained.preparation, self.trained.tokenizer
        self.beams, self.samples, self.no_repeat = beams, samples, no_repeat
        self.max_length = min(max_length, self.trained.config.max_tokens)
        self.fast = fast_copy(self.model)
        self.looking: Any = sharing_copy(self.model)
        self.looking.encoder = for_inference(self.model.get_submodule("encoder"), precision)
        self.engine = f"torch {precision}"
        """What computes, in what precision."""

    @property
    def attends(self) -> bool:
        """Whether the model has attention, and can say where it looked."""
        return getattr(self.trained.config, "attention", "") != "none"

    @torch.inference_mode()
    def captions(self, pixels: Tensor, *, attention: bool = False) -> list[Caption]:
        """A caption for each image, uint8 (B, C, H, W); with ``attention`` its words know where the model looked."""
        images = self.preparation.normalize(pixels.to(self.device))
        encoded = self.looking.encode(images)
        options: dict[str, Any] = {"max_length": self.max_length, "no_repeat": self.no_repeat, "encoded": encoded}
        written = write(self.fast, images, beams=self.beams, samples=self.samples, **options)
        if not all(math.isfinite(one.score) for one in written):
            hint = "its weights are damaged, or too large"
            raise ModelFileError("the model gives no numbers", where="model", hint=hint)
        return captions_of(self.model, self.tokenizer, encoded, written, attention=attention)


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
    return list(each_answer(captions_each(writer, pictures_of(images), batch_size=batch_size, attention=attention)))


def captions_each(
    writer: Writer, pictures: Sequence[Source], *, batch_size: int, attention: bool = False
) -> Iterator[list[Caption | DataError]]:
    """`caption`, batch by batch, with the error in place of a picture that cannot be read."""
    return answer_ahead(writer.preparation, pictures, batch_size, partial(writer.captions, attention=attention))

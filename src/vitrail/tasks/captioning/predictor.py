"""Prediction with captioning models, with attention for each word."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from vitrail.checks import refuse_given, require_at_most, require_not_negative, require_positive
from vitrail.data.images.pictures import Picture, pictures_of
from vitrail.data.loading.prefetch import each_answer
from vitrail.deploy.fast_writing import fast_copy, require_scores
from vitrail.deploy.predictor import Predictor, Prepared, Sink, predict_each
from vitrail.errors import ConfigError
from vitrail.files import whole_folder
from vitrail.models.configs.texts import CAPTION_BEAMS, CAPTION_NO_REPEAT, LONGEST_CAPTION
from vitrail.models.inference import for_inference, in_evaluation_mode, sharing_copy
from vitrail.runtime.device import Precision, pick_device
from vitrail.tasks.answer_table import Row
from vitrail.tasks.captioning.task import write
from vitrail.tasks.captioning.weights import TrainedCaptioner, open_captioner
from vitrail.tasks.captioning.words import Caption, captions_of

MOST_BEAMS, MOST_SAMPLES = 64, 1024


class Writer(Predictor):
    """A predictor of captions.

    Args:
        model: a captioning model, or its MODEL.
        beams: beam width; 1 is greedy decoding.
        samples: number of captions to sample; the beam most similar to them is chosen, which gives better captions in a
            multiple of the time. 0 chooses the most probable beam.
        no_repeat: length of token sequences that may occur only once in a caption; 0 for no such rule.
        max_length: most tokens of a caption.
        precision: precision of the encoder, fp32 or bf16; the decoder computes in fp32.
        looks: a folder to write the attention for each word to.
    """

    task: ClassVar[str] = "caption"

    def __init__(
        self,
        model: str | Path | TrainedCaptioner,
        *,
        beams: int = CAPTION_BEAMS,
        samples: int = 0,
        no_repeat: int = CAPTION_NO_REPEAT,
        max_length: int = LONGEST_CAPTION,
        precision: Precision = "fp32",
        looks: Path | None = None,
    ):
        require_positive(beams=beams, max_length=max_length)
        require_at_most("beams", beams, MOST_BEAMS)
        require_not_negative(samples=samples, no_repeat=no_repeat)
        require_at_most("samples", samples, MOST_SAMPLES)
        refuse_given("samples choose among several beams, but there is one", {"samples": beams == 1 and samples > 0})
        self.trained = model if isinstance(model, TrainedCaptioner) else open_captioner(model)
        self.device = pick_device()
        self.model = in_evaluation_mode(self.trained.model, self.device)
        self.preparation, self.tokenizer = self.trained.preparation, self.trained.tokenizer
        self.beams, self.samples, self.no_repeat = beams, samples, no_repeat
        self.max_length = min(max_length, self.trained.config.max_tokens)
        self.fast = fast_copy(self.model)
        self.looking: Any = sharing_copy(self.model)
        self.looking.encoder = for_inference(self.model.get_submodule("encoder"), precision)
        self.name = f"torch {precision}"
        self.looks, self.attention = looks, looks is not None
        if self.attention and not self.attends:
            raise ConfigError("the model has no attention", where="--attention", hint="leave out --attention")

    @property
    def engine(self) -> str:
        """Engine and precision."""
        return self.name

    @property
    def attends(self) -> bool:
        """True if the model has attention."""
        return getattr(self.trained.config, "attention", "") != "none"

    @torch.inference_mode()
    def captions(self, pixels: Tensor, *, attention: bool = False) -> list[Caption]:
        """Return a caption for each image, uint8 (B, C, H, W); with ``attention``, each word has its attention."""
        images = self.preparation.normalize(pixels.to(self.device))
        encoded = self.looking.encode(images)
        options: dict[str, Any] = {"max_length": self.max_length, "no_repeat": self.no_repeat, "encoded": encoded}
        written = require_scores(write(self.fast, images, beams=self.beams, samples=self.samples, **options))
        return captions_of(self.model, self.tokenizer, encoded, written, attention=attention)

    @property
    def network(self) -> Callable[[Tensor], list[Caption]]:
        return self.captions

    @property
    def head(self) -> Row:
        return ["caption", "score"]

    def preprocess(self, source: Any) -> Prepared:
        return Prepared([self.preparation.pixels(source)])

    def compute(self, rows: Sequence[np.ndarray], batch_size: int) -> list[Caption]:
        """Return the caption of each image."""
        batches = torch.from_numpy(np.stack(rows)).split(batch_size)
        return [caption for batch in batches for caption in self.captions(batch, attention=self.attention)]

    def postprocess(self, outputs: list[Caption], prepared: Sequence[Prepared]) -> list[Caption]:
        return outputs

    def sinks(self, files: Sequence[Path]) -> list[Sink]:
        return [] if self.looks is None else [_written_looks(self.looks, self)]


@contextmanager
def _written_looks(folder: Path, writer: Writer) -> Iterator[Callable[[tuple[Path, Caption]], None]]:
    """Collect captions, and at the end write a sheet with the attention for each image, and a page with all sheets."""
    from vitrail.tasks.captioning.report import write_looks  # and matplotlib

    captions: list[tuple[Path, Caption]] = []
    yield captions.append
    with whole_folder(folder, replace=False) as draft:
        write_looks(draft, writer.trained, captions)


def in_python(
    trained: TrainedCaptioner, precision: Precision | None = None, device: Any = "cpu", *, prepacked: bool = True
) -> Writer:
    """Return the predictor of a trained captioner, on the best device; see `vitrail.deploy.predictor.in_python`."""
    return Writer(trained, precision=precision or "fp32")


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
    """Write a caption of every image.

    >>> caption("runs/captions", ["cat.jpg", "dog.jpg"])[0].text  # doctest: +SKIP
    'A cat is sitting outside.'

    Args:
        model: a run folder, a model folder or a loaded captioner; or a `Writer`, which already has the options below.
        images: as in `vitrail.predict`.
        beams, samples, no_repeat, max_length, precision: as in `Writer`.
        attention: whether to return the attention of each word, a map over the image's patches.
        batch_size: images per batch.

    Raises:
        ModelFileError: the model is not a captioner.
        DataError: an image cannot be read.
    """
    require_positive(batch_size=batch_size)
    options: dict[str, Any] = {"beams": beams, "samples": samples, "no_repeat": no_repeat, "max_length": max_length}
    writer = copy(model if isinstance(model, Writer) else Writer(model, precision=precision, **options))
    writer.attention = attention
    return list(each_answer(predict_each(writer, pictures_of(images), batch_size=batch_size)))

"""A sentence about an image, written word by word."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.data.images.augment import Augmentation
from vitrail.data.images.decode import Source
from vitrail.data.images.preparation import Preparation
from vitrail.data.images.transform import Transform
from vitrail.data.loading.batches import Batch
from vitrail.data.text.dataset import filled
from vitrail.data.text.tokens import Tokens
from vitrail.models.inference import evaluation_mode
from vitrail.models.text.sampling import sample
from vitrail.models.text.search import Written, beam_search
from vitrail.models.text.text_model import TextModel
from vitrail.tasks.captioning.floors import one_caption
from vitrail.tasks.captioning.images.captioned_images import CaptionData, Captioned
from vitrail.tasks.captioning.images.dataset import CaptionDataset
from vitrail.tasks.captioning.scores import caption_scores, most_like_all, words
from vitrail.tasks.captioning.settings import CaptionSettings
from vitrail.tasks.captioning.weights import TrainedCaptioner
from vitrail.tasks.captioning.words import Caption, captions_of
from vitrail.tasks.floor import Floor
from vitrail.tasks.metrics import metrics_in
from vitrail.tasks.task import Answers, Metrics, Options
from vitrail.tasks.token_task import TokenMetrics, TokenTask

SAME = 0.2
"""Least fraction of the images with the same caption for a warning."""
FLOORS = {"one_caption": "one caption for all", "nearest_image": "the nearest training image's caption"}
"""Names of the floors of captions, for people."""
TEMPERATURE = 0.65
"""Temperature of drawn captions; at 1 too many are unlike all others to say what they have in common."""


class Captioning(TokenTask):
    """Cross-entropy with every token of each caption of an image, given those before it (teacher forcing)."""

    name = "caption"
    report_seconds: ClassVar[float] = 6.0

    def __init__(
        self,
        model: TextModel,
        preparation: Preparation,
        tokenizer: Tokens,
        settings: CaptionSettings,
        *,
        label_smoothing: float = 0.0,
    ):
        super().__init__(model, tokenizer.pad, label_smoothing=label_smoothing)
        self.preparation, self.tokenizer, self.settings = preparation, tokenizer, settings

    @classmethod
    def create(cls, model: TextModel, preparation: Preparation, data: CaptionData, options: Options) -> Self:
        assert isinstance(options.task, CaptionSettings) and data.tokenizer is not None
        return cls(model, preparation, data.tokenizer, options.task, label_smoothing=options.label_smoothing)

    def dataset(
        self,
        items: Sequence[Captioned],
        augmentation: Augmentation | None = None,
        *,
        seed: int = 0,
        transform: Transform | None = None,
    ) -> CaptionDataset:
        """Return images as the model sees them, with their captions; in training no longer than ``task.max_length``."""
        most = self.model.config.max_tokens if augmentation is None else self.longest
        return CaptionDataset(items, self.preparation, self.tokenizer, augmentation, seed, most=most, transform=transform)

    def encode(self, batch: Batch) -> Any:
        return self.model.encode(self.preparation.normalize(batch["images"]))

    def answer(self, batch: Batch) -> Answers:
        """Return `token_answers`, and ``written``, int64 (B, longest): the model's captions, filled up with ``pad``."""
        encoded = self.encode(batch)
        written = filled([one.tokens for one in self.write(batch["images"], encoded)], self.pad, self.longest)
        rest = (0, self.longest - written.shape[1])
        return {**self.token_answers(batch, encoded), "written": F.pad(written, rest, value=self.pad)}

    @property
    def longest(self) -> int:
        """Most tokens of a caption that is written, with the end."""
        return min(self.settings.max_length, self.model.config.max_tokens)

    def write(self, images: Tensor, encoded: Any) -> list[Written]:
        """Write the caption of each image, which the model has ``encoded``."""
        options: dict[str, Any] = {"max_length": self.longest, "no_repeat": self.settings.no_repeat, "encoded": encoded}
        return write(self.model, images, beams=self.settings.beams, samples=self.settings.samples, **options)

    @torch.inference_mode()
    def caption(self, image: Source) -> Caption:
        """Return the model's caption of an image, with its attention for each word."""
        with evaluation_mode(self):
            pixels = torch.from_numpy(self.preparation.pixels(image))[None].to(next(self.model.parameters()).device)
            encoded = self.encode({"images": pixels})
            written = self.write(pixels, encoded)
            (caption,) = captions_of(self.model, self.tokenizer, encoded, written, attention=True)
        return caption

    def metrics(self, *, keep: bool = False) -> "CaptionMetrics":
        return CaptionMetrics(self)

    def floor(self, metrics: Metrics, items: Sequence[Captioned], known: Sequence[Captioned]) -> Floor | None:
        """Return the scores of one known caption for all of the ``items``."""
        one = one_caption(known, items)
        return Floor(f"“{one['caption']}” for all", one)

    def trained(self, model: TextModel) -> TrainedCaptioner:
        return TrainedCaptioner(model, self.tokenizer, self.preparation)


create = Captioning.create


def write(model: TextModel, images: Tensor, *, beams: int, samples: int = 0, no_repeat: int = 0, **options: Any) -> list[Written]:
    """Write the caption of each image: the likeliest token each time (``beams`` of 1), or the best of several beams.

    Without ``samples`` the best is the one with the largest mean over its tokens, as ``generate`` of transformers does; with them
    it is the one most like so many captions that are drawn from the model. See `beam_search` for the ``options``.
    """
    many: dict[str, Any] = {"best": beams if samples else 1, "length_penalty": 0 if beams == 1 else 1.0, "length_offset": 0}
    searched = beam_search(model, images, beams=beams, no_repeat=no_repeat, **many, **options)
    if not samples:
        return [captions[0] for captions in searched]
    drawn = sample(model, images, samples=samples, temperature=TEMPERATURE, **options)
    return [beam[most_like_all([one.tokens for one in beam], others)] for beam, others in zip(searched, drawn, strict=True)]


class CaptionMetrics(TokenMetrics):
    """BLEU, ROUGE-L and CIDEr-D of written captions, and loss and accuracy per token of the references."""

    floors: dict[str, dict[str, Any]] | None = None
    """Scores of simple answers, where they are known; see `vitrail.tasks.captioning.floors`."""

    def __init__(self, task: Captioning):
        super().__init__(task.pad)
        self.tokenizer = task.tokenizer

    def update(self, answers: Answers, batch: Batch) -> None:
        self.add_tokens(answers, batch["labels"])
        self.add_texts(batch["number"], [self.tokenizer.decode(tokens) for tokens in answers["written"].tolist()])

    def scores(self) -> dict[str, float | int]:
        written = [words(caption) for _, caption, _ in self.texts]
        references = [[words(one) for one in own] for _, _, own in self.texts]
        return {**(caption_scores(written, references) if written else {}), **super().scores(), "images": len(written)}

    def details(self) -> dict[str, Any]:
        """Return the `scores`, the floors, and a warning where many images have the same caption."""
        scores: dict[str, Any] = dict(self.scores())
        if self.floors is not None:
            scores["floors"] = self.floors
        if warning := self.warning:
            scores["warning"] = warning
        return scores

    def lines(self, details: Mapping[str, Any]) -> list[str]:
        floors = {
            name: ", ".join(f"{metric.short} {metric.shown(floor[metric.name])}" for metric in metrics_in(floor))
            for name, floor in details.get("floors", {}).items()
        }
        return [f"without a captioner, {FLOORS[name]}: {scores}" for name, scores in floors.items()]

    def remarks(self, details: Mapping[str, Any]) -> list[str]:
        return [f"warning: {details['warning']}"] if "warning" in details else []

    @property
    def warning(self) -> str:
        """A line where more than a fifth of the images have the same caption, else nothing."""
        often = Counter(" ".join(words(caption)) for _, caption, _ in self.texts).most_common(1)
        caption, count = often[0] if often else ("", 0)
        if count <= SAME * len(self.texts) or count < 2:
            return ""
        return f"{count:,} of {len(self.texts):,} images have the same caption: {caption}"


def caption_rows(items: Sequence[Captioned], metrics: CaptionMetrics) -> list[tuple[str, str, str]]:
    """Return a head, then name, caption and references of the images in their order."""
    rows = [(items[number].name, caption, " | ".join(items[number].target)) for number, caption, _ in metrics.texts]
    return [("image", "caption", "references"), *rows]

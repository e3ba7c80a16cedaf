"""The task of captioning: loss, metrics and search."""

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
"""Fraction of images with the same caption above which a warning is given."""
FLOORS = {"one_caption": "one caption for all", "nearest_image": "the nearest training image's caption"}
"""Names of the baselines in messages."""
TEMPERATURE = 0.65
"""Temperature of sampled captions; at 1 too many samples are unlike all others to find the most typical caption."""


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
        """Return prepared images with their captions; in training, captions are cut to ``task.max_length`` tokens."""
        most = self.model.config.max_tokens if augmentation is None else self.longest
        return CaptionDataset(items, self.preparation, self.tokenizer, augmentation, seed, most=most, transform=transform)

    def encode(self, batch: Batch) -> Any:
        return self.model.encode(self.preparation.normalize(batch["images"]))

    def answer(self, batch: Batch) -> Answers:
        """Return `token_answers`, and ``written``, int64 (B, longest): the model's captions, padded with ``pad``."""
        encoded = self.encode(batch)
        written = filled([one.tokens for one in self.write(batch["images"], encoded)], self.pad, self.longest)
        rest = (0, self.longest - written.shape[1])
        return {**self.token_answers(batch, encoded), "written": F.pad(written, rest, value=self.pad)}

    @property
    def longest(self) -> int:
        """Most tokens of a written caption, including the end token."""
        return min(self.settings.max_length, self.model.config.max_tokens)

    def write(self, images: Tensor, encoded: Any) -> list[Written]:
        """Write the caption of each image; ``encoded`` is the output of `encode`."""
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
        """Return the scores of one training caption for all ``items``."""
        one = one_caption(known, items)
        return Floor(f"“{one['caption']}” for all", one)

    def trained(self, model: TextModel) -> TrainedCaptioner:
        return TrainedCaptioner(model, self.tokenizer, self.preparation)


create = Captioning.create


def write(model: TextModel, images: Tensor, *, beams: int, samples: int = 0, no_repeat: int = 0, **options: Any) -> list[Written]:
    """Write the caption of each image by greedy decoding (``beams`` of 1), or the best caption of a beam search.

    Without ``samples`` the best beam has the largest mean log-probability of its tokens, as in transformers' ``generate``. With
    ``samples`` it is the beam most similar to this many captions sampled from the model. For ``options`` see `beam_search`.
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
    """Scores of the baselines, if they were computed; see `vitrail.tasks.captioning.floors`."""

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
        """Return the `scores`, the baselines, and a warning if many images have the same caption."""
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
        """A warning if more than `SAME` of the images have the same caption; else an empty text."""
        often = Counter(" ".join(words(caption)) for _, caption, _ in self.texts).most_common(1)
        caption, count = often[0] if often else ("", 0)
        if count <= SAME * len(self.texts) or count < 2:
            return ""
        return f"{count:,} of {len(self.texts):,} images have the same caption: {caption}"


def caption_rows(items: Sequence[Captioned], metrics: CaptionMetrics) -> list[tuple[str, str, str]]:
    """Return a header row, then a row with name, caption and references for each image, in order."""
    rows = [(items[number].name, caption, " | ".join(items[number].target)) for number, caption, _ in metrics.texts]
    return [("image", "caption", "references"), *rows]

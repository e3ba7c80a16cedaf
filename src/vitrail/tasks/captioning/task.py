"""A sentence about an image, written word by word."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

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
from vitrail.models.text.search import Written, beam_search, greedy
from vitrail.models.text.text_model import TextModel
from vitrail.runtime.processes import Processes
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
from vitrail.tasks.token_task import TokenTask

SAME = 0.2
"""Share of the images from which on it is told that they have the same caption."""
FLOORS = {"one_caption": "one caption for all", "nearest_image": "the nearest training image's caption"}
"""Names of the floors of captions, for people."""
TEMPERATURE = 0.65
"""Of the captions that are drawn; of those at 1 too many are unlike all others to say what they have in common."""


class ToEvaluate(NamedTuple):
    """What a captioner is evaluated on."""

    items: Sequence[Captioned]
    split: str
    """Which part of the data the images are."""
    settings: CaptionSettings
    """How captions are written."""
    known: Sequence[Captioned]
    """Images that it learned from, for what can be had without a captioner; none where there are none."""


class Captioning(TokenTask):
    """Cross-entropy with every token of each caption of an image, given those before it (teacher forcing).

    Args:
        model: images and captions to logits of the next token.
        preparation: normalizes the pixels.
        tokenizer: captions to tokens and back.
        settings: how captions are written when the model is evaluated.
        label_smoothing: share of the target that is spread over all tokens.
    """

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
        """Images as the model sees them, with their captions: what is learned from no longer than ``task.max_length``."""
        most = self.model.config.max_tokens if augmentation is None else self.longest
        return CaptionDataset(items, self.preparation, self.tokenizer, augmentation, seed, most=most, transform=transform)

    def encode(self, batch: Batch) -> Any:
        return self.model.encode(self.preparation.normalize(batch["images"]))

    def answer(self, batch: Batch) -> Answers:
        """Of the captions of each image the sum of the losses of their tokens, and how many are the likeliest, (B,) each.

        And ``written``, int64 (B, longest): the caption that the model writes, filled up with ``pad``.
        """
        encoded = self.encode(batch)
        written = filled([one.tokens for one in self.write(batch["images"], encoded)], self.pad, self.longest)
        rest = (0, self.longest - written.shape[1])
        return {**self.token_answers(batch, encoded), "written": F.pad(written, rest, value=self.pad)}

    @property
    def longest(self) -> int:
        """Tokens of a caption that is written, its end among them."""
        return min(self.settings.max_length, self.model.config.max_tokens)

    def write(self, images: Tensor, encoded: Any) -> list[Written]:
        """The caption of each image, which the model has ``encoded``."""
        options: dict[str, Any] = {"max_length": self.longest, "no_repeat": self.settings.no_repeat, "encoded": encoded}
        return write(self.model, images, beams=self.settings.beams, samples=self.settings.samples, **options)

    @torch.inference_mode()
    def caption(self, image: Source) -> Caption:
        """What the model writes about a picture, and where it looked for each word."""
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


def write(model: TextModel, images: Tensor, *, beams: int, samples: int = 0, no_repeat: int = 0, **options: Any) -> list[Written]:
    """The caption of each image: the likeliest token each time (``beams`` of 1), or the best of several beams.

    Without ``samples`` the best is the one with the largest mean over its tokens, as ``generate`` of transformers does; with them
    it is the one most like so many captions that are drawn from the model. See `greedy` for the ``options``.
    """
    if beams == 1:
        return greedy(model, images, no_repeat=no_repeat, **options)
    options_of_beams = {"length_penalty": 1.0, "length_offset": 0, "no_repeat": no_repeat, **options}
    found = beam_search(model, images, beams=beams, best=beams if samples else 1, **options_of_beams)
    if not samples:
        return [captions[0] for captions in found]
    drawn = sample(model, images, samples=samples, temperature=TEMPERATURE, **options)
    return [beam[most_like_all([one.tokens for one in beam], others)] for beam, others in zip(found, drawn, strict=True)]


class CaptionMetrics(Metrics):
    """BLEU, ROUGE-L and CIDEr-D of what is written, and the loss and accuracy per token of what people wrote.

    The tokens of a long caption may be cut; what is written is compared with all of it, so it needs the images: `take_items`.
    """

    floors: dict[str, dict[str, Any]] | None = None
    """Scores of what can be had without a captioner, where they are known; see `vitrail.tasks.captioning.floors`."""

    def __init__(self, task: Captioning):
        self.tokenizer = task.tokenizer
        self.items: Sequence[Captioned] = ()
        self.sums = torch.zeros(3, dtype=torch.float64)  # loss, right tokens, tokens
        self.captions: list[tuple[int, str, list[str]]] = []
        """Of every image its number, the caption that was written, and what people wrote."""

    def take_items(self, items: Sequence[Captioned]) -> None:
        """The images, with all that people wrote."""
        self.items = items

    def update(self, answers: Answers, batch: Batch) -> None:
        tokenizer, labels = self.tokenizer, batch["labels"]
        sums = answers["loss"].sum(), answers["right"].sum(), (labels != tokenizer.pad).sum()
        self.sums += torch.stack([number.cpu().double() for number in sums])
        for number, tokens in zip(batch["number"].tolist(), answers["written"].tolist(), strict=True):
            self.captions.append((number, tokenizer.decode(tokens), list(self.items[number].target)))

    def reduce(self, group: Processes) -> None:
        self.sums = group.all_reduce(self.sums)
        self.captions = sorted(group.gathered(self.captions), key=lambda caption: caption[0])

    def scores(self) -> dict[str, float | int]:
        loss, right, tokens = self.sums.tolist()
        tokens = max(1.0, tokens)
        written = [words(caption) for _, caption, _ in self.captions]
        found = caption_scores(written, [[words(one) for one in own] for _, _, own in self.captions]) if written else {}
        return {
            **found,
            "loss": loss / tokens,
            "token_accuracy": right / tokens,
            "images": len(written),
        }

    def details(self) -> dict[str, Any]:
        """The `scores`, the floors, and a warning where many images have the same caption."""
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
        """That more than a fifth of the images have the same caption; nothing where they have not."""
        often = Counter(" ".join(words(caption)) for _, caption, _ in self.captions).most_common(1)
        caption, count = often[0] if often else ("", 0)
        if count <= SAME * len(self.captions) or count < 2:
            return ""
        return f"{count:,} of {len(self.captions):,} images have the same caption: {caption}"


def caption_rows(items: Sequence[Captioned], metrics: CaptionMetrics) -> list[tuple[str, str, str]]:
    """A head, then name, caption, and what people wrote, of the images in their order."""
    rows = [(items[number].name, caption, " | ".join(items[number].target)) for number, caption, _ in metrics.captions]
    return [("image", "caption", "references"), *rows]


create = Captioning.create

"""What a captioner has to be better than: one caption for all images, and the caption of the most similar image."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.data.captions.captions import Captioned
from vitrail.data.loader import EpochLoader
from vitrail.data.order import some_items
from vitrail.tasks.caption_scores import Rarity, caption_scores, words
from vitrail.tasks.captioning import Captioning
from vitrail.tasks.evaluation import answering

KNOWN = 2000
"""Most training images that are compared."""
TRIED, JUDGES = 200, 100
"""Captions that are tried as the one for all, and images whose captions they are compared with."""


def floors(task: Captioning, known: Sequence[Captioned], items: Sequence[Captioned]) -> dict[str, dict[str, Any]]:
    """Scores of the captions that are written without a captioner, on some images, from others that are ``known``.

    Returns:
        ``one_caption``: the training caption that is most like other training images' captions, for every image.
        ``nearest_image``: the first caption of the training image whose vector, by the captioner's own encoder, is the most
        similar.
    """
    known = some_items(known, KNOWN, 0)
    references = [[words(caption) for caption in item.target] for item in items]
    one = typical_caption(known)
    nearest = _vectors(task, items) @ _vectors(task, known).T  # (images, known)
    borrowed = [words(known[place].target[0]) for place in nearest.argmax(dim=1).tolist()]
    return {
        "one_caption": {**caption_scores([words(one)] * len(items), references), "caption": one},
        "nearest_image": caption_scores(borrowed, references),
    }


def typical_caption(known: Sequence[Captioned]) -> str:
    """Of some images' captions the one that is most like the captions of the other images, by CIDEr-D."""
    judges = [[words(caption) for caption in item.target] for item in some_items(known, JUDGES, 1)]
    rarity = Rarity.of(judges)

    def likeness(caption: str) -> float:
        return sum(rarity.cider_d(words(caption), own) for own in judges)

    return max((item.target[0] for item in some_items(known, TRIED, 2)), key=likeness)


def _vectors(task: Captioning, items: Sequence[Captioned]) -> Tensor:
    """The vector of each image, of length 1: (N, D)."""
    model: Any = task.model
    device, encoder = next(task.parameters()).device, model.encoder
    loader = EpochLoader(task.dataset(items), 64, shuffle=False)
    with answering(task, device):
        batches = [encoder.vectors(task.preparation.normalize(batch["images"].to(device))) for batch in loader.epoch()]
    return F.normalize(torch.cat(batches).float(), dim=1).cpu()

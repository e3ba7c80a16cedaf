"""Baselines that a captioner should exceed: one caption for all images, and the caption of the most similar image."""

import math
import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.data.loading.loader import EpochLoader
from vitrail.data.loading.sampler import some_items
from vitrail.tasks.captioning.images.captioned_images import Captioned
from vitrail.tasks.captioning.scores import Rarity, caption_scores, words
from vitrail.tasks.evaluation import answering

KNOWN = 2000
"""Most training images that are used."""
TRIED, JUDGES = 200, 100
"""Number of captions to try as the one for all images, and of images whose captions they are compared with."""


def floors(task: Any, known: Sequence[Captioned], items: Sequence[Captioned]) -> dict[str, dict[str, Any]]:
    """Return the scores of `one_caption` and `nearest_image` on ``items``, with captions of the training images ``known``."""
    return {"one_caption": one_caption(known, items), "nearest_image": nearest_image(task, known, items)}


def one_caption(known: Sequence[Captioned], items: Sequence[Captioned]) -> dict[str, Any]:
    """Return the scores of the most typical training caption, used for every image."""
    one = typical_caption(some_items(known, KNOWN, 0))
    return {**caption_scores([words(one)] * len(items), _references(items)), "caption": one}


def nearest_image(
    task: Any, known: Sequence[Captioned], items: Sequence[Captioned], *, seconds: float = math.inf
) -> dict[str, Any]:
    """Return the scores of the first caption of the most similar training image, by feature vectors of the captioner's encoder.

    If ``seconds`` are too few to encode all training images, a random part is used; the result is empty if there is no time.
    """
    begun = time.perf_counter()
    vectors = _vectors(task, items)
    took = time.perf_counter() - begun
    known = some_items(known, int(min(KNOWN, max(0.0, seconds - took) / took * len(items))), 0)
    if not known:
        return {}
    nearest = vectors @ _vectors(task, known).T  # (images, known)
    borrowed = [words(known[place].target[0]) for place in nearest.argmax(dim=1).tolist()]
    return caption_scores(borrowed, _references(items))


def _references(items: Sequence[Captioned]) -> list[list[list[str]]]:
    return [[words(caption) for caption in item.target] for item in items]


def typical_caption(known: Sequence[Captioned]) -> str:
    """Return the caption that is most similar, by CIDEr-D, to the captions of the other images."""
    judges = _references(some_items(known, JUDGES, 1))
    rarity = Rarity.of(judges)
    known_ones = [[rarity.weighed(caption) for caption in own] for own in judges]

    def likeness(caption: str) -> float:
        weighed = rarity.weighed(words(caption))
        return sum(sum(map(weighed.likeness, own)) / len(own) for own in known_ones)

    return max((item.target[0] for item in some_items(known, TRIED, 2)), key=likeness)


def _vectors(task: Any, items: Sequence[Captioned]) -> Tensor:
    """Return the feature vector of each image, normalised to length 1: (N, D)."""
    model: Any = task.model
    device, encoder = next(task.parameters()).device, model.encoder
    loader = EpochLoader(task.dataset(items), 64, shuffle=False)
    with answering(task, device):
        batches = [encoder.vectors(task.preparation.normalize(batch["images"].to(device))) for batch in loader.epoch()]
    return F.normalize(torch.cat(batches).float(), dim=1).cpu()

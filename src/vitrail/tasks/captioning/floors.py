"""Scores that a captioner has to exceed: of one caption for all images, and of the caption of the most similar image."""

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
"""Most training images that are compared."""
TRIED, JUDGES = 200, 100
"""Captions that are tried as the one for all, and images whose captions they are compared with."""


def floors(task: Any, known: Sequence[Captioned], items: Sequence[Captioned]) -> dict[str, dict[str, Any]]:
    """Return the scores of `one_caption` and of `nearest_image` for some images, from others that are ``known``."""
    return {"one_caption": one_caption(known, items), "nearest_image": nearest_image(task, known, items)}


def one_caption(known: Sequence[Captioned], items: Sequence[Captioned]) -> dict[str, Any]:
    """Return the scores of the known caption that is most like other known images' captions, for every image."""
    one = typical_caption(some_items(known, KNOWN, 0))
    return {**caption_scores([words(one)] * len(items), _references(items)), "caption": one}


def nearest_image(
    task: Any, known: Sequence[Captioned], items: Sequence[Captioned], *, seconds: float = math.inf
) -> dict[str, Any]:
    """Return the scores of the first caption of the most similar known image, by the vectors of the captioner's own encoder.

    Where ``seconds`` are too few to encode all known images, some of them at random are compared; empty where there is no time.
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
    """Return the caption of some images that is most like the captions of the other images, by CIDEr-D."""
    judges = _references(some_items(known, JUDGES, 1))
    rarity = Rarity.of(judges)
    known_ones = [[rarity.weighed(caption) for caption in own] for own in judges]

    def likeness(caption: str) -> float:
        weighed = rarity.weighed(words(caption))
        return sum(sum(map(weighed.likeness, own)) / len(own) for own in known_ones)

    return max((item.target[0] for item in some_items(known, TRIED, 2)), key=likeness)


def _vectors(task: Any, items: Sequence[Captioned]) -> Tensor:
    """Return the vector of each image, of length 1: (N, D)."""
    model: Any = task.model
    device, encoder = next(task.parameters()).device, model.encoder
    loader = EpochLoader(task.dataset(items), 64, shuffle=False)
    with answering(task, device):
        batches = [encoder.vectors(task.preparation.normalize(batch["images"].to(device))) for batch in loader.epoch()]
    return F.normalize(torch.cat(batches).float(), dim=1).cpu()

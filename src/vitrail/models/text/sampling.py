"""Random texts, sampled from a model's distribution."""

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from vitrail.checks import require_positive
from vitrail.models.inference import evaluation_mode
from vitrail.models.text.search import banned_tokens, first_tokens, go_on, lengths_allowed
from vitrail.models.text.text_model import TextModel


def sample(
    model: TextModel,
    source: Tensor,
    *,
    samples: int,
    max_length: int | Tensor,
    temperature: float = 1.0,
    banned: Collection[int] | None = None,
    encoded: Any = None,
) -> list[list[list[int]]]:
    """Sample several texts for each source, and return their tokens, without start and end.

    Texts are the same in every call and for every batch composition: tokens are sampled with Gumbel noise
    (``argmax(log p / temperature + noise)`` has the distribution of the softmax), and all sources share one noise.

    Args:
        model, source, max_length, banned, encoded: as in `vitrail.models.text.search.beam_search`.
        samples: number of texts per source.
        temperature: below 1, likely tokens are sampled more often than the model predicts; above 1, less often.

    Raises:
        ConfigError: a length or a number of samples below one, or a temperature that is not above 0.
    """
    require_positive(samples=samples, temperature=temperature)
    limits, banned, end = lengths_allowed(max_length, source), banned_tokens(model, banned), model.config.end
    random = torch.Generator().manual_seed(0)
    going, tokens = torch.arange(len(source)), first_tokens(model, source)  # (A,) and (A, 1), for the A unfinished sources
    texts = [torch.empty(samples, 0, dtype=torch.int64)] * len(source)
    with evaluation_mode(model), torch.inference_mode():
        state = model.begin(model.encode(source) if encoded is None else encoded)
        while len(going):
            logits = model.step(tokens, state).float()  # (A, 1 or samples, vocabulary)
            logits[..., banned] = float("-inf")
            noise = -torch.empty(samples, logits.shape[-1]).exponential_(generator=random).log()
            drawn = (logits / temperature + noise.to(logits.device)).argmax(dim=-1)  # (A, samples)
            if logits.shape[1] == 1:
                state.follow(drawn.new_zeros(drawn.shape))  # the first step turns one target into several
            for number, row in zip(going.tolist(), drawn.cpu(), strict=True):
                texts[number] = torch.cat([texts[number], row[:, None]], dim=1)
            on = torch.tensor([limits[n] > texts[n].shape[1] and not (texts[n] == end).any(1).all() for n in going.tolist()])
            go_on(state, on, source.device)
            going, tokens = going[on], drawn[on.to(drawn.device)]
    return [[text[: [*text, end].index(end)] for text in own.tolist()] for own in texts]

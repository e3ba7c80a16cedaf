"""What a model has learned before its first block: where patches stand, and what a patch is made of."""

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.errors import ConfigError
from vitrail.models.base import ImageModel
from vitrail.study.captures import model_in


@torch.no_grad()
def position_similarity(model: nn.Module) -> Tensor:
    """How alike the positions of any two patches are: (rows, columns, rows, columns), the query's row and column first.

    Of positions that are added to tokens the cosine similarity (Dosovitskiy et al. 2021, figure 7, centre). Of a relative bias
    the mean over heads, and over blocks that have their own, of what it adds to a score. Of rotary positions the score of two
    equal tokens, ``mean over planes of cos(θ_i − θ_j)``, that is how much alike two tokens still are when both have been turned.

    Raises:
        ConfigError: the model knows no positions.
    """
    vit: Any = model_in(model)
    c = vit.config
    if c.position.startswith("relative"):
        bias = vit.relative()
        similar = (torch.cat(bias) if isinstance(bias, tuple) else bias).mean(dim=0)
    elif c.position == "rotary":
        cos, sin = vit.rotary()
        similar = (cos @ cos.T + sin @ sin.T) / cos.shape[1]
    elif c.position == "none":
        raise ConfigError("the model knows no positions", where="position_similarity", hint="it was built with position none")
    else:
        table = F.normalize(position_table(vit), dim=1)
        similar = table @ table.T
    n = c.grid[0] * c.grid[1]
    return similar[-n:, -n:].reshape(*c.grid, *c.grid)


def position_table(model: Any) -> Tensor:
    """E_pos of the patches, (N, D), whatever added scheme makes it."""
    c = model.config
    zeros = torch.zeros(1, c.position_prefix + c.grid[0] * c.grid[1], c.dim, device=next(model.parameters()).device)
    table: Tensor = model.position(zeros)[0, c.position_prefix :]
    return table


@torch.no_grad()
def filters(model: nn.Module, count: int = 28) -> tuple[Tensor, Tensor]:
    """Principal components of the first filters (Dosovitskiy et al. 2021, figure 7, left), those that explain most first.

    Of a plain embedding these are patches, of a stem, a hybrid or a convolutional network kernels of the first convolution, of
    a T2T-ViT what its first queries, keys and values are made of.

    Returns:
        components (count, C, h, w) of length 1, and the share of the filters' variance that each explains, (count,).
    """
    first = cast(ImageModel, model_in(model)).filters()
    weights = first.cpu().double().flatten(1)  # (D, C·h·w)
    _, lengths, components = torch.linalg.svd(weights - weights.mean(dim=0), full_matrices=False)
    shares = lengths**2 / (lengths**2).sum()
    return components[:count].unflatten(1, first.shape[1:]).float(), shares[:count].float()

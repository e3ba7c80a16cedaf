"""What a model has learned before its first block: where patches stand, and what a patch is made of."""

from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.errors import ConfigError
from vitrail.models.base import ImageModel
from vitrail.parts import LearnedPosition1d, RelativePositionBias
from vitrail.parts.positions.interpolation import offsets_of
from vitrail.study.maps.captures import model_in

Found = TypeVar("Found", bound=nn.Module)


@torch.no_grad()
def position_similarity(model: nn.Module) -> Tensor:
    """Return how alike the positions of any two patches are: (rows, columns, rows, columns), the query's row and column first.

    Of positions that are added to tokens the cosine similarity (Dosovitskiy et al. 2021, figure 7, centre). Of a relative bias
    the mean over heads, and over blocks that have their own, of what it adds to a score. Of rotary positions the score of two
    equal tokens, ``mean over planes of cos(θ_i − θ_j)``, that is how much alike two tokens still are when both have been turned.
    Of a model with both added and rotary positions the added ones alone.

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


@torch.no_grad()
def stage_position_similarity(model: nn.Module, stage: int = 0) -> Tensor:
    """Return the cosine of the learned positions of any two patches of a stage: (rows, columns, rows, columns).

    Raises:
        ConfigError: the model has no such stage, or none with learned positions.
    """
    position = _of_stage(model, stage, LearnedPosition1d)
    table = F.normalize(position.embedding[position.prefix :], dim=1)
    return (table @ table.T).reshape(*position.grid, *position.grid)


@torch.no_grad()
def offset_biases(model: nn.Module, stage: int = 0) -> Tensor:
    """Return the relative bias of a stage's first block, by head and by the key's offset down and to the right of the query.

    Returns:
        (k, 2·rows − 1, 2·columns − 1) of the window; no offset is in the middle.

    Raises:
        ConfigError: the model has no such stage, or none with a relative bias.
    """
    relative = _of_stage(model, stage, RelativePositionBias)
    table = cast(Tensor, relative.table).unflatten(0, offsets_of(relative.grid))  # of the query's place minus the key's
    return table.permute(2, 0, 1).flip(1, 2)


def _of_stage(model: nn.Module, stage: int, kind: type[Found]) -> Found:
    """Return the first part of this kind in a stage."""
    stages: Any = getattr(model_in(model), "stages", ())
    if not 0 <= stage < len(stages):
        raise ConfigError(f"stage {stage} of {len(stages)}", where="stage", hint="stages count from 0")
    found = next((part for part in stages[stage].modules() if isinstance(part, kind)), None)
    if found is None:
        what = f"a {type(model_in(model)).__name__} has no {kind.__name__}"
        raise ConfigError(what, where="stage", hint="config.position says what a model has")
    return found


def position_table(model: Any) -> Tensor:
    """Return E_pos of the patches, (N, D), for any added scheme."""
    c = model.config
    zeros = torch.zeros(1, c.position_prefix + c.grid[0] * c.grid[1], c.dim, device=next(model.parameters()).device)
    table: Tensor = model.position(zeros)[0, c.position_prefix :]
    return table


@torch.no_grad()
def filters(model: nn.Module, count: int = 28) -> tuple[Tensor, Tensor]:
    """Return the principal components of the first filters (Dosovitskiy et al. 2021, figure 7, left), by explained variance.

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

"""Views of what a model has learned before its first block: positions and patch filters."""

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
    """Return the similarity of the positions of any two patches: (rows, columns, rows, columns), the query first.

    Positions added to tokens: their cosine similarity (Dosovitskiy et al. 2021, figure 7, centre). Relative bias: its mean over
    heads, and over blocks if they differ. Rotary positions: the score of two equal tokens after rotation,
    ``mean over planes of cos(θ_i − θ_j)``. For a model with added and rotary positions only the added ones count.

    Raises:
        ConfigError: the model has no positions.
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
        raise ConfigError("the model has no positions", where="position_similarity", hint="give a model with positions")
    else:
        table = F.normalize(position_table(vit), dim=1)
        similar = table @ table.T
    n = c.grid[0] * c.grid[1]
    return similar[-n:, -n:].reshape(*c.grid, *c.grid)


@torch.no_grad()
def stage_position_similarity(model: nn.Module, stage: int = 0) -> Tensor:
    """Return the cosine similarity of the learned positions of any two patches in a stage: (rows, columns, rows, columns).

    Raises:
        ConfigError: the model has no such stage, or the stage has no learned positions.
    """
    position = _of_stage(model, stage, LearnedPosition1d)
    table = F.normalize(position.embedding[position.prefix :], dim=1)
    return (table @ table.T).reshape(*position.grid, *position.grid)


@torch.no_grad()
def offset_biases(model: nn.Module, stage: int = 0) -> Tensor:
    """Return the relative bias of a stage's first block, by head and by the key's offset down and right of the query.

    Returns:
        (k, 2·rows − 1, 2·columns − 1) for the window; offset 0 is in the middle.

    Raises:
        ConfigError: the model has no such stage, or the stage has no relative bias.
    """
    relative = _of_stage(model, stage, RelativePositionBias)
    table = cast(Tensor, relative.table).unflatten(0, offsets_of(relative.grid))  # indexed by query minus key
    return table.permute(2, 0, 1).flip(1, 2)


def _of_stage(model: nn.Module, stage: int, kind: type[Found]) -> Found:
    """Return the first module of this class in a stage."""
    stages: Any = getattr(model_in(model), "stages", ())
    if not 0 <= stage < len(stages):
        raise ConfigError(f"stage {stage} of {len(stages)} is missing", where="stage", hint="the first stage is 0")
    found = next((part for part in stages[stage].modules() if isinstance(part, kind)), None)
    if found is None:
        what = f"a {type(model_in(model)).__name__} has no {kind.__name__}"
        raise ConfigError(what, where="stage", hint="see the model's config.position")
    return found


def position_table(model: Any) -> Tensor:
    """Return the added positions of the patches, (N, D), for any scheme."""
    c = model.config
    zeros = torch.zeros(1, c.position_prefix + c.grid[0] * c.grid[1], c.dim, device=next(model.parameters()).device)
    table: Tensor = model.position(zeros)[0, c.position_prefix :]
    return table


@torch.no_grad()
def filters(model: nn.Module, count: int = 28) -> tuple[Tensor, Tensor]:
    """Return the principal components of the first filters, by explained variance (Dosovitskiy et al. 2021, figure 7, left).

    Filters are patches for a plain embedding, and kernels of the first convolution for a stem, a hybrid or a convolutional
    network; for a T2T-ViT they are the first projection to queries, keys and values.

    Returns:
        components (count, C, h, w) of length 1, and the fraction of the filters' variance that each explains, (count,).
    """
    first = cast(ImageModel, model_in(model)).filters()
    weights = first.cpu().double().flatten(1)  # (D, C·h·w)
    _, lengths, components = torch.linalg.svd(weights - weights.mean(dim=0), full_matrices=False)
    shares = lengths**2 / (lengths**2).sum()
    return components[:count].unflatten(1, first.shape[1:]).float(), shares[:count].float()

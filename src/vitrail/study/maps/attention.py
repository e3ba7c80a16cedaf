"""Attention maps, rollout and relevance of a model.

Weights are computed layer by layer, in addition to the model's fused kernels (`vitrail.study.maps.captures`). Maps are
(B, rows, columns), one value per patch; registers and class tokens have none.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from vitrail.errors import ConfigError, VitrailError
from vitrail.models.inference import in_evaluation_mode
from vitrail.study.maps.captures import WEIGHTS, attends, capture, model_in, require_own_size
from vitrail.weights.model_folder.folder import TrainedModel

Patch = tuple[int, int]
"""Row and column."""


def roll_out(weights: Iterable[Tensor]) -> Tensor:
    """Multiply attention through all layers: ``Ã_L · … · Ã_1`` with ``Ã = (mean over heads of A + I) / 2``.

    Abnar and Zuidema 2020 (https://arxiv.org/abs/2005.00928); the identity stands for the residual connection.

    Args:
        weights: (B, k, N, N) of every layer, the first layer first.

    Returns:
        (B, N, N): the fraction of each input token (columns) in each output token (rows); rows sum to 1.
    """
    return reduce(lambda before, mixed: mixed @ before, map(_with_residual, weights))


def _with_residual(weights: Tensor) -> Tensor:
    mean = weights.float().mean(dim=1)
    return (mean + torch.eye(mean.shape[-1], device=mean.device)) / 2


def relevance_of(before: Tensor | None, weights: Tensor, gradients: Tensor) -> Tensor:
    """Update the relevance by a layer: ``R ← R + Ā R`` with ``Ā = mean over heads of (∇A ⊙ A)⁺``; R = I before the first.

    Chefer et al. 2021 (https://arxiv.org/abs/2103.15679), equations (5) and (6).

    Args:
        before: R after the previous layer, (B, N, N); None for the first layer.
        weights: A, (B, k, N, N).
        gradients: ∇A, the gradient of the output to explain, of the same shape.

    Returns:
        (B, N, N).
    """
    if before is None:
        before = torch.eye(weights.shape[-1], device=weights.device).expand(len(weights), -1, -1)
    return before + _steered(weights, gradients) @ before


def pooled_relevance(before: Tensor, weights: Tensor, gradients: Tensor) -> Tensor:
    """Return the relevance for a query that is not a token, as in attention pooling: ``Ā R̄``, equation (10) of the same paper.

    R̄ is R whose rows, without the identity, are normalised to sum 1: equations (8) and (9).

    Args:
        before: R after all layers, (B, N, N).
        weights: A, (B, k, 1, N).
        gradients: ∇A.

    Returns:
        (B, 1, N).
    """
    itself = torch.eye(before.shape[-1], device=before.device)
    gained = before - itself
    shares = gained / gained.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(gained.dtype).tiny)
    return _steered(weights, gradients) @ (shares + itself)


def _steered(weights: Tensor, gradients: Tensor) -> Tensor:
    return (gradients * weights).float().clamp(min=0).mean(dim=1)


@torch.no_grad()
def attention_map(
    model: nn.Module, images: Tensor, *, layer: int = -1, head: int | None = None, query: Patch | None = None
) -> Tensor:
    """Return the attention of one layer to each patch: (B, rows, columns). Attention to other tokens is dropped.

    Args:
        model: a model with attention, or a module that contains one, in evaluation mode.
        images: prepared, (B, C, H, W).
        layer: index from 0, or negative from the end.
        head: index of a head; the mean over heads by default.
        query: the patch whose attention is returned; by default the tokens that the head reads: the class token, or the mean
            over all patches.
    """
    vit = seeing(model, images)
    c = vit.config
    with layer_weights(vit, layer, head) as weights_of:
        vit.encode(images)
    weights = weights_of()  # (B, N, N)
    if query is None:
        return on_patches(vit, read(vit, weights))
    row = place_among("row", query[0], c.grid[0]) * c.grid[1] + place_among("column", query[1], c.grid[1])
    return on_patches(vit, weights[:, c.prefix + row])


@contextmanager
def layer_weights(vit: Any, layer: int, head: int | None) -> Iterator[Callable[[], Tensor]]:
    """Capture a layer's attention, (B, N, N), of one head or averaged; call the yielded function after the forward pass."""
    name = f"blocks.{place_among('layer', layer, vit.config.depth)}.attention.{WEIGHTS}"
    number = None if head is None else place_among("head", head, vit.config.heads)
    with capture(vit, name) as seen:
        yield lambda: (seen[name] if number is None else seen[name][:, [number]]).float().mean(dim=1)


@torch.no_grad()
def reading_map(model: nn.Module, images: Tensor) -> Tensor:
    """Return the attention that the output is read by: of the class token in the last layer, or of attention pooling."""
    vit = seeing(model, images)
    if not vit.config.pools_by_attention:
        return attention_map(vit, images)
    with capture(vit, f"pool.attention.{WEIGHTS}") as seen:
        vit(images)
    return on_patches(vit, seen[f"pool.attention.{WEIGHTS}"].float().mean(dim=1)[:, 0])


@torch.no_grad()
def head_maps(model: nn.Module, images: Tensor) -> Tensor:
    """Return the `attention_map` of every layer and head, from the tokens that are read: (B, layers, k, rows, columns)."""
    vit, found = seeing(model, images), list[Tensor]()

    def each(name: str, weights: Tensor) -> None:
        looked = read(vit, weights.float().transpose(1, 2))  # (B, k, N)
        found.append(looked[..., vit.config.prefix :].unflatten(-1, vit.config.grid))

    with capture(vit, f"blocks.*.attention.{WEIGHTS}", each=each):
        vit.encode(images)
    return torch.stack(found, dim=1)


@torch.no_grad()
def rollout_map(model: nn.Module, images: Tensor) -> Tensor:
    """Return the fraction of each patch in the vector that the head reads, by `roll_out`: (B, rows, columns)."""
    vit = seeing(model, images)
    rolled: Tensor | None = None
    pooled: Tensor | None = None

    def each(name: str, weights: Tensor) -> None:
        nonlocal rolled, pooled
        if name.startswith("blocks."):
            mixed = _with_residual(weights)
            rolled = mixed if rolled is None else mixed @ rolled
        else:
            pooled = weights.float().mean(dim=1)[:, 0]

    with capture(vit, *_whole(vit, WEIGHTS), each=each):
        vit(images)
    assert rolled is not None
    return on_patches(vit, read(vit, rolled, pooled))


def relevance_map(model: nn.Module, images: Tensor, classes: Tensor | None = None) -> Tensor:
    """Return the relevance of each patch for a class, by `relevance_of` through all layers: (B, rows, columns).

    Fused kernels never build A; its gradient is computed from the gradient of the heads' outputs: ``∇A = ∇(A v) vᵀ``.

    Args:
        model: a model with attention, or a module that contains one, in evaluation mode.
        images: prepared, (B, C, H, W).
        classes: int64 (B,); the predicted classes by default.
    """
    vit = seeing(model, images)
    if not vit.config.num_classes:
        raise ConfigError("relevance needs a model with classes", where="relevance_map", hint="give a model with a head")
    gradients = _gradients(vit, images, classes)
    passed: Tensor | None = None
    values: Tensor | None = None

    def each(name: str, found: Tensor) -> None:
        nonlocal passed, values
        if name.endswith("values"):
            values = found
            return
        assert values is not None
        of_heads = gradients[name.removesuffix(WEIGHTS) + "heads"].unflatten(-1, (values.shape[1], -1)).transpose(1, 2)
        if name.startswith("blocks."):
            passed = relevance_of(passed, found, of_heads @ values.mT)
        else:
            assert passed is not None
            passed = pooled_relevance(passed, found, of_heads @ values.mT)

    with torch.no_grad(), capture(vit, *_whole(vit, "values", WEIGHTS), each=each):
        vit(images)
    assert passed is not None
    return on_patches(vit, passed[:, 0] if vit.config.pools_by_attention else read(vit, passed))


def _gradients(model: Any, images: Tensor, classes: Tensor | None) -> dict[str, Tensor]:
    """Return the gradients of the chosen classes' logits with respect to the attention heads' outputs, by layer."""
    with torch.inference_mode(False), torch.enable_grad(), capture(model, *_whole(model, "heads")) as seen:
        logits = model(images.detach().clone().requires_grad_())
        chosen = logits.argmax(dim=1) if classes is None else classes.to(logits.device)
        found = torch.autograd.grad(logits.gather(1, chosen[:, None]).sum(), list(seen.values()))
    return dict(zip(seen, found, strict=True))


def read(model: Any, rows: Tensor, pooled: Tensor | None = None) -> Tensor:
    """Average rows (B, N, …) over the tokens that the head reads, or by pooling weights (B, N): (B, …)."""
    c = model.config
    if pooled is not None:
        return torch.einsum("bn,bn...->b...", pooled, rows)
    tokens = rows[:, : 1 + c.distillation_token].mean(dim=1)
    if c.pool == "class":
        return tokens
    patches = rows[:, c.prefix :].mean(dim=1)
    return (tokens + patches) / 2 if c.pool == "class+mean" else patches


def _whole(model: Any, *kinds: str) -> list[str]:
    """Return the capture names of these kinds for all attention layers, including attention pooling."""
    places = ["blocks.*", *["pool"] * model.config.pools_by_attention]
    return [f"{place}.attention.{kind}" for place in places for kind in kinds]


def seeing(model: nn.Module, images: Tensor) -> Any:
    """Return the model inside, for images of its own size; see `attending` and `in_evaluation`."""
    vit = in_evaluation(attending(model))
    require_own_size(vit, images)
    return vit


def attending(model: nn.Module) -> Any:
    """Return the model inside; raises `ConfigError` if its layers do not attend to the whole image."""
    found = model_in(model)
    if not attends(found):
        hint = "give a model whose layers attend to the whole image"
        raise ConfigError(f"a {type(found).__name__} has no attention to the whole image", where="model", hint=hint)
    return found


def in_evaluation(model: nn.Module) -> Any:
    """Return the model inside; raises `ConfigError` in training mode, where it drops patches and units."""
    vit = model_in(model)
    if vit.training:
        raise ConfigError("maps need a model in evaluation mode", where="model", hint="call model.eval() first")
    return vit


def look_of(
    trained: TrainedModel, seen: Callable[[nn.Module, Tensor], Tensor] = head_maps
) -> tuple[Callable[[Tensor], Tensor] | None, str]:
    """Return a function from an image's prepared pixels (1, C, H, W) to its map, or None and the reason if there is no map."""
    model = in_evaluation_mode(trained.model, next(trained.model.parameters()).device)

    def look(pixels: Tensor) -> Tensor:
        device = next(model.parameters()).device
        return seen(model, trained.preparation.normalize(pixels.to(device)))[0].cpu()

    try:
        look(torch.zeros(1, trained.preparation.channels, *trained.preparation.image_size, dtype=torch.uint8))
    except VitrailError as error:
        return None, error.what
    return look, ""


def on_patches(model: Any, looked: Tensor) -> Tensor:
    """Convert (B, prefix + N) to (B, rows, columns), without prefix tokens."""
    return looked[:, model.config.prefix :].unflatten(1, model.config.grid)


def place_among(what: str, number: int, count: int) -> int:
    """Return a non-negative index; raises `ConfigError` if ``number`` is out of range."""
    if not -count <= number < count:
        raise ConfigError(
            f"{what} {number} of {count} is missing", where=what, hint=f"give 0 to {count - 1}, or -1 to {-count} from the end"
        )
    return number % count

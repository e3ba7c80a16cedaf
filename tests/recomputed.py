"""Memory and results of a training step whose layers may be computed again in the backward pass."""

import copy

import torch
from torch import Tensor, nn

from vitrail.models.base import Model
from vitrail.parts import DropPath
from vitrail.training.loop.recompute import recompute_layers


def step(model: Model, *inputs: Tensor, recompute: bool, dtype: torch.dtype | None = None) -> tuple[int, dict[str, Tensor]]:
    """One forward and backward pass of a copy in training, with dropout wherever it has a place.

    Bytes that are kept from one to the other, and by name what the pass gives: answers, gradients, buffers, and the random
    generator.
    """
    model = _with_dropout(copy.deepcopy(model))
    if recompute:
        recompute_layers(model)
    kept: list[Tensor] = []
    for layer in model.layers() if recompute else []:
        layer.register_forward_pre_hook(lambda module, given: kept.extend(t for t in given if isinstance(t, Tensor)))

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    torch.manual_seed(5)
    with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            answer = model(*inputs)
        weights = {parameter.data_ptr() for parameter in model.parameters()}
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in kept if t.data_ptr() not in weights}
        answer.float().square().sum().backward()
    gradients = {f"gradient of {name}": p.grad for name, p in model.named_parameters() if p.grad is not None}
    found = {"answer": answer.detach(), **gradients, **dict(model.named_buffers()), "random": torch.get_rng_state()}
    return sum(storages.values()), found


def require_the_same(model: Model, *inputs: Tensor, dtype: torch.dtype | None = None) -> None:
    """Equal to the bit, and of less that is kept."""
    (much, expected), (little, found) = (step(model, *inputs, recompute=again, dtype=dtype) for again in (False, True))
    assert little < much
    assert found.keys() == expected.keys() and len(found) > 3
    assert all(torch.equal(found[name], expected[name]) for name in found)


def _with_dropout(model: Model) -> Model:
    for module in model.train().modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.3
        if isinstance(module, DropPath):
            module.probability = 0.3
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.3
    return model

"""Models of other libraries as ours, for tests of what a model computes."""

from torch import nn

from random_weights import randomize
from vitrail.models.base import Model
from vitrail.models.registry import build
from vitrail.weights.layouts import LAYOUTS
from vitrail.weights.state_dict import recognise


def like(theirs: nn.Module, layout: str, **known) -> Model:
    """Our model with the weights of one of theirs; ``known`` are fields that no shape tells. In double precision."""
    tensors = dict(randomize(theirs, std=0.2).state_dict())
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    found = recognise(shapes, lambda layout: known, layouts=[LAYOUTS[layout]], where="test")
    ours = build(found.config).double()
    ours.load_state_dict(found.translate(tensors))
    return ours.eval()

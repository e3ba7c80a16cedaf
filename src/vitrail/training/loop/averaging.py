"""Average of the weights at the ends of the last epochs (Vaswani et al. 2017, section 6.1; Izmailov et al. 2018, 1803.05407)."""

from collections import deque
from collections.abc import Container, Mapping, Sequence

import torch
from torch import Tensor

from vitrail.training.runs.checkpoint import Tensors

GROUP = "epoch-"
"""Prefix of the names of these weights' files in a checkpoint."""


class LastEpochs:
    """The weights at the end of each of the last epochs, in main memory.

    Args:
        most: number of epochs whose weights are kept; 0 for none.
    """

    def __init__(self, most: int):
        self.weights: deque[Tensors] = deque(maxlen=most)

    def __len__(self) -> int:
        return len(self.weights)

    def add(self, weights: Mapping[str, Tensor]) -> None:
        """Store a copy of an epoch's weights; the oldest are dropped if there are too many."""
        if self.weights.maxlen:
            self.weights.append({name: tensor.detach().to("cpu", copy=True) for name, tensor in weights.items()})

    def mean(self, carried: Container[str] = ()) -> Tensors:
        """Return the mean of every tensor; integers, such as BatchNorm's counts, and ``carried`` tensors are the last epoch's."""
        last = self.weights[-1]
        return {name: last[name] if name in carried else _mean([weights[name] for weights in self.weights]) for name in last}

    def tensors(self) -> dict[str, Tensors]:
        """Return the stored weights as groups of a checkpoint, the oldest first."""
        return {f"{GROUP}{number:02d}": weights for number, weights in enumerate(self.weights)}

    def load(self, tensors: Mapping[str, Tensors], like: Mapping[str, Tensor]) -> None:
        """Restore the groups that `tensors` returned; raises `ValueError` if names or shapes differ from ``like``."""
        expected = {name: tensor.shape for name, tensor in like.items()}
        for name in sorted(name for name in tensors if name.startswith(GROUP)):
            if {key: tensor.shape for key, tensor in tensors[name].items()} != expected:
                raise ValueError(f"{name} has other tensors than the model")
            self.weights.append(tensors[name])


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    """Return the mean, computed in float64, so that it does not depend on the order of the epochs."""
    last = tensors[-1]
    if not last.is_floating_point():
        return last
    return sum(tensors, torch.zeros_like(last, dtype=torch.float64)).div(len(tensors)).to(last.dtype)

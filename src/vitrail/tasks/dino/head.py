"""The projection of self-distillation: vectors to the outputs in which student and teacher are to agree."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.runtime.processes import Processes


class ProjectionHead(nn.Module):
    """Three layers, a norm of length one, and a last layer whose rows have length one, so that outputs are cosines.

    The authors' last layer has a length for each row, too, which they leave at one.

    Args:
        dim: width of the vectors.
        hidden: width of the hidden layers.
        bottleneck: width before the last layer.
        outputs: number of outputs.
        batch_norm: whether the hidden layers have a BatchNorm.
    """

    def __init__(self, dim: int, hidden: int, bottleneck: int, outputs: int, *, batch_norm: bool = False):
        super().__init__()
        layers: list[nn.Module] = []
        for width in (dim, hidden):
            norm = [nn.BatchNorm1d(hidden)] if batch_norm else []
            layers += [nn.Linear(width, hidden), *norm, nn.GELU()]
        self.layers = nn.Sequential(*layers, nn.Linear(hidden, bottleneck))
        self.last = nn.Linear(bottleneck, outputs, bias=False)
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the outputs (…, K) of vectors (…, D), in -1…1."""
        z = F.normalize(self.layers(vectors), dim=-1)
        return F.linear(z, F.normalize(self.last.weight, dim=-1))


class MaskToken(nn.Module):
    """The token (D,) that takes the place of masked patches."""

    def __init__(self, dim: int):
        super().__init__()
        self.token = nn.Parameter(torch.zeros(dim))


class Centre(nn.Module):
    """The moving average of a teacher's mean output, (K,)."""

    mean: Tensor

    def __init__(self, outputs: int):
        super().__init__()
        self.register_buffer("mean", torch.zeros(outputs))
        self._sums: list[Tensor] = []
        """The outputs in this step, summed, (K + 1,) each; the last number counts them."""

    def begin_step(self) -> None:
        """Forget the outputs of the last step."""
        self._sums = []

    def add(self, outputs: Tensor) -> None:
        """Add outputs of a step, (…, K); a step may have several parts."""
        flat = outputs.detach().float().flatten(0, -2)
        self._sums.append(torch.cat([flat.sum(dim=0), flat.new_tensor([len(flat)])]))

    def end_step(self, decay: float, group: Processes) -> None:
        """Move the mean towards the mean of all processes' outputs in this step; without outputs it stays."""
        sums = group.all_reduce(torch.stack(self._sums).sum(dim=0).double())
        if sums[-1]:
            self.mean.lerp_((sums[:-1] / sums[-1]).to(self.mean), 1 - decay)

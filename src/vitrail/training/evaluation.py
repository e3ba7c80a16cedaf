"""What a model says of labelled images, and how right it is."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.data.loader import EpochLoader
from vitrail.data.preparation import Preparation
from vitrail.errors import ConfigError


@dataclass(frozen=True)
class Evaluation:
    """Logits (N, classes) and labels (N,) of some images, in their order."""

    logits: Tensor
    labels: Tensor

    @property
    def probabilities(self) -> Tensor:
        """(N, classes), rows sum to 1."""
        return self.logits.softmax(dim=1)

    @property
    def loss(self) -> float:
        """Mean cross-entropy, without label smoothing."""
        return F.cross_entropy(self.logits, self.labels).item()

    def top(self, k: int) -> float:
        """Share of images whose label is among the k best guesses (all classes, where there are fewer)."""
        best = self.logits.topk(min(k, self.logits.shape[1]), dim=1).indices
        return (best == self.labels[:, None]).any(dim=1).double().mean().item()

    def scores(self) -> dict[str, float | int]:
        """What `vitrail evaluate --json` prints."""
        return {"top1": self.top(1), "top5": self.top(5), "loss": self.loss, "images": len(self.labels)}


@torch.inference_mode()
def evaluate_batches(
    model: nn.Module,
    loader: EpochLoader,
    preparation: Preparation,
    *,
    device: torch.device,
    on_batch: Callable[[int], None] | None = None,
) -> Evaluation:
    """Run a model over all batches of a loader, in evaluation mode; ``on_batch`` hears the size of each."""
    was_training = model.training
    model.eval()
    logits, labels = [], []
    for pixels, batch_labels in loader.epoch():
        logits.append(model(preparation.normalize(pixels.to(device))).float().cpu())
        labels.append(batch_labels)
        if on_batch:
            on_batch(len(pixels))
    model.train(was_training)
    return Evaluation(torch.cat(logits), torch.cat(labels))


def pick_device(name: str = "auto") -> torch.device:
    """``auto`` takes CUDA, else Apple's MPS, else the CPU."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name != "auto":
        if not available[name]:
            raise ConfigError(f"torch finds no {name} device", where="training.device", hint="leave it at auto")
        return torch.device(name)
    return torch.device(next(kind for kind in ("cuda", "mps", "cpu") if available[kind]))

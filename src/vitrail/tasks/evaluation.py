"""What a model says of labelled images, and how right it is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.data.loader import EpochLoader
from vitrail.data.preparation import Preparation
from vitrail.runtime.processes import ALONE, Processes


@dataclass(frozen=True)
class Evaluation:
    """Logits (N, classes) of some images, in their order, and what is true of them.

    Labels are int64 (N,), or where an image may show several classes, or none, float32 (N, classes) of zeros and ones.
    """

    logits: Tensor
    labels: Tensor

    @property
    def multi_label(self) -> bool:
        """Whether an image may show several classes."""
        return self.labels.ndim == 2

    @property
    def probabilities(self) -> Tensor:
        """(N, classes): a softmax, whose rows sum to 1; for several labels a sigmoid, each class on its own."""
        return self.logits.sigmoid() if self.multi_label else self.logits.softmax(dim=1)

    @property
    def loss(self) -> float:
        """Mean cross-entropy, without label smoothing; for several labels binary, averaged over images and classes."""
        loss = F.binary_cross_entropy_with_logits if self.multi_label else F.cross_entropy
        return loss(self.logits, self.labels).item()

    def top(self, k: int) -> float:
        """Share of images with a true label among the k best guesses (all classes, where there are fewer).

        One of several labels is enough; an image without labels counts as wrong.
        """
        best = self.logits.topk(min(k, self.logits.shape[1]), dim=1).indices
        hits = self.labels.gather(1, best) > 0 if self.multi_label else best == self.labels[:, None]
        return hits.any(dim=1).double().mean().item()

    @property
    def mean_average_precision(self) -> float:
        """Average precision, averaged over the classes that any image shows; 0 where none does. For several labels only."""
        from sklearn.metrics import average_precision_score  # takes a second, and most evaluations do without

        shown = self.labels.any(dim=0)
        if not shown.any():
            return 0.0
        return float(average_precision_score(self.labels[:, shown].numpy(), self.probabilities[:, shown].numpy()))

    def scores(self) -> dict[str, float | int]:
        """What `vitrail evaluate --json` prints; "map", the mean average precision, for several labels alone."""
        scores: dict[str, float | int] = {"top1": self.top(1), "top5": self.top(5), "loss": self.loss, "images": len(self.labels)}
        if self.multi_label:
            scores["map"] = self.mean_average_precision
        return scores


@contextmanager
def answering(model: nn.Module, preparation: Preparation, device: torch.device) -> Iterator[Callable[[Tensor], Tensor]]:
    """A model as what `evaluate_batches` asks, in evaluation mode; afterwards it goes on as it was."""
    was_training = model.training
    model.eval()
    with torch.no_grad():
        yield lambda pixels: model(preparation.normalize(pixels.to(device))).float().cpu()
    model.train(was_training)


def evaluate_batches(
    logits: Callable[[Tensor], Tensor],
    loader: EpochLoader,
    *,
    on_batch: Callable[[int], None] | None = None,
    group: Processes = ALONE,
) -> Evaluation:
    """What is said of all batches of a loader.

    Several processes look at a part of every batch each, as their loaders are told, and all of them have all the answers.

    Args:
        logits: prepared pixels, uint8 (B, C, H, W), to float32 (B, classes) on the CPU.
        loader: of labelled images.
        on_batch: hears the size of each batch.
        group: the processes that do it together.
    """
    every_logits, every_label = [], []
    for number, (pixels, labels) in enumerate(group.in_step(loader.epoch(), len(loader))):
        places, size = loader.places(number), loader.size(number)
        every_logits.append(_at(places, logits(pixels), size))
        every_label.append(_at(places, labels, size))
        if on_batch:
            on_batch(size)
    return Evaluation(group.all_reduce(torch.cat(every_logits)), group.all_reduce(torch.cat(every_label)))


def _at(places: range, part: Tensor, size: int) -> Tensor:
    """A part of a batch's rows at their places, and zeros for the others, to be added to the other parts."""
    if len(places) == size:
        return part
    rows = part.new_zeros(size, *part.shape[1:])
    rows[places.start : places.stop] = part[: len(places)]
    return rows

"""A task whose model writes texts: it learns every token, given those before it."""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.data.loading.batches import Batch
from vitrail.models.text.text_model import TextModel
from vitrail.parts import token_loss
from vitrail.tasks.task import Task


class TokenTask(Task):
    """Cross-entropy with every token of a text, given those before it (teacher forcing).

    A batch has ``target`` and ``labels``, int64 (B, T), or (B, K, T) where an item has several texts.

    Args:
        model: sources and targets to logits of the next token.
        pad: fills rows up.
        label_smoothing: share of the target that is spread over all tokens.
    """

    unit: ClassVar[str] = "tokens"
    model: TextModel

    def __init__(self, model: TextModel, pad: int, *, label_smoothing: float = 0.0):
        super().__init__(model)
        self.pad, self.label_smoothing = pad, label_smoothing

    def encode(self, batch: Batch) -> Any:
        """Return what the decoder needs of the sources of a batch."""
        raise NotImplementedError

    def units(self, batch: Batch) -> int:
        return int((batch["labels"] != self.pad).sum())

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        x, labels = self._decoded(batch, self.encode(batch))
        return {"loss": token_loss(x, *self.model.output_table(), labels, smoothing=self.label_smoothing)}

    def token_answers(self, batch: Batch, encoded: Any) -> dict[str, Tensor]:
        """Return the sum of the losses of each item's tokens, and the number of its tokens that are the likeliest: (B,)."""
        x, labels = self._decoded(batch, encoded)
        logits = self.model.logits(x)
        row = (batch["labels"] != self.pad).nonzero()[:, 0]
        none = torch.zeros(len(batch["labels"]), device=labels.device)
        loss = F.cross_entropy(logits.float(), labels, reduction="none")
        right = (logits.argmax(dim=1) == labels).float()
        return {"loss": none.index_add(0, row, loss), "right": none.index_add(0, row, right)}

    def _decoded(self, batch: Batch, encoded: Any) -> tuple[Tensor, Tensor]:
        """Return the features that logits are read from, (N, D), and labels (N,) of all tokens, one text after another."""
        labels = batch["labels"]
        some = labels != self.pad
        return self.model.decode(batch["target"], encoded)[some], labels[some]

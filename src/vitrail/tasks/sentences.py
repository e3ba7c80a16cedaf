"""Sentences alone, as a captioner's decoder writes them of no image."""

from typing import Any, ClassVar

from torch import Tensor

from vitrail.data.batches import Batch
from vitrail.parts import token_loss
from vitrail.tasks.task import Task


class Sentences(Task):
    """Cross-entropy with every token of a sentence, given those before it, where in place of an image there is nothing.

    It is no task of a run: a run of captioning may begin with it.

    Args:
        model: images and captions to logits of the next token.
        pad: fills rows up.
        label_smoothing: share of the target that is spread over all tokens.
    """

    name = "sentences"
    unit: ClassVar[str] = "tokens"

    def __init__(self, model: Any, pad: int, *, label_smoothing: float = 0.0):
        super().__init__(model)
        self.pad, self.label_smoothing = pad, label_smoothing

    def units(self, batch: Batch) -> int:
        return int((batch["labels"] != self.pad).sum())

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        labels = batch["labels"]
        some = labels != self.pad
        x = self.model.decode(batch["target"], self.model.of_nothing(len(labels)))
        table, bias = self.model.output_table()
        return {"loss": token_loss(x[some], table, bias, labels[some], smoothing=self.label_smoothing)}

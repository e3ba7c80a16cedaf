"""A task whose model writes texts, trained to predict each token from the previous ones."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.data.loading.batches import Batch
from vitrail.models.text.text_model import TextModel
from vitrail.parts import token_loss
from vitrail.runtime.processes import Processes
from vitrail.tasks.task import Answers, Metrics, Task


class TokenTask(Task):
    """Cross-entropy of each token of a text, given the previous tokens (teacher forcing).

    A batch has ``target`` and ``labels``, int64 (B, T), or (B, K, T) for items with several texts.

    Args:
        model: a model from sources and targets to logits of the next token.
        pad: the id of the padding token.
        label_smoothing: the fraction of the target that is spread over all tokens.
    """

    unit: ClassVar[str] = "tokens"
    model: TextModel

    def __init__(self, model: TextModel, pad: int, *, label_smoothing: float = 0.0):
        super().__init__(model)
        self.pad, self.label_smoothing = pad, label_smoothing

    def encode(self, batch: Batch) -> Any:
        """Return the encoded sources of a batch, for the decoder."""
        raise NotImplementedError

    def units(self, batch: Batch) -> int:
        return int((batch["labels"] != self.pad).sum())

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        x, labels = self._decoded(batch, self.encode(batch))
        return {"loss": token_loss(x, *self.model.output_table(), labels, smoothing=self.label_smoothing)}

    def token_answers(self, batch: Batch, encoded: Any) -> dict[str, Tensor]:
        """Return for each item the sum of its tokens' losses, and the number of correctly predicted tokens: (B,) each."""
        x, labels = self._decoded(batch, encoded)
        logits = self.model.logits(x)
        row = (batch["labels"] != self.pad).nonzero()[:, 0]
        none = torch.zeros(len(batch["labels"]), device=labels.device)
        loss = F.cross_entropy(logits.float(), labels, reduction="none")
        right = (logits.argmax(dim=1) == labels).float()
        return {"loss": none.index_add(0, row, loss), "right": none.index_add(0, row, right)}

    def _decoded(self, batch: Batch, encoded: Any) -> tuple[Tensor, Tensor]:
        """Return the vectors before the logits, (N, D), and the labels, (N,), of all tokens without padding."""
        labels = batch["labels"]
        some = labels != self.pad
        return self.model.decode(batch["target"], encoded)[some], labels[some]


class TokenMetrics(Metrics):
    """Loss and accuracy per token, and the texts that the model has written.

    Texts are compared with those of the items, since the tokens of a long reference may be cut: call `take_items` first.

    Args:
        pad: the id of the padding token.
    """

    accurate = True
    """False if the predictions do not include the number of correct tokens."""

    def __init__(self, pad: int):
        self.pad = pad
        self.items: Sequence[Any] = ()
        self.sums = torch.zeros(4, dtype=torch.float64)  # loss, right tokens, tokens, items
        self.texts: list[tuple[int, str, Any]] = []
        """For each item its number, the written text, and the reference text or texts."""

    def take_items(self, items: Sequence[Any]) -> None:
        self.items = items

    def add_tokens(self, answers: Answers, labels: Tensor) -> None:
        """Add the result of `TokenTask.token_answers` for a batch."""
        self.accurate = "right" in answers
        right = answers["right"].sum() if self.accurate else torch.tensor(0.0)
        sums = answers["loss"].sum(), right, (labels != self.pad).sum(), torch.tensor(len(labels))
        self.sums += torch.stack([number.cpu().double() for number in sums])

    def add_texts(self, numbers: Tensor, written: Sequence[str]) -> None:
        """Add the written texts of items, by the items' numbers."""
        for number, text in zip(numbers.tolist(), written, strict=True):
            self.texts.append((number, text, self.items[number].target))

    def reduce(self, group: Processes) -> None:
        self.sums = group.all_reduce(self.sums)
        self.texts = sorted(group.gathered(self.texts), key=lambda text: text[0])

    def scores(self) -> dict[str, Any]:
        loss, right, tokens, _ = self.sums.tolist()
        accuracy = {"token_accuracy": right / max(1.0, tokens)} if self.accurate else {}
        return {"loss": loss / max(1.0, tokens), **accuracy}

"""Sentences alone, as a captioner's decoder writes them of no image."""

from typing import Any

from vitrail.data.loading.batches import Batch
from vitrail.tasks.token_task import TokenTask


class Sentences(TokenTask):
    """Every token of a sentence, where in place of an image there is nothing.

    It is no task of a run: a run of captioning may begin with it.
    """

    name = "sentences"
    model: Any

    def encode(self, batch: Batch) -> Any:
        return self.model.of_nothing(len(batch["labels"]))

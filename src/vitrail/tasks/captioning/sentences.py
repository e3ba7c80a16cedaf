"""Training of a captioner's decoder on sentences without images, before the training with images."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from vitrail.config.settings import RunSettings
from vitrail.data.loading.batches import Batch, on_device
from vitrail.data.loading.loader import EpochLoader
from vitrail.data.loading.sampler import some_items
from vitrail.data.text.dataset import PairDataset
from vitrail.data.text.tokens import Tokens
from vitrail.errors import DataError, DivergedError
from vitrail.files import LARGE, path_of, read_lines
from vitrail.models.text.text_model import TextModel
from vitrail.runtime.observer import Observer
from vitrail.tasks.captioning.images.captioned_images import tidy
from vitrail.tasks.captioning.task import Captioning
from vitrail.tasks.token_task import TokenTask
from vitrail.training.loop.learner import Learner
from vitrail.training.loop.schedule import warmup_steps
from vitrail.training.runs.plan import RunPlan, Work

BATCH = 2048
"""Tokens in a batch, with padding."""
FEW = 32
"""Number of sentences with ``fast_dev_run``."""
SENTENCES = 1 / 3
"""Fraction of the time limit that the training on sentences may use."""
BEGUN_AGAIN = "interrupted before the first image; when the run is resumed, the training on sentences starts again"


class Sentences(TokenTask):
    """Prediction of every token of a sentence, without an image; only used inside captioning."""

    name = "sentences"
    model: Any

    def encode(self, batch: Batch) -> Any:
        return self.model.of_nothing(len(batch["labels"]))


def read_sentences(file: str | Path) -> list[str]:
    """Return the sentences of a text file in UTF-8, one per line; raises `DataError` if there are none."""
    place = path_of(file)
    try:
        sentences = [sentence for line in read_lines(place, LARGE) if (sentence := tidy(line))]
    except OSError as error:
        what = f"no sentences at {str(file)!r}: {error.strerror}"
        raise DataError(what, where="task.text", hint="give a text file with one sentence per line") from None
    except UnicodeDecodeError:
        raise DataError("the sentences are not in UTF-8", where=place, hint="save the file in UTF-8") from None
    if not sentences:
        raise DataError("the file has no sentences", where=place, hint="write one sentence per line")
    return sentences


def begin_with_sentences(plan: RunPlan, task: Captioning, work: Work) -> None:
    """Train the decoder on the text of a run, if it has one; all processes compute the same."""
    own, training, group, clock = task.settings, plan.settings.training, work.group, work.clock
    if own.text is None:
        return
    sentences, epochs = read_sentences(own.text), own.text_epochs
    if training.fast_dev_run:
        sentences, epochs = some_items(sentences, FEW, training.seed), 1
    begun, room = clock.spent, SENTENCES * clock.left

    def share() -> float:
        """Return the fraction of the time for sentences that is used; it is the same in every process."""
        (micro,) = group.all_reduce_max(int(1e6 * (clock.spent - begun) / room))
        return micro / 1e6

    loss, made, total = learn_sentences(
        task.model, task.tokenizer, sentences, plan.settings, epochs=epochs,
        most=min(own.max_length, task.model.config.max_tokens), observer=work.observer,
        on_step=lambda: work.folder.leave_for(*group.all_reduce_max(work.signals.received), what=BEGUN_AGAIN),
        share=share,
    )  # fmt: skip
    part = "" if made == total else f", in {made:,} of {total:,} steps: they may take a third of --time-limit"
    work.folder.tell(f"{len(sentences):,} sentences learned from {own.text}: loss {loss:.3f} per token{part}", work.observer)


def learn_sentences(
    model: TextModel,
    tokens: Tokens,
    sentences: Sequence[str],
    settings: RunSettings,
    *,
    epochs: int,
    most: int,
    observer: Observer,
    on_step: Callable[[], None] = lambda: None,
    share: Callable[[], float] = lambda: 0.0,
) -> tuple[float, int, int]:
    """Train the decoder of a captioner on sentences, with a run's optimizer and schedule; the encoder is not changed.

    Returns the loss of the last epoch, the number of steps done, and the number of steps of all epochs.

    Args:
        most: most tokens of a sentence; longer sentences are cut.
        on_step: called before every step; an exception from it ends the training.
        share: returns the fraction of the time that is used, which advances the schedule; at 1 the training ends.

    Raises:
        DivergedError: a loss or a gradient is not finite.
    """
    own = settings.changed(
        training=settings.training.changed(tune="all", ema=0, accumulate=1, compile=False, recompute=False),
        optimizer=settings.optimizer.changed(layers={}),
    )
    rows = [row[:most] for row in tokens.encode_targets(sentences)]
    none = [[tokens.end]] * len(rows)  # there is no source
    dataset = PairDataset(list(sentences), none, rows, settings.training.seed, pad=tokens.pad, start=tokens.start, most=most)
    loader = EpochLoader(dataset, BATCH, shuffle=True)
    total = epochs * len(loader)
    task = Sentences(model, tokens.pad, label_smoothing=settings.training.label_smoothing)
    learner = Learner(own, task, total=total, warmup=warmup_steps(settings.schedule, epoch=len(loader), total=total))
    torch.manual_seed(settings.training.seed)
    observer.begin("learning sentences", epochs * len(rows))
    done, mean, used = 0, 0.0, 0.0
    task.train()
    for epoch in range(epochs):
        losses = units = 0.0
        for number, batch in enumerate(loader.epoch(epoch)):
            on_step()
            batch = on_device(batch, learner.device)
            size, count = loader.size(number), loader.units(number)
            place = min(max(done, int(used * total)), total - 1)
            step = learner.step(batch, done=place, size=size, own=size, units=count)
            if step.failure:
                raise DivergedError(f"sentences could not be learned: {step.failure}", where="task.text", hint="lower --lr")
            losses, units, done, used = losses + step.loss, units + step.units, done + 1, share()
            observer.advance(size)
            if used >= 1:
                return losses / units, done, total
        mean = losses / units
    return mean, done, total

"""A teacher's answers to all training images, computed once before the first step."""

from collections.abc import Callable

import numpy as np
from torch import Tensor

from vitrail.data.loading.dataset import ImageDataset
from vitrail.training.finetune.features import FeatureFile, read_features
from vitrail.training.loop.clock import OutOfTimeError
from vitrail.training.run_data import BeforeSteps

NO_TIME = "there is no time to compute the teacher's answers to all images first: they are computed in every step"


def answers_to_all(work: BeforeSteps, teacher: Callable[[Tensor], Tensor], width: int) -> dict[str, np.ndarray]:
    """Return a teacher's answer to every training image as it is, without augmentation, float32 (width,), by the image's name.

    Args:
        work: the pass over the training items.
        teacher: maps pixels, uint8 (B, C, H, W), to answers (B, width).
        width: numbers of an answer.

    Raises:
        OutOfTimeError: half of the remaining time was not enough; nothing is changed.
    """
    learner, learned = work.learner, work.samples
    assert isinstance(learned, ImageDataset)
    loader = work.loader_of(learner.task.dataset(learned.items, transform=learned.transform))
    work.observer.begin("asking the teacher", len(learned.items))
    kept = FeatureFile(None, (len(learned.items), width), "")
    try:
        with learner.precision():
            rows = read_features(
                teacher, loader, kept, device=learner.device, view=0, on_batch=work.on_batch, group=learner.group
            )
    except OutOfTimeError:
        raise OutOfTimeError(NO_TIME) from None
    finally:
        loader.close()
    return dict(zip((item.name for item in learned.items), rows.numpy(), strict=True))

"""The data of a run that distils features: images, and labels that measure them, where there are some."""

from typing import cast

import torch
from torch import Tensor

from vitrail.data.loading.dataset import ImageDataset
from vitrail.data.loading.sampler import spread
from vitrail.task_registry import task_row
from vitrail.tasks.distill.task import Distill, Standard, moments
from vitrail.training.feature_data import FeatureData
from vitrail.training.finetune.teacher_answers import answers_to_all
from vitrail.training.run_data import BeforeSteps

FITTED = 512
"""Number of training images whose features are standardized to mean 0 and deviation 1."""


class DistillData(FeatureData):
    """Images of which a teacher gives the features."""

    def before_steps(self, work: BeforeSteps) -> None:
        """Measure the teacher's features on some training images; with ``distillation.once`` compute them for all."""
        task = work.learner.task
        assert isinstance(task, Distill) and task.teacher is not None and isinstance(work.samples, ImageDataset)
        items = [work.samples.items[place] for place in spread(len(work.samples.items), FITTED)]
        dataset = task.dataset(items, transform=work.samples.transform)
        standards = cast(dict[str, Standard], dict(task.standards.items()))
        sums: dict[str, Tensor] = {}
        for part in torch.arange(len(items)).split(work.learner.settings.training.batch):
            pixels = dataset.batch([(0, number) for number in part.tolist()])["images"].to(work.learner.device)
            vectors, maps = task.teacher(pixels, maps="maps" in standards)
            features = {"vectors": vectors}
            if maps is not None:
                features["maps"] = maps.flatten(2).mT.flatten(0, 1)  # (B · h · w, D)
            for name in standards:
                sums[name] = sums.get(name, 0) + moments(features[name])
        for name, standard in standards.items():
            standard.fit(sums[name])
        if task.once and not task.answers:
            width = task.projections["vectors"].out_features
            task.answers.update(answers_to_all(work, task.teacher.vectors, cast(int, width)))


DATA = DistillData(task_row("distill"))

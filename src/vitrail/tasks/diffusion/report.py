"""The report on diffusion: samples of every class, and the training image that is nearest to each."""

import numpy as np
from PIL import Image

from vitrail.study.page import figures, page
from vitrail.study.page.report_part import SPLIT_WORDS, Part, Reported
from vitrail.study.page.tables import split_table
from vitrail.tasks.diffusion.quality import distances
from vitrail.tasks.diffusion.sample_sheet import sheet
from vitrail.tasks.diffusion.sampling import Sampling, class_indices, sample_batches
from vitrail.tasks.diffusion.task import Diffusion

SHOWN = 30
"""Samples that are drawn, ..."""
COMPARED = 10
"""... and how many of them stand beside the nearest training image."""
SAMPLING = Sampling(steps=20, sampler="dpm++")


def report_part(run: Reported) -> Part:
    """Return the loss, samples, and those of them that lie nearest to a training image."""
    task = run.task
    assert isinstance(task, Diffusion)
    trained = task.trained(task.model)
    labels = class_indices(trained, None, SHOWN)
    pictures: list[Image.Image] = []
    for images in sample_batches(trained, range(SHOWN), labels, SAMPLING):
        pictures += task.preparation.pictures(images)
    names = [None if label is None else trained.labels[label] for label in labels]
    figures.save(sheet(pictures, names), run.plots / "samples.png")
    pairs, titles = nearest_pairs(pictures, [task.preparation.pixels(item.image) for item in run.data.split("train")])
    figures.save(sheet(pairs, titles), run.plots / "nearest.png")
    how = f"{SAMPLING.steps} steps of {SAMPLING.sampler}, no guidance, seeds 0 to {SHOWN - 1}."
    nearest = "Each sample beside the training image that is nearest to it by its pixels, the nearest first: is it a copy?"
    what = f"error of the model's output on {len(run.items):,} {SPLIT_WORDS[run.split]}images, each at a time of its own"
    return Part(
        cards=[(f"{run.metrics.scores()['loss']:.4f}", what)],
        sections=[
            page.section("Samples", page.picture(run.plots / "samples.png", "Samples", how)),
            page.section("Copies", page.picture(run.plots / "nearest.png", "Samples beside training images", nearest)),
        ],
        data=split_table(run.data),
        caption="In training noise and time of an image are drawn anew in every epoch, in validation they stay.",
    )


def nearest_pairs(pictures: list[Image.Image], learned: list[np.ndarray]) -> tuple[list[Image.Image], list[str | None]]:
    """Return the samples nearest to a training image, each followed by it, with their titles."""
    made = np.stack([np.atleast_3d(np.asarray(picture)).transpose(2, 0, 1).ravel() for picture in pictures]) / 255.0
    real = np.stack([np.asarray(pixels).ravel() for pixels in learned]) / 255.0
    apart = distances(made, real)
    pairs: list[Image.Image] = []
    for number in np.argsort(apart.min(axis=1), kind="stable")[:COMPARED]:
        pixels = np.asarray(learned[apart[number].argmin()]).transpose(1, 2, 0)
        pairs += [pictures[number], Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels)]
    return pairs, ["made", "real"] * (len(pairs) // 2)

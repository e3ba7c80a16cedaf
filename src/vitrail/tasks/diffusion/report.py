"""The report on diffusion: samples of every class, and the training image that is nearest to each."""

from collections.abc import Sequence
from typing import Any

from PIL import Image

from vitrail.data.images.plan import to_picture
from vitrail.data.images.preparation import Preparation
from vitrail.study.page import figures, page
from vitrail.study.page.report_part import SPLIT_WORDS, Part, Reported
from vitrail.study.page.tables import split_table
from vitrail.tasks.diffusion.quality import nearest_of, pixel_vectors
from vitrail.tasks.diffusion.sample_sheet import sheet
from vitrail.tasks.diffusion.sampling import Sampling, class_indices, sample_pictures
from vitrail.tasks.diffusion.task import Diffusion

SHOWN = 30
"""Samples that are drawn, ..."""
COMPARED = 10
"""... and how many of them stand beside the nearest training image."""
SAMPLING = Sampling(steps=20, sampler="dpm++")


def report_part(run: Reported) -> Part:
    """Return the loss, samples, and the samples nearest to a training image."""
    task = run.task
    assert isinstance(task, Diffusion)
    trained = task.trained(task.model)
    labels = class_indices(trained, None, SHOWN)
    pictures = list(sample_pictures(trained, range(SHOWN), labels, SAMPLING))
    names = [None if label is None else trained.labels[label] for label in labels]
    figures.save(sheet(pictures, names), run.plots / "samples.png")
    pairs = nearest_pairs(pictures, [item.image for item in run.data.split("train")], task.preparation)
    figures.save(sheet(pairs, ["made", "real"] * (len(pairs) // 2)), run.plots / "nearest.png")
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


def nearest_pairs(pictures: Sequence[Image.Image], learned: Sequence[Any], preparation: Preparation) -> list[Image.Image]:
    """Return the samples nearest to a training image, the nearest first, each followed by it."""
    real = [preparation.pixels(image) for image in learned]
    nearest = nearest_of(pixel_vectors([preparation.pixels(picture) for picture in pictures]), pixel_vectors(real))
    pairs = [(pictures[number], to_picture(real[nearest.index[number]])) for number in nearest.order[:COMPARED]]
    return [picture for pair in pairs for picture in pair]

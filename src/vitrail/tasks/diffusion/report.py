"""The report on diffusion: samples of every class, how they grew, whether they are copies, and the loss by time."""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from PIL import Image

from vitrail.data.loading.sampler import some_items
from vitrail.study.page import figures, page
from vitrail.study.page.page import Markup
from vitrail.study.page.report_part import SPLIT_WORDS, Part, Reported
from vitrail.study.page.tables import split_table
from vitrail.tasks.diffusion.quality.copies import Copies
from vitrail.tasks.diffusion.quality.distances import pixel_vectors
from vitrail.tasks.diffusion.quality.loss_by_time import BINS, LossByTime
from vitrail.tasks.diffusion.sampling.making import class_indices, sample_pictures
from vitrail.tasks.diffusion.sampling.options import Sampling
from vitrail.tasks.diffusion.sampling.sheet import COLUMNS, copy_sheet, sheet
from vitrail.tasks.diffusion.task import Diffusion

SHOWN = 100
"""Samples, where there is time for them; at least `COLUMNS`."""
SEARCHED = 20_000
"""Training images that are compared with them, at most."""
SHARE, SECONDS = 0.05, 5.0
"""Fraction of the training's time that samples may take, and seconds that they may take in any case."""
SAMPLING = Sampling(steps=20, sampler="dpm++")
COPIES = (
    "Samples beside the training image that is nearest by its pixels, the nearest first: are they copies? Numbers are distances, "
    "divided by the median distance of {} real images that were not learned. The median of {} samples is {:.2f}: well below 1 "
    "are copies. {} training images were compared."
)
GROWTH = "Samples of the same seeds and classes at the ends of some epochs, the first epoch at the top."
BY_TIME = "Mean loss of images by their time, from the image, 0, to the noise, 1."


def report_part(run: Reported) -> Part:
    """Return the loss, samples and their growth, the samples nearest to a training image, and the loss by time."""
    task, metrics = run.task, run.metrics
    assert isinstance(task, Diffusion) and isinstance(metrics, LossByTime)
    pictures, names = samples(task, run)
    figures.save(sheet(pictures, names), run.plots / "samples.png")
    figures.save(loss_plot(metrics.rows), run.plots / "loss-by-time.png")
    how = f"{SAMPLING.steps} steps of {SAMPLING.sampler}, no guidance, seeds 0 to {len(pictures) - 1}."
    what = f"error of the model's output on {len(run.items):,} {SPLIT_WORDS[run.split]}images, each at a time of its own"
    copied, cards = copy_section(task, run, pictures)
    return Part(
        cards=[(f"{metrics.scores()['loss']:.4f}", what), *cards],
        sections=[
            page.section("Samples", page.picture(run.plots / "samples.png", "Samples", how)),
            *growth_section(run.plots),
            *copied,
            page.section("Loss by time", page.picture(run.plots / "loss-by-time.png", "Loss by time", BY_TIME)),
        ],
        data=split_table(run.data),
        caption="In training noise and time of an image are drawn anew in every epoch, in validation they stay.",
    )


def samples(task: Diffusion, run: Reported) -> tuple[list[Image.Image], list[str | None]]:
    """Return samples spread over the classes, with their classes: as many as there is time for by the time of the first."""
    trained, begun = task.trained(task.model), time.perf_counter()
    room = min(run.seconds / 2, max(SECONDS, SHARE * sum(row["seconds"] for row in run.rows)))

    def made(count: int) -> tuple[list[Image.Image], list[str | None]]:
        labels = class_indices(trained, None, count)
        names = [trained.class_name(label) for label in labels]
        return list(sample_pictures(trained, range(count), labels, SAMPLING)), names

    first = made(COLUMNS)
    affordable = room / (time.perf_counter() - begun) - 1
    count = COLUMNS * max(0, min(SHOWN // COLUMNS, math.floor(affordable)))
    return made(count) if count else first


def growth_section(plots: Path) -> list[Markup]:
    """Return a section with the pictures of the ends of epochs, one below the other; none of a run without any."""
    files = sorted(plots.glob("epoch-*.png"))
    if not files:
        return []
    figures.save(growth_sheet(files), plots / "growth.png")
    return [page.section("Growth", page.picture(plots / "growth.png", "Samples as they grew", GROWTH))]


@figures.styled
def growth_sheet(files: Sequence[Path]) -> Figure:
    """Draw a row for each picture of an epoch, beside its number."""
    pictures = [Image.open(file) for file in files]
    width, height = pictures[0].size
    figure, grid = figures.canvas(9.5, len(files) * (9.0 * height / width + 0.05), len(files))
    for (axes,), picture, file in zip(grid, pictures, files, strict=True):
        figures.bare(axes)
        axes.imshow(picture, cmap="gray" if picture.mode == "L" else None, vmin=0, vmax=255)
        axes.set_ylabel(str(int(file.stem.removeprefix("epoch-"))), rotation=0, ha="right", va="center")
    return figure


def copy_section(task: Diffusion, run: Reported, pictures: Sequence[Image.Image]) -> tuple[list[Markup], list[tuple[str, str]]]:
    """Return a section with the samples nearest to a training image, and a card; none without images that were not learned."""
    held_out = [item for split in ("val", "test") for item in run.data.splits[split]]
    if not held_out:
        return [], []

    def pixels(images: Sequence[Any]) -> Any:
        return pixel_vectors(images, task.preparation)

    learned = some_items(run.data.split("train"), SEARCHED, seed=0)
    copies = Copies.search(pixels(pictures), some_items(held_out, len(pictures), seed=0), learned, pixels)
    figures.save(copy_sheet(copies, pictures, task.preparation), run.plots / "copies.png")
    caption = COPIES.format(f"{len(copies.held_out.apart):,}", f"{len(pictures):,}", copies.ratio, f"{len(learned):,}")
    card = (f"{copies.ratio:.2f}", "median distance of samples to the nearest training image, over that of other real images")
    return [page.section("Copies", page.picture(run.plots / "copies.png", "Samples beside training images", caption))], [card]


@figures.styled
def loss_plot(rows: Sequence[dict[str, Any]]) -> Figure:
    """Draw the mean loss in each part of the way from image to noise."""
    figure, axes = figures.canvas(6, 3)
    lefts, losses = zip(*((row["from"], row["loss"]) for row in rows if row["loss"] is not None), strict=True)
    axes.bar(lefts, losses, width=1 / BINS, align="edge", color=figures.BLUE, edgecolor="white")
    axes.set(xlim=(0, 1), xlabel="time, from image to noise", ylabel="loss")
    return figure

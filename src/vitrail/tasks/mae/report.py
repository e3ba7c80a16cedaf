"""The report on masked autoencoding: what the encoder saw, what the decoder drew, and what was there."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from PIL import Image

from vitrail.data.loading.batches import on_device
from vitrail.data.loading.dataset import ImageDataset
from vitrail.data.loading.sampler import spread
from vitrail.study.page import figures, page
from vitrail.study.page.report_part import SPLIT_WORDS, Part, Reported
from vitrail.study.page.tables import split_table
from vitrail.tasks.mae.task import Reconstruction

SHOWN = 8
COLUMNS = ("seen", "reconstructed", "original")


def report_part(run: Reported) -> Part:
    """Return the loss, some reconstructions, and how many images there are."""
    task, scores = run.task, run.metrics.scores()
    assert isinstance(task, Reconstruction)
    items = [run.items[place] for place in spread(len(run.items), SHOWN)]
    device = next(task.parameters()).device
    dataset = ImageDataset(items, task.preparation, targets=task.targets())
    batch = on_device(dataset.batch([(0, i) for i in range(len(items))]), device)
    images = task.preparation.normalize(batch["images"])
    seen, whole = task.drawn(images, batch["noise"])
    sheets = [task.preparation.pictures(part) for part in (seen, whole, images)]
    figures.save(sheet(list(zip(*sheets, strict=True))), run.plots / "reconstructions.png")
    count = batch["noise"].shape[1]
    masked = count - task.seen_of(count)
    kind = "normalized pixels of the masked patches" if task.settings.normalize_patches else "pixels of the masked patches"
    caption = (
        f"{len(items)} images. Left, the patches that the encoder sees: {masked} of {count} are masked "
        f"({100 * masked / count:.0f} %). "
        "Middle, with the masked patches as the decoder draws them"
    )
    if task.settings.normalize_patches:
        caption += "; each has the mean and deviation of the true patch back, without which there would be nothing to see"
    picture = page.picture(run.plots / "reconstructions.png", "Reconstructions", f"{caption}. Right, the original.")
    what = f"mean squared error of the {kind}, on {len(run.items):,} {SPLIT_WORDS[run.split]}images"
    return Part(
        cards=[(f"{scores['loss']:.4f}", what)],
        sections=[page.section("Reconstructions", picture)],
        data=split_table(run.data),
        caption="In training an image is masked in another way in every epoch, in validation always in the same way.",
    )


@figures.styled
def sheet(rows: Sequence[Sequence[Image.Image]]) -> Figure:
    """Draw a picture for each of `COLUMNS` in a row, two rows side by side."""
    lines = -(-len(rows) // 2)
    figure, grid = figures.canvas(9.6, 1.65 * lines + 0.3, lines, 7, width_ratios=(4, 4, 4, 1, 4, 4, 4))
    for axes in grid.flat:
        axes.set_axis_off()
    for number, row in enumerate(rows):
        for column, picture in enumerate(row):
            axes = grid[number // 2, 4 * (number % 2) + column]
            axes.imshow(picture, cmap="gray" if picture.mode == "L" else None, vmin=0, vmax=255)
            if number < 2:
                axes.set_title(COLUMNS[column], fontsize=9)
    return figure

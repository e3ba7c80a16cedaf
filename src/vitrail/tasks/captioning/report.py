"""The report on captioning: scores with two baselines, attention for each word, and captions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from vitrail.data.loading.sampler import spread
from vitrail.files import write_text
from vitrail.study.maps.patch_coordinates import Places, patch_places
from vitrail.study.maps.token_alignment import which_attention
from vitrail.study.page import figures, page
from vitrail.study.page import images as pictures
from vitrail.study.page.page import Markup, Number
from vitrail.study.page.report_part import SPLIT_WORDS, Part, Reported
from vitrail.tasks.captioning.floors import nearest_image
from vitrail.tasks.captioning.images.captioned_images import Captioned
from vitrail.tasks.captioning.task import Captioning, CaptionMetrics, caption_rows
from vitrail.tasks.captioning.weights import TrainedCaptioner
from vitrail.tasks.captioning.words import Caption, Look
from vitrail.tasks.metrics import metrics_in

CAPTIONS = "captions.csv"
"""The file in the run folder with every image that the run was evaluated on."""
SHOWN, DRAWN = 24, 3
"""Number of images shown with their captions, and number of images whose attention is drawn."""
FLOORS = (
    "The last two rows are baselines without a captioner: one caption for every image, and the caption of the most similar "
    "training image."
)
LOOKS = "The image, then for each word the attention to each part of it, {}; parts that the model did not see are pale."
COLUMNS, SIDE = 6, 1.9
"""Images in a row of a sheet, and the side of each in inches."""
LONGEST = 200
"""Most bytes of an image's name in the file name of its sheet: file systems allow 255, including number and suffix."""


def report_part(run: Reported) -> Part:
    """Return the scores, the number of different captions, and some images with their captions and references."""
    metrics = run.metrics
    assert isinstance(run.task, Captioning) and isinstance(metrics, CaptionMetrics)
    scores, kind = metrics.scores(), SPLIT_WORDS[run.split]
    head, *written = caption_rows(run.items, metrics)
    shown = [(run.items[place], written[place][1]) for place in spread(len(written), SHOWN)]
    gallery = page.gallery((page.thumbnail(item.image, item.name), caption, item.target[0]) for item, caption in shown)
    floors = _floors(run)
    shown_metrics = [metric for metric in metrics_in(scores) if metric.name not in ("loss", "token_accuracy")]
    compared = {"the model": scores, **floors}.items()
    rows = [(name, *(Number(metric.shown(own[metric.name])) for metric in shown_metrics)) for name, own in compared]
    table = page.table(("", *(metric.short for metric in shown_metrics)), rows)
    warning = [page.paragraph(f"{metrics.warning}.")] if metrics.warning else []
    return Part(
        cards=[
            (f"{scores['cider_d']:.1f}", f"CIDEr-D on {len(written):,} {kind}images, beam {run.task.settings.beams}"),
            (f"{scores['bleu4']:.1f}", "BLEU-4"),
            (f"{scores['different_captions']:,}", f"different captions of {len(written):,}"),
        ],
        sections=[
            page.section("Scores", table, page.note(FLOORS) if len(floors) > 1 else Markup(""), *warning),
            *([] if run.doubts else _looks(run.task, shown, run)),
            page.section("Captions", gallery, page.note(f"The model's caption, then a reference. All are in {CAPTIONS}.")),
        ],
        data=page.table(
            ("split", "images", "captions"),
            [
                (name, Number(f"{len(items):,}"), Number(f"{sum(len(item.target) for item in items):,}"))
                for name, items in run.data.splits.items()
            ],
        ),
        caption="Loss is per token, in training with smoothed labels and dropout.",
        tables={CAPTIONS: [head, *written]},
    )


def _looks(task: Captioning, shown: Sequence[tuple[Captioned, str]], run: Reported) -> list[Markup]:
    """Return a section with the attention for each word of some captions; empty for a model without attention."""
    drawn, places = [], patch_places(task.model.get_submodule("encoder"))
    for number, place in enumerate(spread(len(shown), DRAWN)):
        item = shown[place][0]
        caption = task.caption(item.image)
        if caption.looks:
            picture, file = task.preparation.decode(item.image), run.plots / f"looks-{number}.png"
            figures.save(looks_sheet(picture, task.preparation.box(*picture.size), places, caption.looks), file)
            drawn.append(page.picture(file, caption.text, f"{item.name}: {caption.text}"))
    about = page.note(LOOKS.format(which_attention(task.model)))
    return [page.section("Where it looked", *drawn, about)] if drawn else []


def _floors(run: Reported) -> dict[str, dict[str, Any]]:
    """Return the scores of the baselines by name; empty if the images are training images."""
    if run.split in ("train", "all") or run.floor is None:
        return {}
    nearest = nearest_image(run.task, run.data.splits["train"], run.items, seconds=run.seconds)
    others = {"the nearest training image's": nearest} if nearest else {}
    return {run.floor.name: dict(run.floor.scores), **others}


def overlays(picture: Image.Image, view: pictures.Box, places: Places, looks: Sequence[Look]) -> list[Image.Image]:
    """Return the upright image once for each word, with the word's attention drawn over it.

    ``view`` is the part of the image that the model saw; ``places`` are the positions of the patches in this part.
    """
    small = pictures.thumbnail(picture)
    scale = small.width / picture.width
    box, seen = places.within((view[0] * scale, view[1] * scale, view[2] * scale, view[3] * scale))
    return [pictures.overlay(small, look, box, seen) for _, look in looks]


def looks_sheet(picture: Image.Image, view: pictures.Box, places: Places, looks: Sequence[Look]) -> Figure:
    """Draw the image, then its `overlays`, each with its word as title."""
    laid = zip([word for word, _ in looks], overlays(picture, view, places, looks), strict=True)
    shown = [("", pictures.thumbnail(picture)), *laid]
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    tall = min(pictures.TALLEST, picture.height / picture.width)
    with matplotlib.rc_context(figures.STYLE):
        figure = Figure(figsize=(SIDE * columns, rows * (SIDE * tall + 0.3)), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes in grid:
            axes.set_axis_off()
        for axes, (word, image) in zip(grid, shown, strict=False):
            axes.imshow(np.asarray(image))
            axes.set_title(word, fontsize=10, parse_math=False)
    return figure


def write_looks(folder: Path, trained: TrainedCaptioner, captions: Sequence[tuple[Path, Caption]]) -> None:
    """Write a sheet NUMBER-NAME.png with the attention for each image, and ``index.html`` with all sheets."""
    sections, preparation, places = [], trained.preparation, patch_places(trained.model.get_submodule("encoder"))
    about = LOOKS.format(which_attention(trained.model))
    for number, (file, caption) in enumerate(captions, 1):
        picture = preparation.decode(file)
        name = file.stem.encode(errors="ignore")[:LONGEST].decode(errors="ignore")
        drawn = folder / f"{number:04}-{name}.png"
        figures.save(looks_sheet(picture, preparation.box(*picture.size), places, caption.looks), drawn)
        sections.append(page.section(caption.text, page.picture(drawn, caption.text, f"{file.name}. {about}")))
    write_text(folder / "index.html", page.page("Where the model looked for each word", sections))

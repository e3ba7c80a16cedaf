"""The report on captioning: scores beside the two floors, where the model looked for each word, and what it wrote."""

from collections.abc import Sequence
from typing import Any

from vitrail.data.loading.sampler import spread
from vitrail.study.maps.patch_coordinates import patch_places
from vitrail.study.maps.token_alignment import which_attention
from vitrail.study.page import figures, page
from vitrail.study.page.page import Markup, Number
from vitrail.study.page.report_part import SPLIT_WORDS, Part, Reported
from vitrail.tasks.captioning.caption_attention import LOOKS, looks_sheet
from vitrail.tasks.captioning.floors import nearest_image
from vitrail.tasks.captioning.images.captioned_images import Captioned
from vitrail.tasks.captioning.task import Captioning, CaptionMetrics, caption_rows
from vitrail.tasks.metrics import metrics_in

CAPTIONS = "captions.csv"
"""In the run folder: every image that the run was evaluated on."""
SHOWN, DRAWN = 24, 3
"""Images that are shown with their captions, and of how many it is drawn where the model looked."""
FLOORS = (
    "The last two rows are what can be had without a captioner: one caption for every image, and the caption of the most similar "
    "training image."
)


def report_part(run: Reported) -> Part:
    """CIDEr-D, BLEU and ROUGE-L, how many captions differ, and some images with what was written and what people wrote."""
    metrics = run.metrics
    assert isinstance(run.task, Captioning) and isinstance(metrics, CaptionMetrics)
    scores, kind = metrics.scores(), SPLIT_WORDS[run.split]
    head, *written = caption_rows(run.items, metrics)
    shown = [(run.items[place], written[place][1]) for place in spread(len(written), SHOWN)]
    gallery = page.gallery((page.thumbnail(item.image, item.name), caption, item.target[0]) for item, caption in shown)
    floors = _floors(run)
    compared = {"the model": scores, **floors}
    told = [metric for metric in metrics_in(scores) if metric.name not in ("loss", "token_accuracy")]
    rows = [(who, *(Number(metric.shown(found[metric.name])) for metric in told)) for who, found in compared.items()]
    table = page.table(("", *(metric.short for metric in told)), rows)
    warning = [page.paragraph(f"{metrics.warning}.")] if metrics.warning else []
    beams = run.task.settings.beams
    return Part(
        cards=[
            (f"{scores['cider_d']:.1f}", f"CIDEr-D on {len(written):,} {kind}images, beam {beams}"),
            (f"{scores['bleu4']:.1f}", "BLEU-4"),
            (f"{scores['different_captions']:,}", f"different captions of {len(written):,}"),
        ],
        sections=[
            page.section("Scores", table, page.note(FLOORS) if len(floors) > 1 else Markup(""), *warning),
            *([] if run.doubts else _looks(run.task, shown, run)),
            page.section("Captions", gallery, page.note(f"What the model wrote, and what somebody did. All are in {CAPTIONS}.")),
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
    """Where the model looked for each word of some captions; nothing of a model without attention."""
    drawn, places = [], patch_places(task.model.get_submodule("encoder"))
    for number, place in enumerate(spread(len(shown), DRAWN)):
        item = shown[place][0]
        caption = task.caption(item.image)
        words = [(word.text, word.look) for word in caption.words if word.look is not None]
        if words:
            picture, file = task.preparation.decode(item.image), run.plots / f"looks-{number}.png"
            figures.save(looks_sheet(picture, task.preparation.box(*picture.size), places, words), file)
            drawn.append(page.picture(file, caption.text, f"{item.name}: {caption.text}"))
    about = page.note(LOOKS.format(which_attention(task.model)))
    return [page.section("Where it looked", *drawn, about)] if drawn else []


def _floors(run: Reported) -> dict[str, dict[str, Any]]:
    """Return what can be had without a captioner, by what a row is called; nothing where the images were learned from."""
    if run.split in ("train", "all") or run.floor is None:
        return {}
    nearest = nearest_image(run.task, run.data.splits["train"], run.items, seconds=run.seconds)
    others = {"the nearest training image's": nearest} if nearest else {}
    return {run.floor.name: dict(run.floor.scores), **others}

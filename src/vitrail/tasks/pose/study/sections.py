"""A study of a pose model: predicted joints, attention from the joints' patches, and cost."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from vitrail.checks import refuse_given
from vitrail.data.loading.sampler import some_items, spread
from vitrail.study.maps.patch_coordinates import Places, heatmap_places, patch_places
from vitrail.study.page import figures, page
from vitrail.study.page import images as pictures
from vitrail.study.page.figures import canvas, styled
from vitrail.study.page.page import Markup
from vitrail.study.sections import attention as attention_sections
from vitrail.study.sections import model as model_sections
from vitrail.study.sections.request import StudyRequest
from vitrail.study.sections.study_images import plain_items
from vitrail.tasks.metrics import metrics_in
from vitrail.tasks.pose.data import open_people_for
from vitrail.tasks.pose.study.joints import joint_numbers
from vitrail.tasks.pose.study.skeletons import draw_people, ringed
from vitrail.tasks.pose.study.study_people import PoseStudy, StudiedPeople, whole_person
from vitrail.tasks.pose.task import PoseMetrics
from vitrail.tasks.pose.weights import TrainedPose
from vitrail.weights.model_folder.trained import require_as_built

SHOWN, COLUMNS = 5, 4
"""Number of people whose maps are drawn, and the default number of joints."""
Laid = Callable[[Image.Image, np.ndarray], Image.Image]
"""Function that draws a map over the model's view of a person."""
SIDE, THIN = 384, 0.006
"""Pixels of the longer side of a person on a sheet, and the width of limbs over maps, as a fraction of it."""
SKELETON = " The left side of the body is blue, the right side orange; joints with a low score are fainter."
HEATMAPS = (
    "Each column is the heatmap of a joint, from 0 to its maximum. The joint is at the maximum, in the white ring, and its "
    "score is the height there: 1 for a bell as in training."
)
QUERIES = (
    "The maps show attention of {layer}, from the patch in which the model finds the column's joint, marked by the white ring. "
    "The image glows where the map is high, equally for the highest twentieth. All maps are in maps.npz."
)
BETWEEN = (
    "Attention from the patch of one joint (down) to that of another (across), relative to the mean of all patches, which is "
    "1; averaged over {people:,} people. On the diagonal it is attention to the own patch."
)
LEFT_OUT = (
    "The decoder reads every patch and not a single token. So there is no single map of attention, no rollout, no relevance, "
    "and no test by removing patches in the order of such maps. The model has no classes, so that there are no probes and no "
    "errors by class."
)


def subjects_for(trained: TrainedPose, request: StudyRequest) -> tuple[str, StudiedPeople]:
    """Return the source of a study's people, and the people; raises `VitrailError`."""
    require_as_built(trained.model, trained.config)
    refuse_given("the patch that looks is where the model finds a joint", {"--query": request.query is not None})
    if plain := plain_items(request, "joints"):
        return str(request.data), StudiedPeople([whole_person(item.name, item.image) for item in plain])
    note = request.observer.note
    source, split, settings = open_people_for(trained.skeleton, request.model, request.data, request.split, note)
    people = some_items(source.split(split), request.images, 0)
    return source.source, StudiedPeople(people, split, labelled=True, mirror=settings.mirror)


def write_study(
    folder: Path, trained: TrainedPose, subjects: StudiedPeople, request: StudyRequest, *, title: str
) -> dict[str, Any]:
    """Write figures, ``maps.npz``, ``study.json`` and ``report.html`` to a folder; return the content of ``study.json``."""
    columns = joint_numbers(trained, list(request.joints)) or spread(len(trained.skeleton.joints), COLUMNS)
    layer = -1 if request.layer is None else request.layer
    study = PoseStudy(folder, trained, subjects, request.observer, layer=layer, head=request.head)
    return study.written(title, _sections(study, columns))


def _sections(study: PoseStudy, columns: Sequence[int]) -> Iterator[Markup]:
    yield page.cards([*_scores(study), *model_sections.size(study)])
    yield _found(study, columns)
    yield _queries(study, columns)
    yield _between(study)
    yield attention_sections.distances(study)
    yield model_sections.positions(study)
    yield model_sections.filter_components(study)
    yield page.section("What is left out", page.paragraph(LEFT_OUT))
    yield model_sections.cost(study)


def _scores(study: PoseStudy) -> Iterator[tuple[str, str]]:
    """Yield cards with the scores, if joints are annotated."""
    if not study.subjects.labelled:
        return
    metrics = PoseMetrics(study.preparation, study.skeleton)
    metrics.rows = [study.row(number) for number in range(len(study.pixels))]
    scores = {name: value for name, value in metrics.scores().items() if name != "loss"}
    study.numbers["scores"] = scores
    for metric in metrics_in(scores):
        yield metric.shown(scores[metric.name]), f"{metric.title} on {len(study.pixels):,} people"


def _found(study: PoseStudy, columns: Sequence[int]) -> Markup:
    """Return the section with predicted and annotated skeletons of some people, and heatmaps."""
    heatmaps = study.maps["heatmaps"]
    scores = {name: float(score) for name, score in zip(study.skeleton.joints, study.scores.mean(axis=0), strict=True)}
    study.numbers["mean_scores"] = scores
    places = heatmap_places(study.preparation.image_size, (heatmaps.shape[-2], heatmaps.shape[-1]))
    laid = partial(_laid, places=places, brightest=1.0)
    figure = _sheet(study, columns, heatmaps.clamp(min=0).numpy(), laid, marked=study.subjects.labelled)
    return page.section("Where the joints are", study.picture(figure, "heatmaps", "Heatmaps", HEATMAPS + SKELETON))


def _queries(study: PoseStudy, columns: Sequence[int]) -> Markup:
    figure = _sheet(study, columns, study.maps["joints"].numpy(), partial(_laid, places=patch_places(study.model)))
    which = "the last layer" if study.layer == -1 else f"layer {study.layer}"
    layer = which if study.head is None else f"{which}, head {study.head}"
    caption = QUERIES.format(layer=layer) + SKELETON
    return page.section("Where a joint's query looks", study.picture(figure, "queries", "Maps of joints", caption))


def _sheet(study: PoseStudy, columns: Sequence[int], maps: np.ndarray, laid: Laid, *, marked: bool = False) -> Figure:
    """Draw some people with their skeletons, and maps (N, K, rows, columns) of some joints, drawn by ``laid``."""
    rows, captions = [], []
    for number in spread(len(study.pixels), SHOWN):
        person, (view, plan) = study.subjects.items[number], study.view(number, SIDE)
        places, scores = plan.points(study.outside(number) + 0.5) - 0.5, study.scores[number]
        row = [draw_people(view, places[None], study.skeleton, scores[None])]
        if marked:
            known = np.where(person.joints[:, 2:] > 0, plan.points(person.joints[:, :2] + 0.5) - 0.5, np.nan)
            row.append(draw_people(view, known[None], study.skeleton))
        for joint in columns:
            map_ = draw_people(laid(view, maps[number, joint]), places[None], study.skeleton, scores[None], line=THIN)
            row += [ringed(map_, places[joint])]
        rows.append(row)
        captions.append(f"{figures.short_path(person.name)}\nmean score {scores.mean():.2f}")
    names = [figures.short(figures.readable(study.skeleton.joints[joint]), 16) for joint in columns]
    return pictures.sheet(rows, ["found", *["marked"] * marked, *names], captions)


def _laid(view: Image.Image, map_: np.ndarray, places: Places, brightest: float = pictures.BRIGHTEST) -> Image.Image:
    """Draw a map over the model's view of a person; outermost pixel centres coincide, as in UDP."""
    (width, height), (high, wide) = view.size, places.size
    x, y = (width - 1) / (wide - 1) / 2, (height - 1) / (high - 1) / 2  # half a pixel of the model's input
    box, seen = places.within((0.5 - x, 0.5 - y, width - 0.5 + x, height - 0.5 + y))
    return pictures.overlay(view, map_, box, seen, brightest=brightest)


@styled
def _between(study: PoseStudy) -> Markup:
    study.numbers["between_joints"] = study.between.tolist()
    names = [figures.readable(name) for name in study.skeleton.joints]
    side = max(4.5, 1.8 + 0.3 * len(names))
    figure, axes = canvas(side + 1, side)
    figure.colorbar(axes.imshow(study.between, cmap="viridis", vmin=0), ax=axes, shrink=0.7)
    axes.set_xticks(range(len(names)), names, rotation=90, parse_math=False)
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.set(xlabel="looked at", ylabel="query")
    axes.spines[:].set_visible(False)
    caption = BETWEEN.format(people=len(study.pixels))
    return page.section("Do joints look at each other", study.picture(figure, "between", "Attention between joints", caption))

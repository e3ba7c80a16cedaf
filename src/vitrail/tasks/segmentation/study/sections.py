"""A study of a segmenter: predictions, the parts of an image that a pixel's class depends on, and cost."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from vitrail.checks import refuse_given
from vitrail.data.items import Item
from vitrail.data.loading.sampler import some_items, spread
from vitrail.errors import DataError
from vitrail.study.page import figures, page
from vitrail.study.page import images as pictures
from vitrail.study.page.page import Markup, Number
from vitrail.study.sections import model as model_sections
from vitrail.study.sections.context import StudyContext
from vitrail.study.sections.request import StudyRequest
from vitrail.study.sections.study_images import Subjects, plain_items
from vitrail.tasks.metrics import METRICS
from vitrail.tasks.segmentation.answer import laid_over
from vitrail.tasks.segmentation.evaluate import open_masks_for
from vitrail.tasks.segmentation.files.coding import Coding
from vitrail.tasks.segmentation.judging.metrics import confusion_matrix, iou, mean
from vitrail.tasks.segmentation.study.points import Point, largest_areas, point_maps
from vitrail.tasks.segmentation.weights import TrainedSegmenter
from vitrail.weights.model_folder.trained import require_as_built

POINTS, SHOWN = 3, 6
"""Number of points in each image, and of images that are drawn."""
LARGEST = 1.5
"""Largest side of the part of an image that is studied, as a multiple of the model's size: attention maps of more fill the
memory."""
METHODS = {
    True: "Relevance of the patches for this class at the cross, through all layers of attention (Chefer et al. 2021), from the "
    "tokens that the decoder reads.",
    False: "Size of the gradient, at the image, of this class's logit at the cross: the model has other paths than attention to "
    "the whole image.",
}
CAPTION = (
    " The crosses are in the middle of the classes of largest area. The image glows where the map is high, equally for the "
    "highest twentieth; the model does not see pale parts. All maps are in maps.npz."
)
TABLE = (
    "Fraction of the map's sum that lies on pixels of the predicted class, and the mean distance in pixels from the cross, "
    "weighted by the map. An even map would have the class's fraction of the image."
)


@dataclass(frozen=True)
class StudiedMasks(Subjects):
    """Images of a study, with masks if ``coding`` is not None."""

    coding: Coding | None = None


class Studied(NamedTuple):
    """The results of one image."""

    box: tuple[int, int, int, int]
    """Left, top, right and bottom of the part that is studied."""
    mask: np.ndarray
    """Predicted classes, (H, W)."""
    truth: np.ndarray | None
    points: list[Point]
    maps: Tensor
    """(points, rows, columns)."""
    cell: tuple[float, float]
    """Height and width in pixels of a value of the maps."""
    inside: list[float]
    """Fraction of each map on pixels of the point's class."""
    distances: list[float]
    """Mean distance of each map from the point, in pixels."""


def subjects_for(trained: TrainedSegmenter, request: StudyRequest) -> tuple[str, StudiedMasks]:
    """Return the source of a study's images, and the images; raises `VitrailError`."""
    require_as_built(trained.model, trained.config)
    given = {"--layer": request.layer, "--head": request.head, "--query": request.query, "--joint": request.joints or None}
    what = "the maps of a segmenter are of all layers and heads, from the largest areas of classes"
    refuse_given(what, {name: value is not None for name, value in given.items()})
    try:
        source, split, _ = open_masks_for(trained.labels, request.model, request.data, request.split, request.observer.note)
    except DataError as error:
        if not (plain := plain_items(request, "masks")):
            raise
        return str(request.data), StudiedMasks(plain, why=f"scores are left out: {error.what}")
    items = some_items(source.split(split), request.images, 0)
    return source.source, StudiedMasks(items, split, labelled=True, coding=source.coding)


def write_study(
    folder: Path, trained: TrainedSegmenter, subjects: StudiedMasks, request: StudyRequest, *, title: str
) -> dict[str, Any]:
    """Write figures, ``maps.npz``, ``study.json`` and ``report.html`` to a folder; return the content of ``study.json``."""
    study = MaskStudy(folder, trained, subjects, request)
    return study.written(title, _sections(study))


class MaskStudy(StudyContext):
    """A segmenter and the images of a study, each studied at its own size, or if it is large its middle."""

    subjects: StudiedMasks

    def __init__(self, folder: Path, trained: TrainedSegmenter, subjects: StudiedMasks, request: StudyRequest):
        super().__init__(folder, trained, subjects, None, request.observer)
        self.trained, self.by_attention = trained, bool(self.model.sees_by_attention)
        self.begin("looking into images", len(subjects.items))
        self.results = [self._studied(item) for item in subjects.items]
        for number, result in enumerate(self.results):
            self.maps |= {f"{kind}-{number:04}": value for kind, value in _kept(result).items()}
        self.numbers["method"] = "relevance" if self.by_attention else "gradient"
        self.numbers["points"] = {
            item.name: [self._described(result, number) for number in range(len(result.points))]
            for item, result in zip(subjects.items, self.results, strict=True)
        }

    def read(self, items: list[Any], what: str) -> Tensor:
        """Return no pixels: images of different sizes are read one at a time."""
        return torch.empty(0)

    def _studied(self, item: Item) -> Studied:
        picture = self.preparation.decode(item.image)
        box = self._middle(picture.size)
        pixels = np.asarray(picture.crop(box)).reshape(box[3] - box[1], box[2] - box[0], -1).transpose(2, 0, 1)
        image = self.preparation.normalize(torch.from_numpy(pixels.copy())[None].to(self.device))
        with torch.no_grad():
            mask = self.model.enlarged(self.model(image), *image.shape[2:])[0].argmax(dim=0).cpu().numpy()
        truth = None
        if item.mask is not None and self.subjects.coding is not None:
            truth = self.subjects.coding.read(item.mask)[box[1] : box[3], box[0] : box[2]]
        points = largest_areas(mask, POINTS)
        maps = point_maps(self.model, image, points).cpu()
        self.advance(1)
        down, across = (8.0, 8.0) if not self.by_attention else tuple(map(float, self.model.backbone.config.patch_size))
        return Studied(box, mask, truth, points, maps, (down, across), *_measured(maps, points, mask, (down, across)))

    def _middle(self, size: tuple[int, int]) -> tuple[int, int, int, int]:
        """Return the middle of an image (width, height), in whole patches if it is as large as one."""
        config: Any = self.trained.config
        rows, columns = config.image_size
        starts, sides = [], []
        for side, own, each in zip(size, (columns, rows), reversed(config.multiple), strict=True):
            most = max(each, int(LARGEST * own))
            part = min(side, most) if side < each else min(side, most) // each * each
            starts.append((side - part) // 2)
            sides.append(part)
        return starts[0], starts[1], starts[0] + sides[0], starts[1] + sides[1]

    def _described(self, result: Studied, number: int) -> dict[str, Any]:
        point, (left, top, *_) = result.points[number], result.box
        own = {"class": self.trained.labels[point.label], "row": top + point.row, "column": left + point.column}
        return {**own, "fraction": point.fraction, "inside": result.inside[number], "distance": result.distances[number]}


def _kept(result: Studied) -> dict[str, Tensor]:
    return {"maps": result.maps, "mask": torch.from_numpy(result.mask.astype(np.int32)), "box": torch.tensor(result.box)}


def _measured(
    maps: Tensor, points: Sequence[Point], mask: np.ndarray, cell: tuple[float, float]
) -> tuple[list[float], list[float]]:
    """Return the fraction of each map on pixels of its point's class, and its mean distance from the point in pixels."""
    rows, columns = (np.arange(count) for count in mask.shape)
    down, across = ((places // each).astype(int) for places, each in zip((rows, columns), cell, strict=True))
    inside, distances = [], []
    for map_, point in zip(maps.double().numpy(), points, strict=True):
        weights = map_[down[:, None], across]
        weights = weights / max(weights.sum(), np.finfo(float).tiny)
        inside.append(float(weights[mask == point.label].sum()))
        distances.append(float((weights * np.hypot(rows[:, None] - point.row, columns - point.column)).sum()))
    return inside, distances


def _sections(study: MaskStudy) -> Iterator[Markup]:
    yield page.cards([*_scores(study), *model_sections.size(study)])
    yield _looks(study)
    yield _table(study)
    yield model_sections.filter_components(study)
    yield model_sections.cost(study)


def _scores(study: MaskStudy) -> Iterator[tuple[str, str]]:
    """Yield a card with the mIoU of the studied parts, if there are masks."""
    known = [result for result in study.results if result.truth is not None]
    if not known:
        return
    counts = [confusion_matrix(r.truth, r.mask, len(study.trained.labels)) for r in known if r.truth is not None]
    miou = mean(iou(np.sum(counts, axis=0)))
    study.numbers["scores"] = {"miou": miou}
    yield METRICS["miou"].shown(miou), f"{METRICS['miou'].title} on {len(known):,} images, or their middle"


def _looks(study: MaskStudy) -> Markup:
    rows, captions = [], []
    for number in spread(len(study.results), SHOWN):
        rows.append(_row(study, number))
        result = study.results[number]
        names = ", ".join(figures.readable(study.trained.labels[point.label]) for point in result.points)
        captions.append(f"{figures.short_path(study.subjects.items[number].name)}\n{figures.short(names, 34)}")
    truth = ["truth"] * study.subjects.labelled
    head = ["image", *truth, "prediction", *(f"point {number + 1}" for number in range(POINTS))]
    caption = METHODS[study.by_attention] + CAPTION
    sheet = study.picture(pictures.sheet(rows, head, captions), "points", "Maps of points", caption)
    return page.section("What a pixel's class depends on", sheet)


def _row(study: MaskStudy, number: int) -> list[Image.Image]:
    """Return an image, its masks, and the maps of its points; a missing class is white."""
    result, item, colors = study.results[number], study.subjects.items[number], study.trained.colors
    picture = study.preparation.decode(item.image)
    left, top, right, bottom = result.box
    row = [picture]
    for mask in (result.truth, result.mask):
        if mask is not None:
            row.append(picture.convert("RGB"))
            row[-1].paste(laid_over(picture.crop(result.box), mask.astype(np.int64), colors, 0.7), (left, top))
    for point, map_ in zip(result.points, result.maps.numpy(), strict=True):
        down, across = result.cell
        covered = (left, top, left + across * map_.shape[1], top + down * map_.shape[0])
        laid = pictures.overlay(picture, map_, covered, (left, top, right, bottom))
        row.append(crossed(laid, (left + point.column, top + point.row)))
    row += [Image.new("L", picture.size, 255)] * (POINTS - len(result.points))
    return [pictures.thumbnail(image) for image in row]


def crossed(picture: Image.Image, place: tuple[int, int]) -> Image.Image:
    """Draw a cross, white with a black rim, at a pixel (x, y) of an image."""
    drawn = picture.convert("RGB")
    pen, arm = ImageDraw.Draw(drawn), max(3, round(0.035 * max(drawn.size)))
    x, y = place
    for width, color in ((3, "black"), (1, "white")):
        thick = width * max(1, arm // 5)
        pen.line([(x - arm, y), (x + arm, y)], color, thick)
        pen.line([(x, y - arm), (x, y + arm)], color, thick)
    return drawn


def _table(study: MaskStudy) -> Markup:
    """Return the mean numbers of the points of each class."""
    of_classes: dict[int, list[tuple[float, float, float]]] = {}
    for result in study.results:
        for point, inside, distance in zip(result.points, result.inside, result.distances, strict=True):
            of_classes.setdefault(point.label, []).append((point.fraction, inside, distance))
    rows = []
    for label, values in sorted(of_classes.items()):
        fraction, inside, distance = np.mean(values, axis=0).tolist()
        cells = (f"{len(values):,}", f"{100 * fraction:.1f}", f"{100 * inside:.1f}", f"{distance:.1f}")
        rows.append((study.trained.labels[label], *map(Number, cells)))
    head = ("class", "points", "of the image, %", "map on the class, %", "distance, pixels")
    return page.section("How far it depends on others", page.table(head, rows), page.note(TABLE))

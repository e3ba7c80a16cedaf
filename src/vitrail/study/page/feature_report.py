"""The report on features that were learned without labels: neighbours, a map of the images, and attention."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from PIL import Image
from torch import Tensor

from vitrail.data.images.preparation import Preparation
from vitrail.data.items import Item
from vitrail.data.loading.sampler import spread
from vitrail.study.maps.attention import look_of, reading_map
from vitrail.study.page import figures, page
from vitrail.study.page import images as pictures
from vitrail.study.page.report_part import SPLIT_WORDS, Part, Reported
from vitrail.study.page.tables import split_table
from vitrail.tasks.features.feature_metrics import FeatureMetrics
from vitrail.tasks.metrics import metrics_in
from vitrail.weights.model_folder.folder import TrainedModel

QUERIES, NEAREST = 12, 5
"""Images whose nearest neighbours are drawn, and how many of them."""
MAPPED, SIDE = 150, 32
"""Images on the map, and pixels of the side of each."""
LOOKED_AT = 6
"""Images whose attention is drawn."""


def report_part(run: Reported) -> Part:
    """Return the scores of the features, neighbours of some images, a map of images, and attention."""
    metrics, trained = run.metrics, run.task.trained(run.task.model)
    assert isinstance(metrics, FeatureMetrics)
    scores = metrics.scores()
    items = [run.items[number] for number in metrics.numbers.tolist()]
    cards = [(metric.shown(scores[metric.name], 1), metric.title) for metric in metrics_in(scores)]
    places, fraction = principal_axes(metrics.features)
    drawn = {
        "neighbours": (neighbours_sheet(items, metrics.features, trained.preparation), _neighbours_caption(run)),
        "image-map": (image_map(items, places, trained.preparation), _map_caption(fraction)),
    }
    if (attention := attention_sheet(items, trained)) is not None:
        caption = "What the vector of an image is read from: the attention of the last layer, highest where the image glows."
        drawn["attention"] = (attention, caption)
    titles = {"neighbours": "Nearest images", "image-map": "A map of the images", "attention": "Attention"}
    sections = []
    for name, (figure, caption) in drawn.items():
        figures.save(figure, run.plots / f"{name}.png")
        sections.append(page.section(titles[name], page.picture(run.plots / f"{name}.png", titles[name], caption)))
    return Part(cards=cards, sections=sections, data=split_table(run.data), caption="Labels, where there are some, only measure.")


def _neighbours_caption(run: Reported) -> str:
    images = f"{SPLIT_WORDS[run.split]}images"
    return (
        f"Left, some {images}; beside each the {NEAREST} most similar others by the cosine of their vectors, the nearest first."
    )


def _map_caption(fraction: float) -> str:
    return f"Images by the two principal axes of their vectors, which hold {100 * fraction:.0f} % of the variance."


def principal_axes(features: Tensor) -> tuple[Tensor, float]:
    """Return the coordinates (N, 2) of features (N, D) along their two principal axes, and their fraction of the variance."""
    centred = F.normalize(features.double(), dim=1)
    centred = centred - centred.mean(dim=0)
    u, s, _ = torch.linalg.svd(centred, full_matrices=False)
    variance = s.square()
    return u[:, :2] * s[:2], (variance[:2].sum() / variance.sum().clamp(min=1e-12)).item()


def nearest(features: Tensor, queries: Sequence[int], count: int) -> list[list[int]]:
    """Return the indices of the ``count`` nearest other images by cosine, the nearest first, for each query."""
    x = F.normalize(features, dim=1)
    similar = x[list(queries)] @ x.mT
    similar[range(len(queries)), list(queries)] = -torch.inf
    found: list[list[int]] = similar.topk(min(count, len(x) - 1), dim=1).indices.tolist()
    return found


def neighbours_sheet(items: Sequence[Item], features: Tensor, preparation: Preparation) -> Figure:
    """Draw some images and their nearest ones, two queries in a row."""
    shown = partial(_shown, preparation=preparation)
    queries = spread(len(items), QUERIES)
    rows = [[query, *near] for query, near in zip(queries, nearest(features, queries, NEAREST), strict=True)]
    names = [figures.short_path(items[query].name) for query in queries]
    head = ["image", *map(str, range(1, len(rows[0])))]
    figure: Figure = pictures.sheet([[shown(items[number]) for number in row] for row in rows], head, names)
    return figure


@figures.styled
def image_map(items: Sequence[Item], places: Tensor, preparation: Preparation) -> Figure:
    """Draw images at their coordinates (N, 2) along the two principal axes."""
    figure, axes = figures.canvas(8, 6.5)
    for number in spread(len(items), MAPPED):
        picture = _shown(items[number], preparation)
        picture.thumbnail((SIDE, SIDE))
        x, y = places[number].tolist()
        image = OffsetImage(np.asarray(picture.convert("RGB")), zoom=1)
        axes.add_artist(AnnotationBbox(image, (x, y), frameon=False))
    axes.set(xlabel="first axis", ylabel="second axis", xticks=[], yticks=[])
    for limits, values in ((axes.set_xlim, places[:, 0]), (axes.set_ylim, places[:, 1])):
        room = 0.08 * (values.max() - values.min()).clamp(min=1e-9)
        limits(values.min() - room, values.max() + room)
    return figure


def attention_sheet(items: Sequence[Item], trained: TrainedModel) -> Figure | None:
    """Draw some images beside the attention that their vectors are read by; None for a model without attention."""
    look, _ = look_of(trained, reading_map)
    if look is None:
        return None
    rows, names = [], []
    for item in (items[number] for number in spread(len(items), LOOKED_AT)):
        pixels = torch.from_numpy(trained.preparation.pixels(item.image))[None]
        (picture,) = trained.preparation.pictures(trained.preparation.normalize(pixels))
        whole = (0, 0, *picture.size)
        rows.append([picture, pictures.overlay(picture, look(pixels).numpy(), whole)])
        names.append(figures.short_path(item.name))
    figure: Figure = pictures.sheet(rows, ["image", "attention"], names)
    return figure


def _shown(item: Item, preparation: Preparation) -> Image.Image:
    """Return an image as the model sees it, small enough for a sheet."""
    return pictures.thumbnail(preparation.framed(item.image)[0])

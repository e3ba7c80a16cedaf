"""Sections of a study on the model itself: positions, filters, the quality of its features, and its cost."""

from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from vitrail.errors import DataError
from vitrail.study.maps.embedding import filters as principal_filters
from vitrail.study.maps.embedding import position_similarity
from vitrail.study.page import images as pictures
from vitrail.study.page import page
from vitrail.study.page.page import Markup, Number
from vitrail.study.page.tables import cost_table
from vitrail.study.quality import probes
from vitrail.study.sections.context import StudyContext
from vitrail.study.sections.study_images import FEWEST
from vitrail.study.speed import measured

SHOTS = (1, 5, 10)
PROBES = " A model that was trained on these images does better on them than on others."
COST = "Images per second on this machine, in fp32; memory per image is what training stores for the backward pass."


def size(study: StudyContext) -> Iterator[tuple[str, str]]:
    """Yield cards with parameters and multiply-adds."""
    if study.changed:  # the configuration describes another model
        study.numbers["parameters"] = sum(parameter.numel() for parameter in study.model.parameters())
        yield f"{study.numbers['parameters'] / 1e6:.2f} M", "parameters"
        return
    parameters, macs = study.counted.parameters, study.counted.macs
    study.numbers |= {"parameters": parameters, "macs": macs}
    yield f"{parameters / 1e6:.2f} M", f"parameters; {macs / 1e6:,.1f} M multiply-adds per image"


def positions(study: StudyContext) -> Markup:
    scheme = cast(Any, study.model.config).position
    if scheme == "none":
        return page.section("Positions", page.paragraph("The model has no positions."))
    found = position_similarity(study.model).cpu()
    study.maps["position_similarity"] = found
    meaning = {
        "relative": "the relative bias that is added to a score, averaged over all heads",
        "relative-per-block": "the relative bias that is added to a score, averaged over all blocks and heads",
        "rotary": "the score of two equal tokens after rotation",
        "learned-1d+rotary": (
            "the cosine similarity of its learned position to all positions, without the rotation of queries and keys"
        ),
    }.get(scheme, "the cosine similarity of its position to all positions")
    caption = f"Every small map is at the position of its patch, and shows {meaning} ({scheme})."
    return page.section("Positions", study.picture(pictures.similarity(found.numpy()), "positions", "Positions", caption))


def filter_components(study: StudyContext) -> Markup:
    components, shares = principal_filters(study.model)
    caption = (
        f"Principal components of the first filters, by explained variance; these {len(shares)} explain "
        f"{100 * shares.sum():.0f} % of it. Grey is zero."
    )
    figure = pictures.filters(components.cpu().numpy())
    return page.section("Filters", study.picture(figure, "filters", "Filters of the patch embedding", caption))


def probe(study: StudyContext) -> Markup:
    known, tested = study.subjects.known, study.subjects.tested
    sides = ((known, "probes"), (tested, "tests of probes"))
    train, test = (probes.features(study.model, study.batches_of(part, what)) for part, what in sides)
    labels, expected = (np.array([item.target for item in part]) for part in (known, tested))
    per_layer = {
        "nearest neighbours": [
            probes.nearest_neighbours(a, labels, b, expected) for a, b in zip(train[:-1], test[:-1], strict=True)
        ]
    }
    few_shot, left_out = [], ""
    for shots in SHOTS:
        try:
            few_shot.append(probes.few_shot(train[-1], labels, test[-1], expected, shots=shots))
        except DataError:
            fewest = np.unique(labels, return_counts=True)[1].min()
            left_out = f" {shots} and more images per class are left out: of the {len(known):,} images, a class has {fewest}."
            break
    rows = [(f"{f.shots} per class, least squares", *_accuracy(f.mean, f.spread)) for f in few_shot]
    linear = probes.linear_probe(train[-1], labels, test[-1], expected)
    nearest = probes.nearest_neighbours(train[-1], labels, test[-1], expected)
    rows += [("all, logistic regression", *_accuracy(linear)), ("all, nearest neighbours", *_accuracy(nearest))]
    rare, beyond = study.subjects.rare, study.subjects.beyond
    left_out += f" Classes of fewer than {FEWEST} training images are left out: {rare:,}." * bool(rare)
    left_out += f" Classes that none of the {len(known):,} images has are left out: {beyond:,}." * bool(beyond)
    study.numbers["probes"] = {
        "few_shot": {str(f.shots): {"mean": f.mean, "spread": f.spread, "accuracies": f.accuracies} for f in few_shot},
        "linear": linear,
        "nearest_neighbours": nearest,
        "layers": per_layer,
        "images": {"known": len(known), "asked": len(tested)},
        "rare_classes": rare,
        "classes_beyond": beyond,
    }
    words = (
        f"Accuracy of frozen features for {len(np.unique(labels))} classes: fitted to images out of {len(known):,}, tested on "
        f"{len(tested):,} others. ± is the standard deviation over draws of the images.{left_out}" + PROBES
    )
    parts = [page.paragraph(words), page.table(("images that are known", "accuracy, %", "±"), rows)]
    if per_layer["nearest neighbours"]:
        caption = "Vote of the nearest images, by the features after each layer."
        parts.append(study.picture(pictures.layers(per_layer), "probes", "Probes by layer", caption))
    return page.section("Probes", *parts)


def cost(study: StudyContext) -> Markup:
    """Return multiply-adds, memory and speed by image size, and the cost of every layer."""
    found = measured(study.model, study.batch)
    study.numbers["cost"] = [row.to_dict() for row in found]
    rows = [
        (f"{row.image_size[0]}×{row.image_size[1]}", *_cells(row.macs / 1e9, row.training_bytes / 1e6, row.images_per_second))
        for row in found
    ]
    return page.section(
        "Cost",
        page.table(("image", "multiply-adds, G", "memory in training, MB", "images/s"), rows),
        page.note(COST),
        cost_table(study.counted),
    )


def _cells(*numbers: float) -> list[Number]:
    return [Number(f"{number:,.0f}" if number >= 100 else f"{number:.3g}") for number in numbers]


def _accuracy(mean: float, spread: float | None = None) -> tuple[Number, Number]:
    return Number(f"{100 * mean:.1f}"), Number("" if spread is None else f"{100 * spread:.1f}")

"""Sections of a study for models with stages, whose layers attend to windows or to a coarser grid."""

from collections.abc import Sequence
from typing import Any

import torch

from vitrail.study.maps.embedding import offset_biases, stage_position_similarity
from vitrail.study.maps.stages import stage_distances, stage_maps, stage_places
from vitrail.study.page import images as pictures
from vitrail.study.page import page
from vitrail.study.page.page import Markup
from vitrail.study.sections.attention import BRIGHT, distances_by, laid_over
from vitrail.study.sections.context import StudyContext

LOOKED_AT = {
    "windows": (
        "The maps show the attention that each position receives from all positions in its window, in the last block of every "
        "stage, averaged over heads. A window has up to {window}×{window} positions, {sides} pixels wide from stage to stage; "
        "attention is relative to the window, whose borders may be visible."
    ),
    "coarser grid": (
        "The maps show the attention that each key receives from all positions, in the last block of every stage, averaged over "
        "heads. From stage to stage keys are on grids of {keys}, most of them coarser than the grid of the queries."
    ),
}
BY_CLASS_TOKEN = " In the last stage it is the attention of the class token only, which the head reads."
REACH = {
    "windows": (
        " Attention stays within windows, so that distances can only grow between stages, at the dotted lines. Windows of every "
        "second block are shifted and cut at the border of the image, so that their distances are smaller."
    ),
    "coarser grid": (
        " Distances are from a patch to the centre of a key's patches. Low dots are local attention, as in convolutions; "
        "high dots attention across the image. A stage begins at each dotted line."
    ),
}
OFFSETS = (
    "Bias that a window adds to a score, in the first block of every stage (down) for each head (across): the centre of a small "
    "map is the query, and right of it are keys to its right. All maps have one scale."
)
FEWER = " Of {heads} heads {drawn} are drawn; all of them are in maps.npz, by stage as relative-bias-0 and so on."
FIRST_STAGE = (
    "Every small map is at the position of its patch, and shows the cosine similarity of its position to all positions of "
    "the first stage ({scheme}); later stages have their own positions."
)
NO_POSITIONS = "The model has no positions; only the zero padding of its convolutions marks the border of the image."


def where_it_looks(study: StudyContext) -> Markup:
    """Return maps of the last block's attention in every stage, over some images."""
    model: Any = study.model
    parts = [[found.cpu() for found in stage_maps(model, images)] for images in study.batches(study.pixels, "maps of stages")]
    found = {f"stage-{number}": torch.cat(stage) for number, stage in enumerate(zip(*parts, strict=True))}
    study.maps |= found
    if model.sight == "windows":
        window = model.config.window_size
        words = {"window": window, "sides": ", ".join(f"{window * stride}" for stride in model.strides)}
    else:
        words = {"keys": ", ".join(f"{maps.shape[1]}×{maps.shape[2]}" for maps in found.values())}
    shown = LOOKED_AT[model.sight].format(**words) + BY_CLASS_TOKEN * model.reads_class_token
    one = torch.zeros(1, *study.pixels.shape[1:], device=study.device)
    places = dict(zip(found, stage_places(model, one), strict=True))
    return laid_over(study, places, shown, BRIGHT)


def distances(study: StudyContext) -> Markup:
    model: Any = study.model
    firsts = [sum(model.config.depths[:number]) for number in range(1, len(model.config.depths))]
    return distances_by(study, stage_distances, REACH[model.sight], firsts)


def positions(study: StudyContext) -> Markup:
    """Return the section on positions: biases by offset, the similarity of the first stage's positions, or a note."""
    model: Any = study.model
    scheme = model.config.position
    if scheme == "none":
        return page.section("Positions", page.paragraph(NO_POSITIONS))
    if scheme.startswith("relative"):
        biases = [offset_biases(model, stage).cpu() for stage in range(len(model.config.depths))]
        study.maps |= {f"relative-bias-{number}": bias for number, bias in enumerate(biases)}
        figure, caption = pictures.offsets([bias.numpy() for bias in biases]), OFFSETS + _fewer([len(bias) for bias in biases])
    else:
        figure = pictures.similarity(stage_position_similarity(model).cpu().numpy())
        caption = FIRST_STAGE.format(scheme=scheme)
    return page.section("Positions", study.picture(figure, "positions", "Positions", caption))


def _fewer(heads: Sequence[int]) -> str:
    """Return a note if some stages have more heads than are drawn; otherwise an empty text."""
    most = pictures.MOST_CELLS
    many = [str(count) for count in sorted(set(heads)) if count > most]
    return FEWER.format(heads=" or ".join(many), drawn=most) if many else ""

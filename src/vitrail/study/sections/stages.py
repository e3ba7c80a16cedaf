"""The sections of a study on a model of stages, whose layers do not see the whole image patch by patch."""

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
        "Shown is how much each place is looked at by all in its window, in the last block of every stage, as the mean of its "
        "heads. A window is up to {window}×{window} places, {sides} pixels wide from stage to stage, and sees nothing else: "
        "what glows stands out in its window, whose borders may show."
    ),
    "coarser grid": (
        "Shown is how much each key is looked at by all places, in the last block of every stage, as the mean of its heads. From "
        "stage to stage keys stand on grids of {keys}, most of them coarser than what looks at them."
    ),
}
BY_CLASS_TOKEN = " In the last stage it is the class token alone that looks, which the answer is read from."
REACH = {
    "windows": (
        " Attention stays within windows, so that dots can rise from stage to stage alone, at the dotted lines; windows of every "
        "second block are shifted and end where the image does, so that these look less far."
    ),
    "coarser grid": (
        " It is from a patch to the middle of what a key is made of: low dots look nearby, as convolutions do, high ones across "
        "the image. A new stage begins at each dotted line."
    ),
}
OFFSETS = (
    "What the bias of a window adds to a score, in the first block of every stage (down) and its heads (across): the middle of a "
    "small map is the query itself, to the right of it are keys to its right. One scale for all maps."
)
FEWER = " Of {heads} heads {drawn} are drawn; all of them are in maps.npz, by stage as relative-bias-0 and so on."
FIRST_STAGE = (
    "Every small map stands where its patch does in the image, and shows the cosine similarity of its position to all positions "
    "of the first stage ({scheme}); every later stage has positions of its own."
)
NO_POSITIONS = "The model knows no positions but for the zeros around its convolutions, by which they see where the image ends."


def where_it_looks(study: StudyContext) -> Markup:
    """Return the last block's attention of every stage, laid over some images."""
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
    """Return the bias by offset, the similarity of the first stage's positions, or that there are none."""
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
    """Return a note on stages with too many heads to draw; empty otherwise."""
    most = pictures.MOST_CELLS
    many = [str(count) for count in sorted(set(heads)) if count > most]
    return FEWER.format(heads=" or ".join(many), drawn=most) if many else ""

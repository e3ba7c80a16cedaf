"""Sections of a study on attention: where a model looks, whether it matters, and how far it looks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitrail.data.loading.sampler import spread
from vitrail.models.base import ImageModel
from vitrail.models.inference import for_inference, quickest_precision
from vitrail.study.maps import occlusion
from vitrail.study.maps.attention import Patch, attention_map, head_maps, reading_map, relevance_map, rollout_map
from vitrail.study.maps.distance import mean_attention_distances, receptive_fields, uniform_distance
from vitrail.study.maps.patch_coordinates import Places, patch_places
from vitrail.study.page import figures, page
from vitrail.study.page import images as pictures
from vitrail.study.page.page import Markup
from vitrail.study.sections.context import Predicted, StudyContext

SHOWN = 6
Maps = dict[str, Callable[[ImageModel, Tensor], Tensor]]
ORDERS = {
    "least relevant first": ("relevance", -1),
    "at random": ("random", 1),
    "most attended first": ("attention", 1),
    "most by rollout first": ("rollout", 1),
    "most relevant first": ("relevance", 1),
}
"""Map and sign of the scores by which patches are removed, for each order."""

MISTAKES = " Mistakes are orange; there may be more of them here than among all images."
ROLLOUT = " Rollout follows the mean attention of all heads through all layers (Abnar and Zuidema 2020)."
RELEVANCE = " Relevance also weighs attention by its effect on the prediction (Chefer et al. 2021)."
BRIGHT = (
    " The image glows where the map is high, equally for the highest twentieth; the model does not see pale parts. Patches that "
    "glow in every map, often in corners, hold values that are not about their place in the image (Darcet et al. 2023)."
)
HEADS = (
    "The first of the images above, with maps of all heads in all layers: attention from the tokens that the head reads, each "
    f"map from 0 (black) to its maximum. At most {pictures.MOST_CELLS} layers and heads are drawn; all of them are in "
    "maps.npz."
)
OCCLUSION = (
    "Patches are painted in the mean colour of these images, from none to all of them. If a map is right, fewer predictions stay "
    "than at random when its highest patches are removed first, and more when its lowest are; the upper curve read from the "
    "right is insertion."
)
DISTANCES = "A dot is a head: its mean distance from a patch to the patches it attends to, weighted by attention."
ACROSS = " Low dots are local attention, as in convolutions; high dots in the first layers are attention across the image."
CONVOLUTIONAL = (
    " The blue line is a convolutional network, its blocks spread over the same depth, with uniform weights in its receptive "
    "field."
)
BOTH_TOKENS = "the class token and the distillation token"
READ_FROM = {
    "class": "the class token",
    "mean": "all patches together",
    "class+mean": "the class token and all patches together",
    "attention": "all patches together",
    "attention-patches": "all patches together",
}


@dataclass(frozen=True)
class Look:
    """The attention to draw: `attention_map` with these choices, or `reading_map` without any."""

    layer: int | None = None
    head: int | None = None
    query: Patch | None = None

    def map(self, model: Any, images: Tensor) -> Tensor:
        if self == LAST:
            return reading_map(model, images)
        return attention_map(model, images, layer=-1 if self.layer is None else self.layer, head=self.head, query=self.query)

    def describe(self, model: Any) -> str:
        layer = "the last layer" if self.layer is None else f"layer {self.layer}"
        heads = "" if self.head is None else f", head {self.head}"
        if self == LAST and model.config.pools_by_attention:
            return "The maps show the attention of the pooling, which the head reads."
        if self.query is not None:
            return f"The maps show attention of {layer}{heads}, from the patch in row {self.query[0]}, column {self.query[1]}."
        tokens = BOTH_TOKENS if model.config.distillation_token else READ_FROM[model.config.pool]
        return f"The maps show attention of {layer}{heads}, from {tokens}, which the head reads."


LAST = Look()


def where_it_looks(study: StudyContext, look: Look) -> Markup:
    """Return maps of attention, rollout and relevance, over some images."""
    made: Maps = {"attention": look.map, "rollout": rollout_map}
    if study.predictions is not None:
        made["relevance"] = relevance_map
    for name, method in made.items():
        batches = study.batches(study.pixels, name)
        study.maps[name] = torch.cat([method(study.model, images).cpu() for images in batches])
    places = dict.fromkeys(made, patch_places(study.model))
    return laid_over(study, places, look.describe(study.model), ROLLOUT + RELEVANCE * ("relevance" in made) + BRIGHT)


def laid_over(study: StudyContext, places: Mapping[str, Places], shown: str, more: str) -> Markup:
    """Return the study's maps drawn over some images, at the ``places`` of each map; ``shown`` and ``more`` form the caption."""
    rows, captions = [], []
    (study.folder / "overlays").mkdir()
    drawn = _drawn(study)
    for number in drawn:
        item = study.subjects.items[number]
        whole = study.preparation.decode(item.image, share=None)
        view = study.preparation.box(*whole.size)
        laid = {
            name: pictures.overlay(whole, study.maps[name][number].numpy(), *of_map.within(view))
            for name, of_map in places.items()
        }
        for name, image in laid.items():
            image.save(study.folder / "overlays" / f"{number:04}-{name}.png", compress_level=1)  # fast, since images may be large
        rows.append([pictures.thumbnail(image) for image in (whole, *laid.values())])
        captions.append(_caption(study, number))
    wrong = [place for place, number in enumerate(drawn) if _mistaken(study, number)]
    sheet = pictures.sheet(rows, ["image", *(name.replace("-", " ") for name in places)], captions, wrong)
    return page.section("Where it looks", study.picture(sheet, "maps", "Maps", shown + MISTAKES * bool(wrong) + more))


def _drawn(study: StudyContext) -> list[int]:
    """Return the images to draw: some evenly spaced ones, of which up to half are mistakes of the model."""
    wrong = [number for number in range(len(study.pixels)) if _mistaken(study, number)]
    kept = [wrong[place] for place in spread(len(wrong), SHOWN // 2)]
    others = [number for number in spread(len(study.pixels), SHOWN) if number not in kept]
    return sorted([*kept, *others[: SHOWN - len(kept)]])


def _mistaken(study: StudyContext, number: int) -> bool:
    predictions = study.predictions
    if predictions is None or predictions.multi_label or not study.subjects.labelled:
        return False
    return bool(predictions.probabilities[number].argmax() != study.subjects.items[number].target)


def _caption(study: StudyContext, number: int) -> str:
    """Return the file, the predicted class, and the true one if it is known."""
    predictions, item = study.predictions, study.subjects.items[number]
    lines = [figures.short_path(item.name)]
    if predictions is not None:
        lines.append(f"guess: {predictions.caption(number, int(predictions.probabilities[number].argmax()))}")
        if study.subjects.labelled:
            true = ", ".join(figures.readable(predictions.classes[label]) for label in item.labels)
            lines.append(f"true: {figures.short(true or 'none', 26)}")
    return "\n".join(lines)


def heads(study: StudyContext) -> Markup:
    image = study.preparation.normalize(study.pixels[:1].to(study.device))
    found = head_maps(study.model, image)[0].cpu()
    study.maps["heads"] = found
    return page.section("Heads", study.picture(pictures.heads(found.numpy()), "heads", "Maps of all heads", HEADS))


def occlusion_curves(study: StudyContext, predictions: Predicted) -> Markup:
    """Return the section with the remaining predictions while patches are removed in the order of the maps."""
    guesses = torch.from_numpy(predictions.probabilities.argmax(axis=1))
    by_label = study.subjects.labelled and not predictions.multi_label
    followed = torch.tensor([item.target for item in study.subjects.items]) if by_label else guesses
    chance = torch.rand(study.maps["relevance"].shape, generator=torch.Generator().manual_seed(0))
    scores, (first, *between, last) = {**study.maps, "random": chance}, occlusion.SHARES
    network = for_inference(study.model, quickest_precision(study.device))
    mean = study.pixels.mean(dim=(0, 2, 3), dtype=torch.float32)[None, :, None, None]  # the same for all batches
    options: dict[str, Any] = {
        "places": patch_places(study.model),
        "colour": study.preparation.normalize(mean.to(study.device)).flatten(),
        "multi_label": predictions.multi_label,
        "on_pass": study.advance,
    }

    def left(what: str, map_: Tensor, shares: Sequence[float]) -> tuple[Tensor, Tensor]:
        """Return whether the class is still predicted, and its probability: (steps, images) each."""
        parts = []
        study.begin(f"occlusion, {what}", len(shares) * len(study.pixels))
        for part, by, labels in zip(*(t.split(32) for t in (study.pixels, map_, followed)), strict=True):
            images = study.preparation.normalize(part.to(study.device))
            by, labels = by.to(study.device), labels.to(study.device)
            found = occlusion.deletion(network, images, by, labels, shares=shares, **options)
            parts.append(torch.stack([answer.cpu().double() for answer in found]))
        correct, probability = torch.cat(parts, dim=2)
        return correct, probability

    ends = left("nothing and all", chance, (first, last))
    curves, areas, probabilities = {}, {}, {}
    for order, (name, sign) in ORDERS.items():
        steps = left(order, sign * scores[name], between)
        correct, probability = (torch.cat([end[:1], step, end[1:]]) for end, step in zip(ends, steps, strict=True))
        curves[order] = correct.mean(dim=1).tolist()
        areas[order] = [occlusion.area(one) for one in correct.T.tolist()]
        probabilities[order] = occlusion.area(probability.mean(dim=1).tolist())
    study.numbers["occlusion"] = {
        "follows": "labels" if by_label else "guesses",
        "shares": list(occlusion.SHARES),
        "right": curves,
        "area": {order: float(np.mean(found)) for order, found in areas.items()},
        "probability_area": probabilities,
        "faster": occlusion.faster(areas["most relevant first"], areas["at random"]),
    }
    figure = pictures.occlusion(occlusion.SHARES, curves, "correct predictions, %" if by_label else "unchanged predictions, %")
    words = occlusion.verdict(areas["most relevant first"], areas["at random"])
    return page.section(
        "Does it matter where it looks", page.paragraph(words), study.picture(figure, "occlusion", "Occlusion", OCCLUSION)
    )


def distances(study: StudyContext) -> Markup:
    return distances_by(study, mean_attention_distances, ACROSS)


def distances_by(
    study: StudyContext, of_images: Callable[[nn.Module, Tensor], Iterable[Tensor]], said: str, stages: Sequence[int] = ()
) -> Markup:
    """Return the section on the mean attention distance of every head.

    ``of_images`` maps images to the distances of every layer, (k,) each; ``said`` is added to the caption; ``stages`` are the
    first layers of all stages but the first.
    """
    size, sums = study.model.config.image_size, list[Tensor]()
    for images in study.batches(study.pixels, "distances"):
        parts = [layer.cpu().double() * len(images) for layer in of_images(study.model, images)]
        sums = [before + part for before, part in zip(sums, parts, strict=True)] if sums else parts
    found = [(layer / len(study.pixels)).numpy() for layer in sums]
    study.numbers["attention_distance"] = [layer.tolist() for layer in found]
    convolutional = [uniform_distance(size, field) for field in receptive_fields()]
    figure = pictures.distances(found, uniform_distance(size), convolutional, stages)
    caption = DISTANCES + said + CONVOLUTIONAL
    return page.section("How far it looks", study.picture(figure, "distances", "Mean attention distance", caption))

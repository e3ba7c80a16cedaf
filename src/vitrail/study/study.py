"""A study of a model on some images: where it looks, what it has learned, what it gets wrong; data, pictures and a page."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from vitrail.data.items import Item
from vitrail.data.order import spread
from vitrail.errors import DataError
from vitrail.files import write_json, write_text
from vitrail.models.base import Model
from vitrail.models.cost import cost
from vitrail.models.inference import for_inference
from vitrail.runtime.device import quickest_precision
from vitrail.runtime.observer import Observer
from vitrail.study import figures, occlusion, page, pictures, probes
from vitrail.study.attention import Patch, attention_map, head_maps, reading_map, relevance_map, rollout_map
from vitrail.study.captures import attends, require_capturable
from vitrail.study.distance import mean_attention_distances, receptive_fields, uniform_distance
from vitrail.study.embedding import filters, position_similarity
from vitrail.study.page import Markup, Number
from vitrail.study.predictions import Predictions
from vitrail.study.reports.multi_label import THESE, MultiLabel
from vitrail.study.reports.single_label import SingleLabel
from vitrail.study.speed import measured
from vitrail.study.subjects import Subjects
from vitrail.study.tables import cost_table
from vitrail.weights.folder import TrainedModel

SHOWN = 6
"""Images whose maps are drawn."""
SHOTS = (1, 5, 10)
WORK = 2**29
"""Bytes that a pass with gradients may take for what it keeps of its layers."""
KEPT = 96
"""Bytes per token, channel and layer that a pass with gradients keeps: about 24 numbers in single precision."""
PER_PAIR = 16
"""Bytes per head and pair of tokens that the weights of a layer and their gradients take, a copy of each included."""
Maps = dict[str, Callable[[Model, Tensor], Tensor]]
ORDERS = {
    "least relevant first": ("relevance", -1),
    "at random": ("random", 1),
    "most attended first": ("attention", 1),
    "most by rollout first": ("rollout", 1),
    "most relevant first": ("relevance", 1),
}
"""In which patches are taken away: by which map, from its highest or its lowest."""

ROLLOUT = " Rollout follows the mean attention of all heads through all layers (Abnar and Zuidema 2020)."
RELEVANCE = " Relevance weighs it by what changes the guess (Chefer et al. 2021)."
BRIGHT = (
    " The brightest twentieth of each map is drawn alike; pale is what the model does not see. A patch or two that are bright in "
    "every map, often in the corners, are where a model keeps what has no place in the image (Darcet et al. 2023)."
)
HEADS = (
    "The first of the images above, as every head of every layer looks at it: attention from what the answer is read from, each "
    "map from nothing (black) to its own highest. All of them are in maps.npz."
)
OCCLUSION = (
    "Patches become the mean colour, from none to all of them. With a map that points at what matters answers fall faster than "
    "by chance when its best patches go, and hold out longer when its worst do; the upper curve read from the right is insertion."
)
DISTANCES = (
    "A dot is a head: how far it looks from a patch on average, weighted by attention. Low dots look nearby, as convolutions do; "
    "high ones in the first layers look across the image at once. The blue line is a convolutional network, its blocks spread "
    "over the same depth, if it looked alike at everything in its receptive field."
)
PROBES = " A model that was trained on the images that are known knows them better than others."
COST = "Images per second of this machine, in single precision; memory is what training keeps of an image for its gradient."


READ_FROM = {
    "class": "the class token",
    "mean": "all patches together",
    "class+mean": "the class token and all patches together",
    "attention": "all patches together",
    "attention-patches": "all patches together",
}


@dataclass(frozen=True)
class Look:
    """Which attention is drawn: `attention_map` with these choices, or `reading_map` if none is given."""

    layer: int | None = None
    head: int | None = None
    query: Patch | None = None

    def map(self, model: Any, images: Tensor) -> Tensor:
        """(B, rows, columns)."""
        if self == LAST:
            return reading_map(model, images)
        return attention_map(model, images, layer=-1 if self.layer is None else self.layer, head=self.head, query=self.query)

    def describe(self, model: Any) -> str:
        """What the map is, as a sentence."""
        layer = "the last layer" if self.layer is None else f"layer {self.layer}"
        heads = "" if self.head is None else f", head {self.head}"
        if self == LAST and model.config.pools_by_attention:
            return "Shown is the attention of the pooling, which the answer is read from."
        if self.query is not None:
            return f"Shown is the attention of {layer}{heads}, from the patch in row {self.query[0]}, column {self.query[1]}."
        return f"Shown is the attention of {layer}{heads}, from {READ_FROM[model.config.pool]}, which the answer is read from."


LAST = Look()


def write_study(
    folder: Path,
    trained: TrainedModel,
    subjects: Subjects,
    predictions: Predictions | None,
    observer: Observer,
    *,
    title: str,
    attention: Look = LAST,
) -> dict[str, Any]:
    """Write pictures, ``maps.npz``, ``study.json`` and ``report.html`` to a folder, and give what is in ``study.json``.

    Args:
        folder: exists.
        trained: the model.
        subjects: the images.
        predictions: what the model says of them; None of a model that gives vectors.
        observer: gets every pass and its images.
        title: of the page.
        attention: the layer, head and query of the first map.

    Raises:
        ConfigError: a model that `capture` refuses.
        DataError: an image that cannot be read.
    """
    study = _Study(folder, trained, subjects, predictions, observer, attention)
    write_text(folder / "report.html", page.page(title, list(study.sections())))
    maps: dict[str, Any] = {name: found.numpy() for name, found in study.maps.items()}
    with (folder / "maps.npz").open("wb") as file:
        np.savez_compressed(file, images=np.array([item.name for item in subjects.items]), **maps)
    write_json(folder / "study.json", study.numbers)
    return study.numbers


class _Study:
    """The sections of a page; each writes its pictures, and leaves its numbers and maps."""

    def __init__(
        self,
        folder: Path,
        trained: TrainedModel,
        subjects: Subjects,
        predictions: Predictions | None,
        observer: Observer,
        attention: Look,
    ):
        self.folder, self.subjects, self.predictions, self.attention = folder, subjects, predictions, attention
        self.begin, self.advance = observer.begin, observer.advance
        self.model, self.preparation = trained.model.eval(), trained.preparation
        self.device = next(self.model.parameters()).device
        require_capturable(self.model)  # before any image is read
        self.counted, self.attends = cost(self.model.config), attends(self.model)
        self.batch = _batch(self.model.config) if self.attends else 32
        self.pixels = self._read(subjects.items, "reading images")
        self.maps: dict[str, Tensor] = {}
        self.numbers: dict[str, Any] = {"images": len(subjects.items)}

    def sections(self) -> Iterator[Markup]:
        """Everything, in the order of the page."""
        predictions, part = self.predictions, None
        if predictions is not None and self.subjects.labelled:
            part = MultiLabel(predictions, None, THESE) if predictions.multi_label else SingleLabel(predictions)
            self.numbers["scores"] = predictions.scores
        yield page.cards([*(part.cards() if part else ()), *self._size()])
        if self.attends:
            yield self._where_it_looks()
            yield self._heads()
            if predictions is not None:
                yield self._occlusion(predictions)
            yield self._distances()
            yield self._positions()
        yield self._filters()
        if self.subjects.known:
            yield self._probes()
        elif self.subjects.unprobed:
            yield page.section("Probes", page.paragraph(f"None: {self.subjects.unprobed}."))
        if part:
            yield from part.sections(self.folder)
        yield self._cost()

    def _read(self, items: list[Item], what: str) -> Tensor:
        """Prepared pixels, uint8 (N, C, H, W)."""
        self.begin(what, len(items))
        found = []
        for item in items:
            found.append(torch.from_numpy(self.preparation.pixels(item.image)))
            self.advance(1)
        return torch.stack(found)

    def _batches(self, pixels: Tensor, what: str) -> Iterator[Tensor]:
        """Normalised images, where the model is."""
        self.begin(what, len(pixels))
        for part in pixels.split(self.batch):
            yield self.preparation.normalize(part.to(self.device))
            self.advance(len(part))

    def _picture(self, figure: Any, name: str, title: str, caption: str) -> Markup:
        file = self.folder / f"{name}.png"
        figures.save(figure, file)
        return page.picture(file, title, caption)

    def _size(self) -> Iterator[tuple[str, str]]:
        parameters, macs = self.counted.parameters, self.counted.macs
        self.numbers |= {"parameters": parameters, "macs": macs}
        yield f"{parameters / 1e6:.2f} M", f"parameters; {macs / 1e6:,.1f} M multiply-adds per image"

    def _where_it_looks(self) -> Markup:
        made: Maps = {"attention": self.attention.map, "rollout": rollout_map}
        if self.predictions is not None:
            made["relevance"] = relevance_map
        for name, method in made.items():
            batches = self._batches(self.pixels, name)
            self.maps[name] = torch.cat([method(self.model, images).cpu() for images in batches])
        rows, captions = [], []
        (self.folder / "overlays").mkdir()
        for number in spread(len(self.pixels), SHOWN):
            item = self.subjects.items[number]
            whole = self.preparation.decode(item.image, share=None)
            box = self.preparation.box(*whole.size)
            laid = {name: pictures.overlay(whole, self.maps[name][number].numpy(), box) for name in made}
            for name, image in laid.items():
                image.save(self.folder / "overlays" / f"{number:04}-{name}.png", compress_level=1)  # they may be large
            rows.append([pictures.thumbnail(image) for image in (whole, *laid.values())])
            captions.append(self._caption(number))
        caption = self.attention.describe(self.model) + ROLLOUT + (RELEVANCE if "relevance" in made else "") + BRIGHT
        head = ["image", *made]
        return page.section("Where it looks", self._picture(pictures.sheet(rows, head, captions), "maps", "Maps", caption))

    def _caption(self, number: int) -> str:
        predictions, item = self.predictions, self.subjects.items[number]
        if predictions is None:
            return figures.short(Path(item.name).name, 30)
        guess = predictions.caption(number, int(predictions.probabilities[number].argmax()))
        if not self.subjects.labelled or predictions.multi_label or item.target == predictions.probabilities[number].argmax():
            return guess
        return f"{guess}\nis {figures.short(predictions.classes[item.labels[0]])}"

    def _heads(self) -> Markup:
        image = self.preparation.normalize(self.pixels[:1].to(self.device))
        found = head_maps(self.model, image)[0].cpu()
        self.maps["heads"] = found
        return page.section("Heads", self._picture(pictures.heads(found.numpy()), "heads", "Maps of all heads", HEADS))

    def _occlusion(self, predictions: Predictions) -> Markup:
        guesses = torch.from_numpy(predictions.probabilities.argmax(axis=1))
        by_label = self.subjects.labelled and not predictions.multi_label
        followed = torch.tensor([item.target for item in self.subjects.items]) if by_label else guesses
        chance = torch.rand(self.maps["relevance"].shape, generator=torch.Generator().manual_seed(0))
        scores, (first, *between, last) = {**self.maps, "random": chance}, occlusion.SHARES
        network = for_inference(self.model, quickest_precision(self.device))

        def left(what: str, map_: Tensor, shares: Sequence[float]) -> tuple[Tensor, Tensor]:
            """Whether the class is still the best guess, and its probability: (steps, images) each."""
            parts = []
            self.begin(f"occlusion, {what}", len(shares) * len(self.pixels))
            for part, by, labels in zip(*(t.split(32) for t in (self.pixels, map_, followed)), strict=True):
                images = self.preparation.normalize(part.to(self.device))
                by, labels = by.to(self.device), labels.to(self.device)
                found = occlusion.deletion(
                    network, images, by, labels, shares=shares, multi_label=predictions.multi_label, on_pass=self.advance
                )
                parts.append(torch.stack([answer.double().cpu() for answer in found]))
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
        self.numbers["occlusion"] = {
            "follows": "labels" if by_label else "guesses",
            "shares": list(occlusion.SHARES),
            "right": curves,
            "area": {order: float(np.mean(found)) for order, found in areas.items()},
            "probability_area": probabilities,
        }
        figure = pictures.occlusion(occlusion.SHARES, curves, "correct answers, %" if by_label else "guesses that stay, %")
        words = occlusion.verdict(areas["most relevant first"], areas["at random"])
        return page.section(
            "Does it matter where it looks", page.paragraph(words), self._picture(figure, "occlusion", "Occlusion", OCCLUSION)
        )

    def _distances(self) -> Markup:
        size = self.model.config.image_size
        parts = [mean_attention_distances(self.model, i) * len(i) for i in self._batches(self.pixels, "distances")]
        found = (torch.stack(parts).sum(dim=0) / len(self.pixels)).cpu()
        self.numbers["attention_distance"] = found.tolist()
        alike, fields = uniform_distance(size), receptive_fields()
        figure = pictures.distances(found.numpy(), alike, [uniform_distance(size, field) for field in fields])
        return page.section("How far it looks", self._picture(figure, "distances", "Mean attention distance", DISTANCES))

    def _positions(self) -> Markup:
        scheme = cast(Any, self.model.config).position
        if scheme == "none":
            return page.section("Positions", page.paragraph("The model knows no positions."))
        found = position_similarity(self.model).cpu()
        self.maps["position_similarity"] = found
        meaning = {
            "relative": "what the relative bias adds to a score, the mean over all heads",
            "relative-per-block": "what the relative bias adds to a score, the mean over all blocks and heads",
            "rotary": "the score of two equal tokens after both have been turned",
        }.get(scheme, "the cosine similarity of its position to all positions")
        caption = f"Every small map stands where its patch does in the image, and shows {meaning} ({scheme})."
        return page.section("Positions", self._picture(pictures.similarity(found.numpy()), "positions", "Positions", caption))

    def _filters(self) -> Markup:
        components, shares = filters(self.model)
        caption = (
            f"Principal components of the first filters, those that explain most first; these {len(shares)} hold "
            f"{100 * shares.sum():.0f} % of their variance. Grey is nothing."
        )
        figure = pictures.filters(components.cpu().numpy())
        return page.section("Filters", self._picture(figure, "filters", "Filters of the patch embedding", caption))

    def _probes(self) -> Markup:
        known, tested = self.subjects.known, self.subjects.tested
        sides = [(self._read(part, f"reading {what}"), what) for part, what in ((known, "probes"), (tested, "tests of probes"))]
        train, test = (probes.features(self.model, self._batches(pixels, what)) for pixels, what in sides)
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
            except DataError as error:
                left_out = f" {shots} and more per class are left out: {error.what}."
                break
        rows = [(f"{f.shots} per class, least squares", *_accuracy(f.mean, f.spread)) for f in few_shot]
        linear = probes.linear_probe(train[-1], labels, test[-1], expected)
        nearest = probes.nearest_neighbours(train[-1], labels, test[-1], expected)
        rows += [("all, logistic regression", *_accuracy(linear)), ("all, nearest neighbours", *_accuracy(nearest))]
        self.numbers["probes"] = {
            "few_shot": {str(f.shots): {"mean": f.mean, "spread": f.spread, "accuracies": f.accuracies} for f in few_shot},
            "linear": linear,
            "nearest_neighbours": nearest,
            "layers": per_layer,
            "images": {"known": len(known), "asked": len(tested)},
        }
        words = (
            f"What the frozen features know of {len(np.unique(labels))} classes: fitted to images out of {len(known):,}, tried "
            f"on {len(tested):,} others. ± is the standard deviation over draws of the images.{left_out}" + PROBES
        )
        parts = [page.paragraph(words), page.table(("images that are known", "accuracy, %", "±"), rows)]
        if per_layer["nearest neighbours"]:
            caption = "The vote of the nearest images, by what the answer could be read from after each layer."
            parts.append(self._picture(pictures.layers(per_layer), "probes", "Probes by layer", caption))
        return page.section("Probes", *parts)

    def _cost(self) -> Markup:
        found = measured(self.model, self.batch)
        self.numbers["cost"] = [row.to_dict() for row in found]
        rows = [
            (f"{row.image_size[0]}×{row.image_size[1]}", *_cells(row.macs / 1e9, row.training_bytes / 1e6, row.images_per_second))
            for row in found
        ]
        return page.section(
            "Cost",
            page.table(("image", "multiply-adds, G", "memory in training, MB", "images/s"), rows),
            page.note(COST),
            cost_table(self.counted),
        )


def _batch(config: Any) -> int:
    """Images at a time, so that a pass with gradients finds room."""
    tokens = config.prefix + config.grid[0] * config.grid[1]
    kept = KEPT * tokens * config.dim * config.depth + PER_PAIR * config.heads * tokens**2
    return max(1, min(32, WORK // kept))


def _cells(*numbers: float) -> list[Number]:
    return [Number(f"{number:,.3g}") for number in numbers]


def _accuracy(mean: float, spread: float | None = None) -> tuple[Number, Number]:
    return Number(f"{100 * mean:.1f}"), Number("" if spread is None else f"{100 * spread:.1f}")

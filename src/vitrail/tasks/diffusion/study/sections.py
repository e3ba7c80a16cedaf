"""A study of a model that makes images: gates and attention by layer and time, and what it makes of noisy images."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor, nn

from vitrail.checks import refuse_given
from vitrail.data.loading.sampler import spread
from vitrail.errors import ConfigError
from vitrail.parts.block import Modulation
from vitrail.study.maps.attention import place_among
from vitrail.study.maps.captures import WEIGHTS, capture
from vitrail.study.maps.distance import attention_distances, patch_distances
from vitrail.study.maps.patch_coordinates import Places
from vitrail.study.page import figures, page
from vitrail.study.page import images as pictures
from vitrail.study.page.page import Markup, Number
from vitrail.study.sections import model as model_sections
from vitrail.study.sections.context import StudyContext
from vitrail.study.sections.request import StudyRequest
from vitrail.study.sections.study_images import Subjects, labelled_subjects, plain_items
from vitrail.tasks.diffusion.process import Process
from vitrail.tasks.diffusion.weights import TrainedDiffusion, require_diffusion
from vitrail.training.runs.data_of_model import open_any

TIMES, DRAWN_TIMES, DRAWN = 10, 5, 3
"""Times that images are studied at, and how many times and images are drawn."""
GATES = (
    "Mean size of the gate of each branch, over channels and images: 0 is a branch that adds nothing. Gates follow from the time "
    "and the class, whatever is in the image."
)
DISTANCES = "Mean distance from a patch to where it looks, weighted by attention, over heads and images, in pixels."
MAPS = (
    "Shown is the attention of {layer}, {query}, while the model sees the image at the time above its column. The picture glows "
    "where the map is high, the highest twentieth alike. All maps are in maps.npz."
)
ESTIMATES = (
    "Above, what the model is given; below, its estimate of the image in one step. Noise grows to the left, as samplers begin."
)
ERRORS = "Mean squared error of that estimate, where the image is normalized; s is the share of noise in what the model is given."


def subjects_for(trained: TrainedDiffusion, request: StudyRequest) -> tuple[str, Subjects]:
    """Return the source of the images of a study, and the images; raises `VitrailError`."""
    refuse_given("the model finds no joints", {"--joint": bool(request.joints)})
    require_diffusion(trained, request.model)
    if plain := plain_items(request, "labels"):
        return str(request.data), Subjects(plain)
    source, own_splits = open_any(request.model, request.data, note=request.observer.note)
    split = request.split or (source.evaluation_split if own_splits else "all")
    if trained.labels:
        return source.source, labelled_subjects(trained, source, split, request.images, request.observer.note)
    items = source.split(split)
    return source.source, Subjects([items[place] for place in spread(len(items), request.images)], split)


def write_study(
    folder: Path, trained: TrainedDiffusion, subjects: Subjects, request: StudyRequest, *, title: str
) -> dict[str, Any]:
    """Write pictures, ``maps.npz``, ``study.json`` and ``report.html`` to a folder; return the content of ``study.json``."""
    study = DiffusionStudy(folder, trained, subjects, request)
    return study.written(title, _sections(study))


class DiffusionStudy(StudyContext):
    """A model of noisy images and the images of a study, each seen at several times with its own noise."""

    def __init__(self, folder: Path, trained: TrainedDiffusion, subjects: Subjects, request: StudyRequest):
        super().__init__(folder, trained, subjects, None, request.observer)
        self.trained, self.config = trained, trained.config
        self.process, self.head, self.query = Process.of(self.config), request.head, request.query
        self.times = self.process.spaced(TIMES)
        if self.head is not None:
            self.head = place_among("head", self.head, self.config.heads)
        for what, number, count in zip(("row", "column"), self.query or (), self.config.grid, strict=False):
            place_among(f"{what} of the query", number, count)
        self.labels = self._labels()
        self.drawn = spread(len(self.pixels), DRAWN)
        layers = len(self._pass(0, self.times[0]).maps)  # a model may have some that only training passes
        self.layer = place_among("layer", -1 if request.layer is None else request.layer, layers)
        passes = [[self._pass(number, time) for time in self.times] for number in self._numbers()]
        self.gates = {name: np.mean([[p.gates[name] for p in of] for of in passes], axis=0).T for name in passes[0][0].gates}
        """Mean |gate| of each branch: (layers, times)."""
        self.distances = np.mean([[p.distances for p in of] for of in passes], axis=0).T
        """Mean attention distance: (layers, times)."""
        self.errors = np.mean([[p.error for p in of] for of in passes], axis=0)
        """Mean squared error of the estimate of x_0: (times,)."""
        self.seen = {number: of for number, of in enumerate(passes) if number in self.drawn}
        self.maps["attention"] = torch.stack([torch.stack([p.maps[self.layer] for p in of]) for of in passes])
        self.numbers |= {
            "times": self.times,
            "gates": {name: values.tolist() for name, values in self.gates.items()},
            "attention_distance": self.distances.tolist(),
            "estimate_error": self.errors.tolist(),
        }

    def _labels(self) -> list[Tensor] | None:
        """Return the class of each image, (1,); the null class where it is not known. None of a model without classes."""
        c = self.config
        if not c.num_classes:
            return None
        if not self.subjects.labelled and not c.null_class:
            hint = "give --data with folders of the model's classes"
            raise ConfigError("the model needs the class of each image, and has none for no class", where="--data", hint=hint)
        known = [item.target if self.subjects.labelled else c.num_classes for item in self.subjects.items]
        return [torch.tensor([label], device=self.device) for label in known]

    def _numbers(self) -> Iterator[int]:
        self.begin("looking into images", len(self.pixels))
        for number in range(len(self.pixels)):
            yield number
            self.advance(1)

    @torch.no_grad()
    def _pass(self, number: int, time: float) -> "Pass":
        """See one image at a time; its noise is the same at all times."""
        pixels = self.pixels[number : number + 1].to(self.device)
        image = self.trained.encoded(self.preparation.normalize(pixels)).to(self.device)
        noise = torch.randn(image.shape, generator=torch.Generator().manual_seed(number)).to(self.device)
        at = torch.tensor([time], dtype=torch.float32, device=self.device)
        seen = Pass(self)
        x = self.process.noisy(image, noise, at)
        given = [] if self.labels is None else [self.labels[number]]
        with capture(self.model, f"**.{WEIGHTS}", each=seen.look), gates_in(self.model, seen.gates):
            output = self.model(x, self.process.model_times(at), *given)
        clean, _ = self.process.clean_and_noise(x, output[:, : self.config.channels], time)
        seen.error = float((clean - image).square().mean())
        if number in self.drawn:
            seen.noisy, seen.estimate = self.trained.pictures(torch.cat([x, clean]))
        return seen


class Pass:
    """Observations of one image at one time."""

    noisy: Image.Image
    estimate: Image.Image
    error: float
    """Mean squared error of the estimate."""

    def __init__(self, study: DiffusionStudy):
        self.gates: dict[str, list[float]] = {}
        """Mean |gate| of each branch, by layer."""
        self.distances: list[float] = []
        """Mean attention distance, by layer."""
        self.maps: list[Tensor] = []
        """Attention of each layer, (rows, columns)."""
        self._study = study
        (height, width), (rows, columns) = study.preparation.image_size, study.config.grid
        self._between = patch_distances((rows, columns), (height // rows, width // columns))

    def look(self, name: str, weights: Tensor) -> None:
        """Take the attention of a layer, (1, k, N, N)."""
        study, (rows, columns) = self._study, self._study.config.grid
        of_heads = weights[0].mean(dim=0) if study.head is None else weights[0, study.head]  # (N, N)
        place = None if study.query is None else study.query[0] % rows * columns + study.query[1] % columns
        looked = of_heads.mean(dim=0) if place is None else of_heads[place]
        self.maps.append(looked.view(rows, columns).cpu())
        self.distances.append(float(attention_distances(weights.cpu(), self._between).mean()))


@contextmanager
def gates_in(model: nn.Module, gates: dict[str, list[float]]) -> Iterator[None]:
    """Append the mean |gate| of every branch of a pass to the list of its name, attention or mlp, while the context is open."""

    def keep(module: nn.Module, given: Any, vectors: Sequence[Tensor], *, branch: str) -> None:
        gates.setdefault(branch, []).append(float(vectors[2].abs().mean()))

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if isinstance(module, Modulation) and module.count == 3:  # the head's has no gate
                hook = module.register_forward_hook(partial(keep, branch=name.split(".")[-2]))
                hooks.callback(hook.remove)
        yield


def _sections(study: DiffusionStudy) -> Iterator[Markup]:
    yield page.cards(model_sections.size(study))
    yield page.section("What it makes of noise", _estimates(study), *_errors(study))
    gates = study.picture(heat_maps(study.gates, study.times, "mean |gate|"), "gates", "Gates by layer and time", GATES)
    yield page.section("Which branches work when", gates)
    yield page.section("Where it looks", _attention(study))
    reach = heat_maps({"attention": study.distances}, study.times, "pixels")
    yield page.section("How far it looks", study.picture(reach, "distances", "Attention distance by layer and time", DISTANCES))


@figures.styled
def heat_maps(values: dict[str, np.ndarray], times: Sequence[float], what: str) -> Figure:
    """Draw values (layers, times) of each name side by side on one scale; ``what`` they are stands beside it."""
    height = min(8.0, 1.6 + 0.24 * max(map(len, values.values())))
    figure, grid = figures.canvas(4.4 * len(values) + 0.8, height, 1, len(values))
    largest = max(float(each.max()) for each in values.values()) or 1.0
    for axes, (name, each) in zip(grid[0], values.items(), strict=True):
        drawn = axes.imshow(each, cmap=pictures.HEAT, vmin=0, vmax=largest, aspect="auto")
        axes.set(title=name, xlabel="time, from noise to image", ylabel=pictures.LAYER)
        axes.set_xticks(range(len(times)), [f"{time:.3g}" for time in times], fontsize=8)
        axes.yaxis.get_major_locator().set_params(integer=True)
    figure.colorbar(drawn, ax=list(grid[0]), label=what)
    return figure


def _columns(study: DiffusionStudy) -> list[int]:
    """Return the numbers of the times that are drawn."""
    return spread(len(study.times), DRAWN_TIMES)


def _head(study: DiffusionStudy) -> list[str]:
    return ["image", *(f"time {study.times[place]:.3g}" for place in _columns(study))]


def _estimates(study: DiffusionStudy) -> Markup:
    rows, captions = [], []
    for number, passes in study.seen.items():
        shown = [passes[place] for place in _columns(study)]
        (image,) = study.preparation.pictures(study.preparation.normalize(study.pixels[number : number + 1]))
        rows += [[image, *(each.noisy for each in shown)], [image, *(each.estimate for each in shown)]]
        captions += [figures.short_path(study.subjects.items[number].name), "estimates"]
    return study.picture(pictures.sheet(rows, _head(study), captions), "estimates", "Estimates of the image", ESTIMATES)


def _errors(study: DiffusionStudy) -> list[Markup]:
    rows = [
        (f"{time:.3g}", Number(f"{study.process.scales(time)[1]:.3f}"), Number(f"{error:.4f}"))
        for time, error in zip(study.times, study.errors, strict=True)
    ]
    return [page.folded("Error by time", page.table(("time", "s", "error"), rows)), page.note(ERRORS)]


def _attention(study: DiffusionStudy) -> Markup:
    """Return maps of attention over some pictures, at some times."""
    places, rows = Places.even(study.config.grid, study.preparation.image_size), []
    for number in study.seen:
        whole = study.preparation.decode(study.subjects.items[number].image, share=None)
        boxes = places.within(study.preparation.box(*whole.size))
        maps = [study.maps["attention"][number, place].numpy() for place in _columns(study)]
        rows.append([pictures.thumbnail(image) for image in (whole, *(pictures.overlay(whole, map_, *boxes) for map_ in maps))])
    captions = [figures.short_path(study.subjects.items[number].name) for number in study.seen]
    heads = "all heads" if study.head is None else f"head {study.head}"
    query = (
        "from all patches together" if study.query is None else f"from the patch in row {study.query[0]}, column {study.query[1]}"
    )
    caption = MAPS.format(layer=f"layer {study.layer}, {heads}", query=query)
    return study.picture(pictures.sheet(rows, _head(study), captions), "attention", "Attention by time", caption)

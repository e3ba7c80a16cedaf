"""Predictor of people's joints, in Python or in an engine."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from pydantic import model_validator
from torch import Tensor

from vitrail.checks import require_positive
from vitrail.data.images.box_preparation import BoxPreparation, Smoothing
from vitrail.data.images.pictures import Picture, pictures_of
from vitrail.data.loading.batches import Batch
from vitrail.data.loading.prefetch import each_answer
from vitrail.deploy.drawn_pictures import drawn_pictures
from vitrail.deploy.export.artefact import Description
from vitrail.deploy.predict import open_predictor
from vitrail.deploy.predictor import Predictor, Prepared, Sink, network_of, predict_each, require_finite
from vitrail.errors import ModelFileError
from vitrail.runtime.device import Precision
from vitrail.runtime.observer import Note
from vitrail.runtime.processes import ALONE, Processes
from vitrail.tasks.answer_table import Row
from vitrail.tasks.evaluation import StreamedEvaluation
from vitrail.tasks.options import OptionPath, Options
from vitrail.tasks.pose.answer import FoundPerson, PoseAnswer, judged_rows, person_head
from vitrail.tasks.pose.files.detections import Detections, number_in
from vitrail.tasks.pose.heatmaps import heatmaps_of, joints_in, surest_turns
from vitrail.tasks.pose.metrics import person_score
from vitrail.tasks.pose.people.cut_out import Boxes, BoxReport, Framed, boxes_of, cut_out, numbers_of
from vitrail.tasks.pose.people.dataset import PersonDataset
from vitrail.tasks.pose.people.people import Person
from vitrail.tasks.pose.people.skeleton import Skeleton
from vitrail.tasks.pose.settings import PoseSettings
from vitrail.tasks.pose.task import PoseMetrics, answers_of
from vitrail.tasks.pose.weights import no_joints, require_poses
from vitrail.tasks.task import Answers
from vitrail.weights.model_folder.folder import TrainedModel


class PoseOptions(Options):
    """Options of `vitrail predict` on people."""

    refusal: ClassVar[str] = "the model predicts joints, not labels"

    boxes: OptionPath | None = None
    """File with the boxes of the people."""
    mirror: bool = False
    """Average the heatmaps of a box and of its mirror image."""
    smoothing: Smoothing | None = None
    """Standard deviation of the heatmaps' smoothing before joints are read, in heatmap cells; None for the model's own value."""
    pictures: OptionPath | None = None
    """Folder to write images with drawn skeletons to."""

    @classmethod
    def missing(cls, where: object) -> ModelFileError:
        return no_joints(where)


SETTINGS = PoseOptions


@dataclass(frozen=True)
class PosePredictor(Predictor):
    """Predictor of a pose model, in Python or in an engine."""

    task: ClassVar[str] = "pose"
    name: str
    skeleton: Skeleton
    """The skeleton, with one joint per heatmap."""
    preparation: BoxPreparation
    heatmaps: Callable[[Tensor], Tensor]
    """Function from prepared pixels, uint8 (B, C, H, W), to float32 heatmaps (B, K, h, w), on the CPU; not thread-safe. If the
    preparation has smaller sizes, it must accept these too."""
    settings: PoseOptions = field(default_factory=PoseOptions)
    report: BoxReport | None = None
    """Collects boxes outside their images, which are then skipped; if None, such a box is an error."""

    @property
    def network(self) -> Callable[[Tensor], Tensor]:
        """Function from pixels to heatmaps, averaged over all views of the preparation."""
        return lambda pixels: heatmaps_of(self.heatmaps, pixels, self.preparation, self.skeleton, mirror=False)[0]

    @property
    def head(self) -> Row:
        return ["person", *person_head(self.skeleton)]

    def preprocess(self, source: Any) -> Prepared:
        cut = cut_out(self.preparation, _framed(source), strict=self.report is None)
        return Prepared(cut.pixels, cut)

    def compute(self, rows: Sequence[np.ndarray], batch_size: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the joints of each person: positions in the network's input (K, 2), and scores (K,)."""
        batches = torch.from_numpy(np.stack(rows)).split(batch_size)
        found = [self.joints(batch, mirror=self.settings.mirror) for batch in batches]
        return [each for batch in found for each in zip(*(part.numpy() for part in batch), strict=True)]

    def postprocess(self, outputs: Sequence[tuple[np.ndarray, np.ndarray]], prepared: Sequence[Prepared]) -> list[Any]:
        cuts = [one.context for one in prepared]
        if self.report is not None:
            self.report.add(cuts)
        boxes, warps = ([one for cut in cuts for one in getattr(cut, name)] for name in ("boxes", "warps"))
        scores = np.array([own for _, own in outputs]).reshape(len(boxes), len(self.skeleton.joints))  # also without people
        sure = person_score(scores, np.array([box.score for box in boxes])).tolist()
        people = (
            FoundPerson(box.box, warp.outside(places), own, score)
            for box, warp, (places, own), score in zip(boxes, warps, outputs, sure, strict=True)
        )
        return [PoseAnswer([next(people) for _ in cut.boxes], self.skeleton, cut.framed.number) for cut in cuts]

    def size(self, source: Any) -> int:
        return _framed(source).people

    def configured(self, settings: Any) -> Self:
        return replace(self.smoothed_by(settings.smoothing), settings=settings, report=BoxReport())

    def sources(self, files: Sequence[Path], note: Note) -> list[Framed]:
        """Return the files with their boxes and ids: from names or the file of boxes if all are known, else 1, 2, 3, …"""
        if self.settings.boxes is None:
            note("no --boxes: each image is treated as one person that fills it")
            return [Framed(file, None, number) for file, number in zip(files, numbers_of(map(number_in, files)), strict=True)]
        detections = Detections.read(self.settings.boxes)
        boxes = detections.of([(file, None) for file in files])
        detections.tell(note)
        detections.tell_of_empty(boxes, note)
        return [Framed(*each) for each in zip(files, boxes, numbers_of(map(detections.number, files)), strict=True)]

    def sinks(self, files: Sequence[Path]) -> list[Sink]:
        folder = self.settings.pictures
        return [] if folder is None else [drawn_pictures(folder, "images with skeletons")]

    def finish(self, note: Note, group: Processes) -> None:
        if self.report is not None:
            self.report.tell(note, group)

    def joints(self, pixels: Tensor, *, mirror: bool = False) -> tuple[Tensor, Tensor]:
        """Find the joints in prepared pixels, uint8 (B, C, H, W): positions, float64 (B, K, 2), and scores (B, K).

        Args:
            pixels: crops of people.
            mirror: averages with mirror images, which takes twice the time; ignored if boxes are computed in eight turns.

        Raises:
            ModelFileError: the model's output is not finite.
        """
        heatmaps, _ = heatmaps_of(self._finite, pixels, self.preparation, self.skeleton, mirror=mirror)
        places, scores = joints_in(heatmaps, self.preparation)
        return places.double(), scores.double()

    def smoothed_by(self, smoothing: float | None) -> Self:
        """Return the predictor with another smoothing, in heatmap cells; with None the model's own."""
        return self if smoothing is None else replace(self, preparation=self.preparation.changed(smoothing=smoothing))

    def turns(self, pixels: Tensor) -> Tensor:
        """Return the counterclockwise quarter turns, (B,), with the highest peaks for pixels (B, C, H, W); 0 if not upright."""
        return surest_turns(self._finite, pixels) if self.preparation.upright else torch.zeros(len(pixels))

    def _finite(self, pixels: Tensor) -> Tensor:
        return require_finite(self.heatmaps(pixels))

    def evaluation(
        self, people: Sequence[Person], settings: PoseSettings, *, batch_size: int, split: str = "all"
    ) -> "PeopleEvaluation":
        """Return the evaluation of people with the model's joints."""

        def answer(batch: Batch) -> Answers:
            return answers_of(self._finite, batch["images"], batch, self.preparation, self.skeleton, settings)

        dataset = PersonDataset(people, self.preparation, self.skeleton)
        metrics = PoseMetrics(self.preparation, self.skeleton, keep=True)
        return PeopleEvaluation(people, split, dataset, metrics, nullcontext(answer), batch_size)


def _framed(source: Any) -> Framed:
    """Return an image with its boxes; without any it is one person that fills it."""
    return source if isinstance(source, Framed) else Framed(source)


@dataclass
class PeopleEvaluation(StreamedEvaluation):
    """An evaluation of people in their annotated boxes."""

    pictures: Path | None = None
    """Folder for images of the worst predictions."""
    note: Note = lambda line: None

    @property
    def answered(self) -> list[Person]:
        """The people in the order of the metrics."""
        return [self.items[row.number] for row in self.metrics.rows]

    def run(self, *, group: Processes = ALONE, **how: Any) -> PoseMetrics:
        metrics: PoseMetrics = super().run(group=group, **how)
        if self.pictures is not None and group.first:
            from vitrail.tasks.pose.report import FoundPeople, write_pictures  # and matplotlib

            write_pictures(self.pictures, FoundPeople(self.answered, metrics.skeleton, metrics.found))
            self.note(f"the worst answers and the joints as pictures: {self.pictures}")
        return metrics

    def rows(self) -> list[Row]:
        return judged_rows(self.answered, self.metrics.found, self.metrics.skeleton)


class PoseDescription(Description):
    """Description of an exported graph that outputs heatmaps of joints."""

    task: ClassVar[str] = "pose"

    gives: ClassVar[str] = "heatmaps"
    sides: ClassVar[tuple[str, ...]] = ("height", "width")
    each: ClassVar[str] = "a heatmap for each of {} joints"
    title: ClassVar[str] = "Skeleton"
    commands: ClassVar[str] = "vitrail predict . photo.jpg --boxes boxes.json\nvitrail evaluate . --data keypoints.json"

    preparation: BoxPreparation
    skeleton: Skeleton
    """The skeleton; its joints are the labels."""

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if self.skeleton.joints != self.labels:
            raise ValueError("the labels are not the skeleton's joints")
        return self

    @classmethod
    def fields_of(cls, trained: Any, *, any_size: bool) -> dict[str, Any]:
        """Return the fields that depend on a model; a graph of a single size has no smaller sizes."""
        own = super().fields_of(trained, any_size=any_size)
        preparation = own["preparation"] if any_size else own["preparation"].changed(smaller_sizes=())
        return {**own, "preparation": preparation, "skeleton": trained.skeleton}

    def predictor(self, network: Callable[[Tensor], Tensor], name: str) -> PosePredictor:
        return PosePredictor(name, self.skeleton, self.preparation, network)


def in_python(
    trained: TrainedModel, precision: Precision | None = None, device: torch.device | str = "cpu", *, prepacked: bool = True
) -> PosePredictor:
    """Return the predictor of a trained model; see `vitrail.deploy.predictor.in_python`."""
    own = require_poses(trained, "model")
    heatmaps = network_of(own, precision, device, prepacked=prepacked, any_size=bool(own.preparation.smaller_sizes))
    return PosePredictor(f"torch {precision or 'fp32'}", own.skeleton, own.preparation, heatmaps)


def predict_poses(
    model: str | Path | TrainedModel | PosePredictor,
    images: Picture | Iterable[Picture],
    boxes: Boxes | Sequence[Boxes] | None = None,
    *,
    mirror: bool = False,
    smoothing: float | None = None,
    batch_size: int = 32,
    precision: Precision | None = None,
    engine: str = "auto",
) -> list[list[FoundPerson]]:
    """Predict the joints of people in each image.

    >>> people = predict_poses("runs/pose", "photo.jpg", [[48, 20, 110, 260], [210, 31, 95, 240]])  # doctest: +SKIP

    Args:
        model: a run folder, a model folder, an exported or a loaded model for poses.
        images: as in `vitrail.predict`.
        boxes: boxes of people, for each image or for the only one: left, top, width and height in pixels of the upright image,
            and optionally a score; None if each image is one person.
        mirror: averages the heatmaps of a box and its mirror image, which takes twice the time.
        smoothing: standard deviation of the heatmaps' smoothing, in cells; 0 for none; by default the model's.
        batch_size: boxes per batch, across images.
        precision, engine: as in `vitrail.predict`.

    Raises:
        ModelFileError: the model does not predict joints.
        ConfigError: boxes are for another number of images.
        DataError: an image cannot be read, or a box is invalid, empty, outside its image or far beyond it.
    """
    require_positive(batch_size=batch_size)
    pictures = pictures_of(images)
    framed = [Framed(*each) for each in zip(pictures, boxes_of(boxes, len(pictures)), strict=True)]
    opened = open_predictor(model, precision, engine=engine, images=sum(one.people for one in framed))
    if not isinstance(opened, PosePredictor):
        raise no_joints(model if isinstance(model, str | Path) else "model")
    predictor = replace(opened.smoothed_by(smoothing), settings=PoseOptions(mirror=mirror))
    return [list(answer.people) for answer in each_answer(predict_each(predictor, framed, batch_size=batch_size))]

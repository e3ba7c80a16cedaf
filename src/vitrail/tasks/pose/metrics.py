"""Metrics of predicted joints: object keypoint similarity (OKS), correct keypoints (PCK), average precision.

Positions are (x, y) in pixels of the image; the centre of the first pixel is (0, 0).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from vitrail.errors import ConfigError
from vitrail.tasks.pose.people.people import Person
from vitrail.tasks.pose.people.skeleton import Skeleton

Length = Literal["torso", "box", "head"]
"""Length of a person that PCK measures distances by."""
ENDS = {
    "torso": ((("left", "shoulder"), ("l", "shoulder")), (("right", "hip"), ("r", "hip"))),
    "head": ((("neck",),), (("head", "top"), ("head",))),
}
"""Words in the names of the joints at both ends of a length, in several spellings; the first that fits is used."""
CATEGORY = 1
"""COCO's category id of people."""
SURE = 0.2
"""Score above which a joint counts in the score of a person, as in ViTPose's evaluation."""
SCORES = ("ap", "ap50", "ap75", "ap_medium", "ap_large", "ar", "ar50", "ar75", "ar_medium", "ar_large")
"""Names of COCO's scores, in the order of its summary."""


class Found(NamedTuple):
    """Predicted joints of N people."""

    joints: np.ndarray
    """float64 (N, K, 2): x and y."""
    scores: np.ndarray
    """float64 (N, K): the model's confidence in each joint."""


def marked_joints(people: Sequence[Person], skeleton: Skeleton) -> tuple[np.ndarray, np.ndarray]:
    """Return the annotated positions, float64 (N, K, 2), and which joints are annotated, bool (N, K)."""
    joints = np.array([person.target.joints for person in people], np.float64).reshape(len(people), len(skeleton.joints), 3)
    return joints[..., :2], joints[..., 2] > 0


def mean_pose(people: Sequence[Person]) -> np.ndarray:
    """Return the mean position of each joint in people's boxes, in fractions of the box: float64 (K, 2).

    A joint that is annotated for nobody is in the middle.
    """
    joints = np.array([person.target.joints for person in people], np.float64)  # (N, K, 3)
    boxes = np.array([person.target.box for person in people], np.float64)[:, None]  # (N, 1, 4)
    places, marked = (joints[..., :2] - boxes[..., :2]) / np.maximum(boxes[..., 2:], 1e-9), joints[..., 2:] > 0
    count = marked.sum(axis=0)
    return np.where(count, (places * marked).sum(axis=0) / np.maximum(count, 1), 0.5)


def in_boxes(pose: np.ndarray, people: Sequence[Person]) -> np.ndarray:
    """Convert a pose in fractions of a box, (K, 2), to pixels in the box of each person: float64 (N, K, 2)."""
    boxes = np.array([person.target.box for person in people], np.float64)[:, None]
    return boxes[..., :2] + pose * boxes[..., 2:]


def distances(found: Found, people: Sequence[Person], skeleton: Skeleton) -> np.ndarray:
    """Return the distance from predicted to annotated joints in pixels, float64 (N, K); NaN for joints without annotation."""
    places, marked = marked_joints(people, skeleton)
    return np.where(marked, np.linalg.norm(found.joints - places, axis=-1), np.nan)


def joint_similarity(found: Found, people: Sequence[Person], skeleton: Skeleton) -> np.ndarray:
    """Return ``exp(-d² / (2 s² k²))`` of every annotated joint, float64 (N, K); NaN for others.

    d is the distance, s² the person's area, and k twice the joint's sigma.
    """
    variances = (2 * np.array(skeleton.complete.sigmas)) ** 2  # (K,)
    areas = np.array([person.target.area for person in people])[:, None] + np.spacing(1)  # (N, 1)
    return np.exp(-(distances(found, people, skeleton) ** 2) / variances / areas / 2)


def oks(found: Found, people: Sequence[Person], skeleton: Skeleton) -> np.ndarray:
    """Return the object keypoint similarity of each person, float64 (N,): the mean of `joint_similarity` over annotated joints.

    It is defined as in COCO (https://cocodataset.org/#keypoints-eval); NaN for a person without annotated joints.
    """
    return _mean(joint_similarity(found, people, skeleton), axis=1)


def _mean(values: np.ndarray, axis: int) -> np.ndarray:
    known = ~np.isnan(values)
    count = known.sum(axis=axis)
    return np.where(count, np.where(known, values, 0).sum(axis=axis) / np.maximum(count, 1), np.nan)


@dataclass(frozen=True)
class PCK:
    """Percentage of correct keypoints, stored as counts that can be added."""

    hits: np.ndarray
    """int64 (K,): predicted joints that are near enough."""
    counts: np.ndarray
    """int64 (K,): annotated joints of people whose length is known."""
    left_out: int
    """Number of people whose length is unknown."""

    @property
    def per_joint(self) -> np.ndarray:
        """Return the fraction of correct predictions of each joint, float64 (K,); NaN for a joint without annotation."""
        return np.where(self.counts, self.hits / np.maximum(self.counts, 1), np.nan)

    @property
    def total(self) -> float:
        """Return the fraction of correct predictions over all joints; 0 without any."""
        return float(self.hits.sum() / max(1, self.counts.sum()))


def pck(found: Found, people: Sequence[Person], skeleton: Skeleton, threshold: float = 0.2, by: Length = "torso") -> PCK:
    """Count annotated joints whose prediction is within ``threshold`` times a length of the person; see `lengths`.

    The total is a fraction of all joints, as in MPII's evaluation; mmpose averages the joints' fractions.

    Raises:
        ConfigError: the skeleton does not have the joints of this length.
    """
    correct = correct_joints(found, people, skeleton, threshold, by)
    known = ~np.isnan(correct)
    left_out = int(np.isnan(lengths(people, skeleton, by)).sum())
    return PCK(np.nansum(correct, axis=0).astype(np.int64), known.sum(axis=0), left_out)


def correct_joints(
    found: Found, people: Sequence[Person], skeleton: Skeleton, threshold: float = 0.2, by: Length = "torso"
) -> np.ndarray:
    """Return 1 for a joint that is near enough and 0 for others, float64 (N, K); NaN without annotation or known length."""
    relative = distances(found, people, skeleton) / lengths(people, skeleton, by)[:, None]
    return np.where(np.isnan(relative), np.nan, relative <= threshold)


def lengths(people: Sequence[Person], skeleton: Skeleton, by: Length) -> np.ndarray:
    """Return a length of each person in pixels, float64 (N,); NaN if its end joints are not annotated or coincide.

    - ``torso``: from the left shoulder to the right hip (Toshev and Szegedy 2014, https://arxiv.org/abs/1312.4659), for PCK@0.2.
    - ``box``: the longer side of the box (Yang and Ramanan 2013, https://doi.org/10.1109/TPAMI.2012.261).
    - ``head``: from the neck to the top of the head, for PCKh@0.5. MPII (Andriluka et al. 2014), which introduced PCKh, uses 0.6
      of the diagonal of a head box instead, which most data does not have.

    Raises:
        ConfigError: the skeleton does not have these joints.
    """
    if by == "box":
        found = np.array([max(person.target.box[2:]) for person in people], np.float64)
    else:
        ends = _ends(skeleton, by)
        if ends is None:
            what = f"the skeleton lacks the joints that the length of a {by} is measured between"
            raise ConfigError(what, where="skeleton", hint=f"its joints are {', '.join(skeleton.joints)}; take the box instead")
        places, marked = marked_joints(people, skeleton)
        one, other = ends
        between = np.linalg.norm(places[:, one] - places[:, other], axis=-1)
        found = np.where(marked[:, one] & marked[:, other], between, np.nan)
    return np.where(found > 0, found, np.nan)


def usual_length(people: Sequence[Person], skeleton: Skeleton) -> Length:
    """Return the default length of PCK: the torso, or the box if fewer than half of the people have a known torso.

    With the torso, people without one do not count.
    """
    known = _known(people, skeleton, "torso")
    return "torso" if known and 2 * known >= len(people) else "box"


def _known(people: Sequence[Person], skeleton: Skeleton, by: Length) -> int:
    if by != "box" and _ends(skeleton, by) is None:
        return 0
    return int(np.isfinite(lengths(people, skeleton, by)).sum())


def correct_shares(found: Found, people: Sequence[Person], skeleton: Skeleton) -> dict[str, float]:
    """Return the fractions of joints near enough, by each known length: ``pck``, ``pck_box``, ``pckh``."""
    lengths: dict[str, tuple[float, Length]] = {
        "pck": (0.2, usual_length(people, skeleton)),
        "pck_box": (0.2, "box"),
        "pckh": (0.5, "head"),
    }
    return {
        name: pck(found, people, skeleton, threshold, by).total
        for name, (threshold, by) in lengths.items()
        if by == "box" or _known(people, skeleton, by)
    }


def _ends(skeleton: Skeleton, by: Length) -> tuple[int, int] | None:
    """Return the joints at the ends of a length; None if the skeleton lacks one of them."""
    one, other = (skeleton.joint_with(*spellings) for spellings in ENDS[by])
    return None if one is None or other is None else (one, other)


def person_score(scores: np.ndarray, box_scores: np.ndarray | float = 1.0) -> np.ndarray:
    """Return the score of each person, (N,), from the scores of the joints, (N, K), and of the box, (N,).

    It is the mean score of joints above 0.2, times the box's score, as in ViTPose's evaluation and Simple Baselines (Xiao et
    al. 2018, https://arxiv.org/abs/1804.06208). If no joint is above 0.2, these return 0, which ranks all such people equally;
    here it is the mean over all joints, which is at most 0.2.
    """
    sure = _mean(np.where(scores > SURE, scores, np.nan), axis=1)
    return np.where(np.isnan(sure), scores.mean(axis=1), sure) * box_scores


def coco_results(images: Sequence[int], found: Found, box_scores: np.ndarray | float = 1.0) -> list[dict[str, Any]]:
    """Return predicted people as COCO's results, JSON-able.

    Args:
        images: image number of each person, as in `Pose.image`.
        found: predicted joints.
        box_scores: the detector's confidence in each box, (N,).
    """
    keypoints = np.concatenate([found.joints, found.scores[..., None]], axis=-1)  # (N, K, 3)
    scores = person_score(found.scores, box_scores)
    return [
        {"image_id": image, "category_id": CATEGORY, "keypoints": joints.ravel().tolist(), "score": score}
        for image, joints, score in zip(images, keypoints, scores.tolist(), strict=True)
    ]


def average_precision(
    results: Sequence[Mapping[str, Any]],
    people: Sequence[Person],
    skeleton: Skeleton,
    *,
    ignored: Sequence[Mapping[str, Any]] = (),
) -> dict[str, float]:
    """Compute COCO's average precision and recall, by the library faster-coco-eval; see `SCORES`.

    Each is a mean over ten OKS thresholds from 0.5 to 0.95, at 0.5 or 0.75 only, or for people of medium (32² to 96² pixels) or
    large areas. Scores of a size that no person has are left out.

    Args:
        results: COCO's results, in any number and order; a person without annotation counts as a mistake.
        people: annotated people.
        skeleton: their skeleton.
        ignored: COCO's annotations of crowds and of people without annotated joints; results that match them are no mistakes.

    Raises:
        ConfigError: the extra ``pose`` is not installed.
    """
    library, silent = coco_eval(), lambda *words: None
    rows = [{key: result[key] for key in ("image_id", "keypoints", "score")} | {"category_id": CATEGORY} for result in results]
    truth = library.COCO(_truth(people, skeleton, ignored, {result["image_id"] for result in rows}), print_function=silent)
    sigmas = list(skeleton.complete.sigmas or ())
    judge = library.COCOeval_faster(truth, truth.loadRes(rows), "keypoints", print_function=silent, kpt_oks_sigmas=sigmas)
    judge.run()
    return {name: float(score) for name, score in zip(SCORES, judge.all_stats, strict=True) if score >= 0}


def coco_eval() -> Any:
    """Import the library that computes average precision; raises `ConfigError` if it is not installed."""
    try:
        import faster_coco_eval
    except ImportError:
        what, hint = "average precision of joints needs the library faster-coco-eval", 'pip install "vitrail[pose]"'
        raise ConfigError(what, where="evaluate", hint=hint) from None
    return faster_coco_eval


def _truth(
    people: Sequence[Person], skeleton: Skeleton, ignored: Sequence[Mapping[str, Any]], images: set[int]
) -> dict[str, list[dict[str, Any]]]:
    marked = [_annotation(person) for person in people]
    nothing = {"category_id": CATEGORY, "keypoints": [0] * 3 * len(skeleton.joints), "num_keypoints": 0}
    annotations = [*marked, *({**nothing, **one, "category_id": CATEGORY} for one in ignored)]
    numbers = images | {one["image_id"] for one in annotations}
    return {
        "images": [{"id": number} for number in sorted(numbers)],
        "annotations": [{**one, "id": number} for number, one in enumerate(annotations, 1)],  # the library ignores id 0
        "categories": [{"id": CATEGORY, "name": "person", "keypoints": list(skeleton.joints)}],
    }


def _annotation(person: Person) -> dict[str, Any]:
    joints = person.joints  # (K, 3)
    return {
        "image_id": person.target.image,
        "category_id": CATEGORY,
        "keypoints": joints.ravel().tolist(),
        "num_keypoints": int((joints[:, 2] > 0).sum()),
        "bbox": list(person.target.box),
        "area": person.target.area,
        "iscrowd": 0,
    }

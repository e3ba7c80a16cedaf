"""The skeleton of a body: names of the joints, limbs, left-right pairs and sigmas."""

import re
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from vitrail.settings import Settings

Limb = tuple[str, str]
OF_DATA = ("annotations", "joints", "image")


def _boxes(value: str) -> str:
    if value not in OF_DATA and not value.lower().endswith(".json"):
        raise ValueError(f"boxes are {', '.join(OF_DATA)}, or those of a FILE.json")
    return value


Boxes = Annotated[str, AfterValidator(_boxes)]
"""Source of people's boxes: ``annotations``, the data's own; ``joints``, the smallest around the annotated joints; ``image``, the
full image; or a JSON file of boxes, of which each person gets the one that overlaps the annotated box the most."""

SIGMAS = {
    "nose": 0.026,
    "eye": 0.025,
    "ear": 0.035,
    "shoulder": 0.079,
    "elbow": 0.072,
    "wrist": 0.062,
    "hip": 0.107,
    "knee": 0.087,
    "ankle": 0.089,
}
"""COCO's sigma of joints with this word in their names: the deviation between annotators, as a fraction of the body's size."""
PAIRED = tuple(SIGMAS)[1:]
OTHER_SIGMA = 0.079
"""Sigma of joints that COCO does not have: the shoulder's, as CrowdPose uses for head and neck."""
UPPER = (
    "nose", "eye", "ear", "head", "neck", "shoulder", "elbow", "wrist", "hand", "finger", "thumb", "mouth", "chin", "top",
    "chest", "thorax",
)  # fmt: skip
"""Words in the names of joints above the hips."""
SIDES = (("left", "right"), ("Left", "Right"), ("LEFT", "RIGHT"), ("l", "r"), ("L", "R"))
"""Words that distinguish counterparts, at the beginning or end of a name, or as a separate word."""
WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
"""Pattern of a word in a joint's name."""
APART = "\0"
"""Temporary separator around left and right in names such as ``lefteye``."""
MOST_JOINTS, MOST_LIMBS = 1000, 3000
"""Limits of a skeleton: more limbs would take minutes to draw."""
SHOWN = 8
"""Maximum number of joints in a message."""


class Skeleton(Settings):
    """The joints of a pose model.

    Missing fields follow from the joints' names: pairs from names such as ``left_eye`` and ``right_eye``, sigmas from COCO's.
    """

    joints: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1, max_length=MOST_JOINTS)]
    """Names of the joints."""
    limbs: Annotated[tuple[Limb, ...], Field(max_length=MOST_LIMBS)] = ()
    """Pairs of joints that are drawn as connected."""
    pairs: tuple[Limb, ...] | None = None
    """Joints that are exchanged in a mirror image; by default by their names."""
    sigmas: tuple[Annotated[float, Field(gt=0, le=1)], ...] | None = None
    """Sigmas for COCO's keypoint similarity (OKS); by default by the joints' names."""
    upper: tuple[str, ...] | None = None
    """Joints of the upper half of the body, for half-body crops; by default by their names."""

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        names = set(self.joints)
        if twice := [name for name in self.joints if self.joints.count(name) > 1]:
            raise ValueError(f"there are two joints {twice[0]!r}")
        named = {"limbs": chain(*self.limbs), "pairs": chain(*(self.pairs or ())), "upper": self.upper or ()}
        for field, found in named.items():
            if strange := [name for name in found if name not in names]:
                raise ValueError(f"{field} contains {strange[0]!r}, which is not one of the joints {', '.join(self.joints)}")
        paired = list(chain(*(self.pairs or ())))
        if len(paired) != len(set(paired)):
            raise ValueError("a joint is in two pairs")
        if self.sigmas is not None and len(self.sigmas) != len(self.joints):
            raise ValueError(f"{len(self.sigmas)} sigmas for {len(self.joints)} joints")
        return self

    @classmethod
    def of(cls, joints: Iterable[str], limbs: Iterable[Iterable[int]] = ()) -> Self:
        """Create a skeleton from joint names, and limbs by joint numbers from 0; raises `ConfigError`."""
        names = tuple(joints)
        named = tuple(tuple(names[end] if 0 <= end < len(names) else f"number {end}" for end in limb) for limb in limbs)
        return cls.read({"joints": names, "limbs": named}, where="skeleton")

    @property
    def complete(self) -> Self:
        """The same skeleton with all missing fields filled in from the names."""
        found = {
            "pairs": _pairs(self.joints) if self.pairs is None else self.pairs,
            "sigmas": tuple(map(_sigma, self.joints)) if self.sigmas is None else self.sigmas,
            "upper": tuple(n for n in self.joints if self.has_word(n, UPPER)) if self.upper is None else self.upper,
        }
        return self.changed(**found)

    @property
    def limb_indices(self) -> list[tuple[int, int]]:
        """The limbs as numbers of their joints."""
        return [(self.joints.index(one), self.joints.index(other)) for one, other in self.limbs]

    @property
    def order_mirrored(self) -> list[int]:
        """For each joint, the number of its counterpart in a mirror image."""
        order = list(range(len(self.joints)))
        for names in _pairs(self.joints) if self.pairs is None else self.pairs:
            one, other = map(self.joints.index, names)
            order[one], order[other] = other, one
        return order

    @property
    def unpaired(self) -> list[str]:
        """Joints called left or right that have no counterpart."""
        order = self.order_mirrored
        return [
            name for place, name in enumerate(self.joints) if order[place] == place and self.has_word(name, ("left", "right"))
        ]

    def is_like(self, other: "Skeleton") -> bool:
        """Return True for the same joints in the same order, ignoring spelling: ``L_Eye`` equals ``left_eye``."""
        one, another = ([words_of(name) for name in skeleton.joints] for skeleton in (self, other))
        return self.joints == other.joints or (one == another and all(one))

    def difference(self, other: "Skeleton") -> str:
        """Return in words how another skeleton's joints differ, ignoring spelling."""
        ours, theirs = ({frozenset(words_of(name)) or name: name for name in one.joints} for one in (self, other))
        new, missing = (
            [name for key, name in one.items() if key not in another] for one, another in ((theirs, ours), (ours, theirs))
        )
        changes = [f"{how}: {first_of(names)}" for how, names in (("new", new), ("missing", missing)) if names]
        return "; ".join(changes) or "in another order"

    def index(self, *names: str) -> list[int] | None:
        """Return the numbers of these joints; None if one is missing."""
        return [self.joints.index(name) for name in names] if set(names) <= set(self.joints) else None

    @staticmethod
    def has_word(name: str, words: Collection[str]) -> bool:
        """Return True if a joint's name contains one of the words, such as ``eye``."""
        return not _words(name).isdisjoint(words)

    def joint_with(self, *spellings: Collection[str]) -> int | None:
        """Return the number of the joint whose name has all words of the first spelling that fits; None if there is none."""
        found = (number for words in spellings for number, name in enumerate(self.joints) if _words(name).issuperset(words))
        return next(found, None)


COCO = Skeleton.of(
    ("nose", *(f"{side}_{joint}" for joint in PAIRED for side in ("left", "right"))),
    (
        *((15, 13), (13, 11), (16, 14), (14, 12), (11, 12), (5, 11), (6, 12), (5, 6), (5, 7), (6, 8)),
        *((7, 9), (8, 10), (1, 2), (0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 6)),
    ),
)
"""COCO's 17 joints."""


def words_of(name: str) -> set[str]:
    """Return the words and numbers in a joint's name, with left and right written out."""
    return {{"l": "left", "r": "right"}.get(word, word) for word in (*_words(name), *re.findall("[0-9]+", name))}


def _pairs(names: tuple[str, ...]) -> tuple[Limb, ...]:
    """Return pairs of a left joint and its counterpart on the right; no joint is in two pairs."""
    pairs: dict[str, str] = {}
    for name in names:
        free = set(names) - {name, *pairs, *pairs.values()}
        other = next((other for other in _counterparts(name) if other in free), None)
        if other is not None and name not in pairs.values():
            pairs[name] = other
    return tuple(pairs.items())


def _counterparts(name: str) -> Iterator[str]:
    """Yield possible names of a left joint's counterpart."""
    for left, right in SIDES:
        if name.startswith(left):
            yield right + name.removeprefix(left)
        if name.endswith(left):
            yield name.removesuffix(left) + right
    other = dict(SIDES)
    yield WORD.sub(lambda word: other.get(word[0], word[0]), _with_sides_apart(name)).replace(APART, "")


def first_of(names: list[str]) -> str:
    """Return the first names, and "and others" if there are more."""
    return ", ".join(names[:SHOWN]) + (" and others" if len(names) > SHOWN else "")


def _sigma(name: str) -> float:
    return next((sigma for joint, sigma in SIGMAS.items() if joint in _words(name)), OTHER_SIGMA)


def _words(name: str) -> set[str]:
    """Return the words in lower case, equal for ``left_eye``, ``leftEye``, ``LEFT-EYE`` and ``lefteye``."""
    return {word.lower() for word in WORD.findall(_with_sides_apart(name))}


def _with_sides_apart(name: str) -> str:
    """Return a name with `APART` around left and right, which makes them separate words."""
    return re.sub("(left|right)", rf"{APART}\1{APART}", name, flags=re.IGNORECASE)

"""The joints of a body: their names, and how they belong together."""

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
"""Source of a person's box: ``annotations``, the data's own; ``joints``, the smallest around those that are marked;
``image``, the whole picture; or a file of boxes, of which each person takes the one that overlaps the own the most."""

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
"""COCO's sigma of a joint with this word in its name: the deviation between two annotators, as a share of the body's size."""
PAIRED = tuple(SIGMAS)[1:]
OTHER_SIGMA = 0.079
"""Sigma of a joint that COCO does not have: its shoulder's, as in CrowdPose for head and neck."""
UPPER = (
    "nose", "eye", "ear", "head", "neck", "shoulder", "elbow", "wrist", "hand", "finger", "thumb", "mouth", "chin", "top",
    "chest", "thorax",
)  # fmt: skip
"""Words in the names of joints above the hips."""
SIDES = (("left", "right"), ("Left", "Right"), ("LEFT", "RIGHT"), ("l", "r"), ("L", "R"))
"""Parts of the names of counterparts, at the beginning or the end of a name, or as a word."""
WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
"""Word of a joint's name."""
APART = "\0"
"""Separator between left or right and letters written together with it, while words are looked for."""
MOST_JOINTS, MOST_LIMBS = 1000, 3000
"""Bounds of a skeleton: joints that are all connected with one another would keep a drawing for minutes."""
SHOWN = 8
"""Most joints in a message."""


class Skeleton(Settings):
    """The joints that a model finds.

    What is left out follows from the joints' names: pairs from names such as ``left_eye`` and ``right_eye``, sigmas from COCO's.
    """

    joints: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1, max_length=MOST_JOINTS)]
    """Their names."""
    limbs: Annotated[tuple[Limb, ...], Field(max_length=MOST_LIMBS)] = ()
    """Joints that are drawn connected."""
    pairs: tuple[Limb, ...] | None = None
    """Joints that change places in a mirror image; by their names where this is left out."""
    sigmas: tuple[Annotated[float, Field(gt=0, le=1)], ...] | None = None
    """Deviations of COCO's similarity of keypoints (OKS); by their names where this is left out."""
    upper: tuple[str, ...] | None = None
    """Joints of the upper half of the body, for pictures of one half; by their names where this is left out."""

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        names = set(self.joints)
        if twice := [name for name in self.joints if self.joints.count(name) > 1]:
            raise ValueError(f"there are two joints {twice[0]!r}")
        named = {"limbs": chain(*self.limbs), "pairs": chain(*(self.pairs or ())), "upper": self.upper or ()}
        for field, found in named.items():
            if strange := [name for name in found if name not in names]:
                raise ValueError(f"{field} names {strange[0]!r}, which is none of the joints {', '.join(self.joints)}")
        paired = list(chain(*(self.pairs or ())))
        if len(paired) != len(set(paired)):
            raise ValueError("a joint stands in two pairs")
        if self.sigmas is not None and len(self.sigmas) != len(self.joints):
            raise ValueError(f"{len(self.sigmas)} sigmas for {len(self.joints)} joints")
        return self

    @classmethod
    def of(cls, joints: Iterable[str], limbs: Iterable[Iterable[int]] = ()) -> Self:
        """Create a skeleton of named joints, with limbs between joints by number, from 0; raise `ConfigError`."""
        names = tuple(joints)
        named = tuple(tuple(names[end] if 0 <= end < len(names) else f"number {end}" for end in limb) for limb in limbs)
        return cls.read({"joints": names, "limbs": named}, where="skeleton")

    @property
    def complete(self) -> Self:
        """Return the same skeleton with all fields that follow from the names."""
        found = {
            "pairs": _pairs(self.joints) if self.pairs is None else self.pairs,
            "sigmas": tuple(map(_sigma, self.joints)) if self.sigmas is None else self.sigmas,
            "upper": tuple(n for n in self.joints if self.has_word(n, UPPER)) if self.upper is None else self.upper,
        }
        return self.changed(**found)

    @property
    def limb_indices(self) -> list[tuple[int, int]]:
        """Return the limbs by the numbers of their joints."""
        return [(self.joints.index(one), self.joints.index(other)) for one, other in self.limbs]

    @property
    def order_mirrored(self) -> list[int]:
        """Return for each joint the number of its counterpart in a mirror image."""
        order = list(range(len(self.joints)))
        for names in _pairs(self.joints) if self.pairs is None else self.pairs:
            one, other = map(self.joints.index, names)
            order[one], order[other] = other, one
        return order

    @property
    def unpaired(self) -> list[str]:
        """Return the joints called left or right that have no counterpart in a mirror image."""
        order = self.order_mirrored
        return [
            name for place, name in enumerate(self.joints) if order[place] == place and self.has_word(name, ("left", "right"))
        ]

    def is_like(self, other: "Skeleton") -> bool:
        """Return True for the same joints in the same order, however their names are spelt: ``L_Eye`` is ``left_eye``."""
        one, another = ([words_of(name) for name in skeleton.joints] for skeleton in (self, other))
        return self.joints == other.joints or (one == another and all(one))

    def difference(self, other: "Skeleton") -> str:
        """Return the differences of another skeleton's joints in words, however names are spelt."""
        ours, theirs = ({frozenset(words_of(name)) or name: name for name in one.joints} for one in (self, other))
        new, missing = (
            [name for key, name in one.items() if key not in another] for one, another in ((theirs, ours), (ours, theirs))
        )
        changes = [f"{how}: {first_of(names)}" for how, names in (("new", new), ("missing", missing)) if names]
        return "; ".join(changes) or "in another order"

    def index(self, *names: str) -> list[int] | None:
        """Return the numbers of some joints; None where one is missing."""
        return [self.joints.index(name) for name in names] if set(names) <= set(self.joints) else None

    @staticmethod
    def has_word(name: str, words: Collection[str]) -> bool:
        """Return True if one of some words, such as ``eye``, is in the name of a joint."""
        return not _words(name).isdisjoint(words)

    def joint_with(self, *spellings: Collection[str]) -> int | None:
        """Return the number of the joint with all these words in its name, in the first spelling that there is; else None."""
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
    """Return the words in a joint's name, and its numbers, with its side in full."""
    return {{"l": "left", "r": "right"}.get(word, word) for word in (*_words(name), *re.findall("[0-9]+", name))}


def _pairs(names: tuple[str, ...]) -> tuple[Limb, ...]:
    """Return the joints on the left, each with its counterpart on the right; none is in two pairs."""
    pairs: dict[str, str] = {}
    for name in names:
        free = set(names) - {name, *pairs, *pairs.values()}
        other = next((other for other in _counterparts(name) if other in free), None)
        if other is not None and name not in pairs.values():
            pairs[name] = other
    return tuple(pairs.items())


def _counterparts(name: str) -> Iterator[str]:
    """Yield possible names of the joint on the right that belongs to a joint on the left."""
    for left, right in SIDES:
        if name.startswith(left):
            yield right + name.removeprefix(left)
        if name.endswith(left):
            yield name.removesuffix(left) + right
    other = dict(SIDES)
    yield WORD.sub(lambda word: other.get(word[0], word[0]), _with_sides_apart(name)).replace(APART, "")


def first_of(names: list[str]) -> str:
    """Return the first of some names, with a word if there are more."""
    return ", ".join(names[:SHOWN]) + (" and others" if len(names) > SHOWN else "")


def _sigma(name: str) -> float:
    return next((sigma for joint, sigma in SIGMAS.items() if joint in _words(name)), OTHER_SIGMA)


def _words(name: str) -> set[str]:
    """Return the words, in small letters, which are the same for ``left_eye``, ``leftEye``, ``LEFT-EYE`` and ``lefteye``."""
    return {word.lower() for word in WORD.findall(_with_sides_apart(name))}


def _with_sides_apart(name: str) -> str:
    """Return a name with `APART` around left and right, which makes them words of their own."""
    return re.sub("(left|right)", rf"{APART}\1{APART}", name, flags=re.IGNORECASE)

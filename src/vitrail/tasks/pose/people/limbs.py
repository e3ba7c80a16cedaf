"""Limbs for drawing a skeleton that defines none, derived from the joints' names."""

from functools import cache
from itertools import combinations

from vitrail.tasks.pose.people.skeleton import Limb, Skeleton, words_of

NEIGHBOURS = (
    *(("nose", "eye"), ("eye", "ear"), ("ear", "shoulder"), ("shoulder", "elbow"), ("elbow", "wrist"), ("wrist", "hand")),
    *(("shoulder", "hip"), ("hip", "knee"), ("knee", "ankle"), ("ankle", "foot"), ("ankle", "heel"), ("foot", "toe")),
    *(("neck", "head"), ("neck", "nose"), ("neck", "shoulder"), ("pelvis", "hip")),
)
"""Words in the names of connected joints, if both are on one side of the body or one is in its middle."""
MOST_NAMED = 200
"""Maximum number of joints for which limbs are derived from names."""
ACROSS = ("eye", "shoulder", "hip")
"""Words in the names of joints that are connected with their counterpart on the other side."""


@cache
def drawn_limbs(skeleton: Skeleton) -> tuple[Limb, ...]:
    """Return the skeleton's limbs; without any, limbs derived from the joints' names; else its left-right pairs."""
    if skeleton.limbs or len(skeleton.joints) > MOST_NAMED:
        return skeleton.limbs
    words = [(name, words_of(name)) for name in skeleton.joints]
    named = [(one, other) for (one, a), (other, b) in combinations(words, 2) if _are_neighbours(a, b) or _are_neighbours(b, a)]
    return tuple(named) or skeleton.complete.pairs or ()


def _are_neighbours(one: set[str], other: set[str]) -> bool:
    if any(word in one and word in other and one ^ other == {"left", "right"} for word in ACROSS):
        return True
    for word, neighbour in NEIGHBOURS:
        if word in one and neighbour in other:
            rest, others = one - {word}, other - {neighbour}
            return rest == others or not rest or not others
    apart = list(one ^ other)
    return len(apart) == 2 and all(map(str.isdigit, apart)) and abs(int(apart[0]) - int(apart[1])) == 1 and len(one) > 1

"""Names of tensors in a file, without the prefixes and segments that wrapping modules add (``module.``, ``ema.``)."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from vitrail.runtime.terminal import note
from vitrail.weights.formats.safe_files import some
from vitrail.weights.keys import Shape, words
from vitrail.weights.layout import Layout, Match
from vitrail.weights.layouts.vit.clip import OPEN_CLIP

WRAPPERS = re.compile(r"(?:(?<=\.)|^)(?:module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
"""Segments that PyTorch adds to names when a module is compiled, sharded, checkpointed or trained in parallel."""
COUNTERS = re.compile(r"(?:.*\.)?(?:n_averaged|initted|step|num_updates|decay|epoch|global_step)")
"""Names of scalars that training and weight averaging save beside the weights."""
NOTHING = ("(?!)",)
OF_DECODERS = (r"(decoder|encoder_to_decoder|decoder_\w+|predictor)\..*", r"mask_token|decoder_pos_embed")
WRAPPING = {
    **dict.fromkeys(
        words(
            """
            backbone base_model ema ema_model model model_ema net network online_model opt params student target teacher
            timm_model visual vit
            """
        ),
        NOTHING,
    ),
    "encoder": OF_DECODERS,
    "trunk": OPEN_CLIP.ignored,
}
"""Prefixes of other libraries, each with regular expressions of names without the prefix that may be ignored."""
MOST_DROPPED, MOST_NAMINGS = 4, 24
"""Most prefixes that are removed from a name, and most combinations of prefixes that are tried."""


def unwrapped(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Remove `WRAPPERS` from the names, and the tensors in `COUNTERS`; return all unchanged if two names would become equal."""
    names = {name: WRAPPERS.sub("", name) for name in tensors}
    kept = {name: bare for name, bare in names.items() if not (tensors[name].numel() == 1 and COUNTERS.fullmatch(bare))}
    if len({*kept.values()}) < len(kept):
        return dict(tensors)
    if dropped := sorted({word for name in kept for word in WRAPPERS.findall(name)}):
        note(f"dropped from the names of the weights: {' '.join(dropped)}")
    return {bare: tensors[name] for name, bare in kept.items()}


@dataclass(frozen=True)
class Naming:
    """Names of a file's tensors after removal of prefixes.

    Args:
        names: the shortened name of each tensor to its name in the file.
        dropped: the removed prefixes, with their separators.
        beside: names in the file of ignored tensors, which belong to no image model.
    """

    names: Mapping[str, str]
    dropped: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()

    def without(self, word: str) -> "Naming | None":
        """Return a naming that also removes the prefix ``word``; None if two names would become equal."""
        passed_over = [re.compile(pattern) for pattern in WRAPPING.get(word[:-1], NOTHING)]
        names: dict[str, str] = {}
        beside = list(self.beside)
        for name, own in self.names.items():
            bare = name.removeprefix(word)
            if bare == name and any(pattern.fullmatch(name) for pattern in passed_over):
                beside.append(own)
            elif bare in names:
                return None
            else:
                names[bare] = own
        return Naming(names, (*self.dropped, word), tuple(beside))

    @property
    def about(self) -> str:
        """Return a line on the removed prefixes and ignored tensors; empty if no prefix was removed."""
        if not self.dropped:
            return ""
        beside = f"; ignored tensors: {some(sorted(self.beside), 4)}" if self.beside else ""
        return f"removed the prefix {''.join(self.dropped)} from the names{beside}"


def _namings(names: Iterable[str]) -> Iterator[Naming]:
    """Yield the names unchanged, then without prefixes that all of them share or that are in `WRAPPING`."""
    queue = [Naming({name: name for name in names})]
    for number, naming in enumerate(queue):
        yield naming
        if number >= MOST_NAMINGS or len(naming.dropped) >= MOST_DROPPED:
            continue
        before = Counter(match[0] for name in naming.names if (match := re.match(r"[^./]+[./]", name)))
        wrapping = [word for word, count in before.items() if count == len(naming.names) or word[:-1] in WRAPPING]
        queue += [shorter for word in wrapping if (shorter := naming.without(word)) is not None]


def nearest_naming(shapes: Mapping[str, Shape], layouts: Sequence[Layout]) -> tuple[Naming, list[Match]]:
    """Return the naming that fits one of the layouts best, and the match of each layout with it, the best first.

    No further prefixes are tried once a layout knows every tensor.
    """
    best: tuple[Naming, list[Match]] | None = None
    for naming in _namings(shapes):
        matches = sorted((layout.match(naming.names) for layout in layouts), key=distance)
        if best is None or (matches and distance(matches[0]) < distance(best[1][0])):
            best = naming, matches
        if not matches or (matches[0].keys and not matches[0].unexpected):
            break
    assert best is not None
    return best


def distance(match: Match) -> int:
    """Return the distance of a checkpoint from a layout: unknown keys minus known keys."""
    return len(match.unexpected) - match.keys

"""A check of images with captions: faults, suspicious findings, and a summary."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from vitrail.data.checks.duplicates import same_files
from vitrail.data.checks.found import Found
from vitrail.data.groups import groups_in_several_splits
from vitrail.data.images.decode import decode
from vitrail.data.items import Issue
from vitrail.errors import DataError
from vitrail.tasks.captioning.images.captioned_images import CaptionContents, Captioned, paths_of
from vitrail.tasks.captioning.images.sources import read_captions


@dataclass(frozen=True)
class CaptionCheck(Found):
    """Result of a check of captions.

    Kinds of issues: ``missing-file`` and ``unreadable`` (images), ``leak`` (the same image in several splits), ``no-caption``,
    ``bad-image``, ``bad-annotation``, ``bad-row``. Kinds of notices: ``copy`` (the same image under several names),
    ``repeated`` (an image has the same caption more than once).
    """

    contents: CaptionContents
    issues: list[Issue]
    notices: list[Issue]

    @property
    def items(self) -> list[Captioned]:
        """Images of all splits."""
        return [item for items in self.contents.splits.values() for item in items]

    @property
    def captions(self) -> dict[str, float]:
        """Minimum, median and maximum number of captions of an image."""
        return _summary([len(item.target) for item in self.items])

    @property
    def words(self) -> dict[str, float]:
        """Minimum, median and maximum number of words of a caption."""
        return _summary([len(caption.split()) for item in self.items for caption in item.target])

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.contents.source,
            "images": len(self.items),
            "splits": {split: len(items) for split, items in self.contents.splits.items()},
            "captions": self.captions,
            "words": self.words,
            "left_out": self.contents.left_out,
            "notes": self.contents.notes,
            **self.listed,
        }

    def lines(self) -> Iterator[str]:
        yield f"source    {self.contents.source}"
        for split, items in self.contents.splits.items():
            yield f"{split:<8}  {sum(len(item.target) for item in items):,} captions of {len(items):,} images"
        for line in self.contents.notes:
            yield f"note      {line}"
        for reason, number in self.contents.left_out.items():
            if number:
                yield f"note      left out: {number:,} {reason}"
        for name, of in (("captions", self.captions), ("words", self.words)):
            yield f"{name:<8}  " + ", ".join(f"{which} {number:g}" for which, number in of.items())


def check_captions(
    data: str | Path,
    *,
    on_start: Callable[[int], None] = lambda count: None,
    on_image: Callable[[int], None] = lambda count: None,
) -> CaptionCheck:
    """Read captions as `open_captions` does, decode every image, and list all issues.

    ``on_start`` is called with the number of images, ``on_image`` with 1 after each.
    """
    contents = read_captions(data)
    places = [(split, item) for split, items in contents.splits.items() for item in items]
    issues = list(contents.issues)
    on_start(len(places))
    for _, item in places:
        try:
            decode(item.image)
        except DataError as error:
            issues.append(Issue("unreadable", item.name, error.what))
        on_image(1)
    notices = list(_repeated([item for _, item in places]))
    for group in same_files([item.image for _, item in places]):
        (split, item), *others = (places[place] for place in group)
        for other, copy in others:
            if other == split:
                notices.append(Issue("copy", copy.name, f"is the same image as {item.name}"))
            else:
                issues.append(Issue("leak", copy.name, f"is in {other}, and the same as {item.name} in {split}"))
    several = groups_in_several_splits(paths_of(contents.splits), contents.groups)
    issues += [Issue("group", contents.source, f"{group} is in the splits {', '.join(own)}") for group, own in several.items()]
    return CaptionCheck(contents, issues, notices)


def _repeated(items: list[Captioned]) -> Iterator[Issue]:
    for item in items:
        for caption, count in Counter(item.target).items():
            if count > 1:
                yield Issue("repeated", item.name, f"{count} times: {caption}")


def _summary(counts: list[int]) -> dict[str, float]:
    return {"min": min(counts), "median": median(counts), "max": max(counts)} if counts else {}

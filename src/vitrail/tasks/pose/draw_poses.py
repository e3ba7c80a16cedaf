"""Pictures written with the people that were found in them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from vitrail.data.images.box_preparation import Box
from vitrail.data.images.decode import decode
from vitrail.files import whole_folder
from vitrail.runtime.output import free_name, report_partial
from vitrail.runtime.terminal import note
from vitrail.tasks.pose.people.skeleton import Skeleton
from vitrail.tasks.pose.predictor import FoundPerson

Draw = Callable[..., Image.Image]
"""As `vitrail.tasks.pose.study.skeletons.draw_people`."""


@contextmanager
def drawn_pictures(out: Path, skeleton: Skeleton, draw: Draw) -> Iterator[Callable[[tuple[Path, Sequence[FoundPerson]]], None]]:
    """Write every picture upright with its skeletons and boxes as ``out/name.png``, the second of one name as ``name (2).png``.

    The folder is called `partial_of` its name until all are drawn, and stays so if anything fails. A line on stderr counts them.

    Args:
        out: must not exist.
        skeleton: the joints.
        draw: draws them.
    """
    count, used = len(skeleton.joints), set[str]()
    try:
        with whole_folder(out, replace=False, keep=True) as draft:

            def write(answered: tuple[Path, Sequence[FoundPerson]]) -> None:
                file, people = answered
                joints = np.array([person.joints for person in people]).reshape(-1, count, 2)
                scores = np.array([person.scores for person in people]).reshape(-1, count)
                picture, boxes = decode(file), [person.box for person in people]
                shown = [] if boxes == [Box.of_picture(picture.size)] else boxes  # which nobody gave
                draw(picture, joints, skeleton, scores, boxes=shown).save(draft / free_name(f"{file.stem}.png", used))

            yield write
    except BaseException:
        report_partial(out, f"{len(used):,} images with skeletons")
        raise
    note(f"{len(used):,} images with skeletons: {out}")

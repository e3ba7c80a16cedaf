"""Pictures written with the people that were found in them."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from vitrail.data.decode import decode
from vitrail.data.poses.people import Box
from vitrail.data.poses.skeleton import Skeleton
from vitrail.deploy.poses import FoundPerson
from vitrail.deploy.sorting import free_name
from vitrail.files import whole_folder

Draw = Callable[..., Image.Image]
"""As `vitrail.study.skeletons.draw_people`."""


def write_pictures(out: Path, answered: Sequence[tuple[Path, Sequence[FoundPerson]]], skeleton: Skeleton, draw: Draw) -> None:
    """Write every picture upright with its skeletons and boxes as ``out/name.png``, the second of one name as ``name (2).png``.

    The folder appears whole or not at all.

    Args:
        out: must not exist.
        answered: files, with the people that were found in each.
        skeleton: the joints.
        draw: draws them.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    count, used = len(skeleton.joints), set[str]()
    with whole_folder(out, replace=False) as draft:
        for file, people in answered:
            joints = np.array([person.joints for person in people]).reshape(-1, count, 2)
            scores = np.array([person.scores for person in people]).reshape(-1, count)
            picture = decode(file)
            boxes = [person.box for person in people]
            shown = [] if boxes == [Box.of_picture(picture.size)] else boxes  # which nobody gave
            draw(picture, joints, skeleton, scores, boxes=shown).save(draft / free_name(f"{file.stem}.png", used))

"""Drawn people whose joints are known, in COCO's format."""

import json
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

JOINTS = ("head", "left_shoulder", "right_shoulder", "left_hip", "right_hip", "left_hand", "right_hand")
LIMBS = ((0, 1), (0, 2), (1, 2), (1, 3), (2, 4), (3, 4), (1, 5), (2, 6))
COLOURS = ("white", "red", "green", "orange", "cyan", "magenta", "yellow")
"""Of the dots at joints, so that a network can tell them apart."""


def figure(random: np.random.Generator, width: int, height: int) -> np.ndarray:
    """Joints (7, 2) of a person who faces us, somewhere in a part of a picture."""
    shape = np.array([(0, 0), (1, 1), (-1, 1), (0.7, 3), (-0.7, 3), (2, 2), (-2, 2)], float)
    shape += random.uniform(-0.3, 0.3, shape.shape)
    size = random.uniform(0.5, 0.9) * min(width / 5, height / 4)
    return (shape * size + (width / 2, height / 6)).round(1)


def draw(picture: Image.Image, joints: np.ndarray) -> None:
    """Limbs in grey, a dot at each joint in a colour of its own."""
    pen, dot = ImageDraw.Draw(picture), max(1.0, np.ptp(joints[:, 1]) / 20)
    for one, other in LIMBS:
        pen.line([*joints[one], *joints[other]], fill="gray")
    for (x, y), colour in zip(joints, COLOURS, strict=True):
        pen.ellipse([x - dot, y - dot, x + dot, y + dot], fill=colour)


def write_people(folder: Path, count: int, *, size: tuple[int, int] = (60, 48), people: int = 1, seed: int = 0) -> Path:
    """So many pictures of this width and height with some people side by side in each; gives ``keypoints.json``."""
    random, (width, height), images, annotations = np.random.default_rng(seed), size, [], []
    for number in range(1, count + 1):
        picture = Image.new("RGB", size, "black")
        for place in range(people):
            joints = figure(random, width / people, height) + np.array([place * width / people, 0])
            draw(picture, joints)
            left, top = joints.min(axis=0) - 2
            box = [left, top, *(np.ptp(joints, axis=0) + 4)]
            flat = np.column_stack([joints, np.full(len(joints), 2)]).ravel().tolist()
            about = {"id": 10 * number + place, "image_id": number, "category_id": 1, "iscrowd": 0}
            annotations.append(
                {**about, "bbox": [float(side) for side in box], "area": float(box[2] * box[3]), "keypoints": flat}
            )
        picture.save(folder / f"{number}.png")
        images.append({"id": number, "file_name": f"{number}.png", "width": width, "height": height})
    category = {"id": 1, "name": "person", "keypoints": JOINTS, "skeleton": [[one + 1, other + 1] for one, other in LIMBS]}
    file = folder / "keypoints.json"
    file.write_text(json.dumps({"images": images, "annotations": annotations, "categories": [category]}))
    return file

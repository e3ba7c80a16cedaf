"""Check that a captioner looks at people where it writes of them.

    python benchmarks/looks.py RUN COCO

COCO is a folder with COCO's pictures and person_keypoints_*.json. A caption is written for each picture that has people; of
each word that means people, the share of its look that lies in their boxes stands beside the share of the picture that the boxes
are. The same is told of the words beside them in the captions, and of looks that belong to other pictures.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw
from side_by_side import table

from vitrail.tasks.captioning.predictor import Writer
from vitrail.tasks.captioning.scores import words

PEOPLE = {"man", "men", "woman", "women", "boy", "boys", "girl", "girls", "person", "people", "child", "children", "kid", "kids"}
PEOPLE |= {"player", "players", "skier", "skateboarder", "surfer", "rider", "biker", "climber", "runner", "guy", "lady", "baby"}
PEOPLE |= {"toddler", "crowd", "group", "family", "couple", "someone", "team"}


def boxes_of(folder: Path) -> dict[Path, list[list[float]]]:
    """The boxes of the people in each picture that has some."""
    found: dict[Path, list[list[float]]] = {}
    for file in sorted(folder.rglob("person_keypoints_*.json")):
        told = json.loads(file.read_text())
        names = {picture["id"]: picture["file_name"] for picture in told["images"]}
        for person in told["annotations"]:
            for place in folder.rglob(names[person["image_id"]]):
                found.setdefault(place, []).append(person["bbox"])
    return found


def covered(writer: Writer, picture: Path, boxes: list[list[float]]) -> np.ndarray:
    """Return the fraction of each patch that the boxes cover, as the model sees the picture: (rows, columns)."""
    with Image.open(picture) as image:
        mask = Image.new("RGB", image.size)
    pen = ImageDraw.Draw(mask)
    for x, y, width, height in boxes:
        pen.rectangle([x, y, x + width, y + height], fill="white")
    pixels = torch.from_numpy(writer.preparation.pixels(mask))[:1].float() / 255
    share: np.ndarray = torch.nn.functional.adaptive_avg_pool2d(pixels, writer.trained.config.encoder.grid)[0].numpy()
    return share


def main(model: str, folder: Path) -> str:
    """The table, in Markdown."""
    writer, boxes = Writer(model), boxes_of(folder)
    people: list[tuple[np.ndarray, np.ndarray]] = []
    others: list[tuple[np.ndarray, np.ndarray]] = []
    for picture, own in boxes.items():
        share = covered(writer, picture, own)
        (caption,) = writer.captions(torch.from_numpy(writer.preparation.pixels(picture))[None], attention=True)
        for word in caption.words:
            look: Any = word.look
            (people if PEOPLE & set(words(word.text)) else others).append((look / look.sum(), share))
    random = np.random.default_rng(0)
    elsewhere = [(people[place][0], share) for place, (_, share) in zip(random.permutation(len(people)), people, strict=True)]
    rows = []
    for name, found in {"words for people": people, "other words": others, "looks at other pictures": elsewhere}.items():
        inside = np.array([(look * share).sum() for look, share in found])
        area = np.array([share.mean() for _, share in found])
        each = np.median(inside[area > 0] / area[area > 0])
        rows.append([name, str(len(found)), f"{inside.mean():.3f}", f"{area.mean():.3f}", f"{inside.mean() / area.mean():.2f}"])
        rows[-1].append(f"{each:.2f}")
    return table(["looks of", "words", "in the boxes", "share of the picture", "times", "median"], rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a run of captioning")
    parser.add_argument("coco", type=Path, help="a folder with pictures and person_keypoints_*.json")
    given = parser.parse_args()
    print(main(given.model, given.coco))

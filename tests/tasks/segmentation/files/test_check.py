"""A check of masks finds what is wrong with them, and nothing else."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from masked import CLASSES, COLORS, drawn, indexed, picture_of, write_masks
from vitrail.errors import DataError
from vitrail.tasks.segmentation.files.check import check_masks


def kinds(issues):
    return [(issue.kind, issue.path.rpartition("/")[2]) for issue in issues]


def test_sound_data_has_no_issue_and_its_pixels_are_counted(tmp_path):
    seen = []
    found = check_masks(write_masks(tmp_path), on_start=seen.append, on_image=seen.append)
    assert found.issues == found.notices == [] and seen == [6, *[1] * 6]
    document = json.loads(json.dumps(found.to_json()))
    masks = np.stack([drawn(number) for number in range(4)])
    assert document["classes"] == [*CLASSES] and document["splits"] == {"train": 4, "val": 2} and document["images"] == 6
    assert document["pixels"]["train"] == {name: int((masks == number).sum()) for number, name in enumerate(CLASSES)}
    assert document["void"] == {"train": 4 * 2 * 36, "val": 2 * 2 * 36}
    assert document["images_of_class"]["val"] == dict.fromkeys(CLASSES, 2)
    lines = list(found.lines())
    assert any(line.startswith("sizes    1 different") for line in lines)
    share = (masks == 1).mean()
    assert any(line.startswith("disc") and f"{share:.2%} in 4" in line for line in lines)


def test_every_fault_of_an_image_or_a_mask_is_found(tmp_path):
    root = write_masks(tmp_path, train=9)
    masks, images = root / "train/masks", root / "train/images"
    (masks / "00.png").unlink()
    indexed(drawn(1, (36, 48))).save(masks / "01.png")
    wrong = drawn(2)
    wrong[:, 10:12], wrong[0, 20:23] = 77, 200
    Image.fromarray(wrong).save(masks / "02.png")
    (masks / "03.png").write_bytes((masks / "03.png").read_bytes()[:60])
    (images / "04.png").write_text("no image")
    Image.fromarray(np.where(np.arange(48) < 9, 255, np.ones((36, 48))).astype(np.uint8)).save(masks / "05.png")
    shutil.copy(images / "06.png", root / "val/images/00.png")
    found = check_masks(root)
    assert kinds(found.issues) == [
        ("no-mask", "00.png"), ("size", "01.png"), ("no-class", "02.png"), ("unreadable", "03.png"), ("unreadable", "04.png"),
        ("leak", "06.png"),
    ]  # fmt: skip
    texts = [issue.what for issue in found.issues]
    assert texts[1] == "the mask has 36×48 pixels, its image 48×36"
    assert texts[2] == "values of no class: 77 (72 pixels), 200 (3 pixels)"
    assert texts[5] == "the same image as val/images/00.png; in the splits train, val"
    assert kinds(found.notices) == [("one-class", "05.png")] and found.notices[0].what == "disc everywhere"


@pytest.mark.parametrize("mode", ["grey", "color"])
def test_the_wrong_values_of_a_jpeg_are_counted(mode, tmp_path):
    root = write_masks(tmp_path)
    (root / "train/masks/00.png").unlink()
    values = drawn(0)
    lossy = picture_of(values) if mode == "color" else Image.fromarray(values)
    lossy.save(root / "train/masks/00.jpg", quality=60)
    found = check_masks(root)
    assert kinds(found.issues) == [("jpeg", "00.jpg")]
    stored = np.asarray(Image.open(root / "train/masks/00.jpg")).reshape(36, 48, -1).astype(int)
    known = [*COLORS] if mode == "color" else [(0,), (1,), (2,), (255,)]
    wrong = int((~(stored[:, :, None] == np.array(known)).all(-1).any(-1)).sum())
    assert wrong > 50 and f": {wrong:,} of 1,728 pixels (" in found.issues[0].what


def test_a_palette_that_was_turned_to_colors_is_told_apart_from_a_table_of_colors(tmp_path):
    root = write_masks(tmp_path)
    indexed(drawn(0)).convert("RGB").save(root / "train/masks/00.png")
    found = check_masks(root)
    assert kinds(found.issues) == [("no-class", "00.png")] and "#000000 (72 pixels)" in found.issues[0].what  # void has no colour
    found = check_masks(root, ["#000000"])
    assert found.issues == [] and kinds(found.notices) == [("palette", "00.png")]  # the others are indexed
    (root / "classes.csv").write_text("index,name\n0,ground\n1,disc\n2,square\n")
    for found in (check_masks(root), (root / "classes.csv").unlink() or check_masks(root)):
        assert kinds(found.issues) == [("palette", "00.png")]
        assert (
            "the mask is RGB with 4 colours, and the classes are values: a palette was turned to colours" in found.issues[0].what
        )


def test_classes_that_never_occur_are_faults_where_they_are_learned(tmp_path):
    root = write_masks(tmp_path)
    (root / "classes.csv").write_text((root / "classes.csv").read_text() + "3,tree,,,\n")
    for file in (root / "val/masks").iterdir():
        Image.fromarray(np.where(drawn(0) == 2, 0, drawn(0))).save(file)
    found = check_masks(root)
    assert [(issue.kind, issue.path) for issue in found.issues] == [("missing-class", "train/tree")]
    assert [notice.path for notice in found.notices] == ["val/square", "val/tree"]


def test_one_class_everywhere_is_a_fault(tmp_path):
    root = write_masks(tmp_path)
    for file in root.glob("*/masks/*"):
        Image.new("L", (48, 36)).save(file)
    found = check_masks(root)
    assert ("one-class", root.name) in kinds(found.issues) and len([n for n in found.notices if n.kind == "one-class"]) == 6


def test_data_without_masks_cannot_be_checked(tmp_path):
    with pytest.raises(DataError, match="no masks found"):
        check_masks(tmp_path)

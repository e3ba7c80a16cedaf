"""COCO's instance format becomes a mask for each image."""

import json

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as peer
from pycocotools.coco import COCO

from vitrail.errors import DataError
from vitrail.tasks.segmentation.files.shapes import Drawing
from vitrail.tasks.segmentation.files.sources import open_masks, read_masks
from vitrail.training.runs.resuming import fingerprint

pytestmark = pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # pycocotools and NumPy 2
WIDTH, HEIGHT = 40, 30
CATEGORIES = [{"id": 7, "name": "dog"}, {"id": 3, "name": "cat"}]


def square(left, top, side):
    return [[left, top, left + side, top, left + side, top + side, left, top + side]]


def runs(mask, *, text):
    coded = peer.encode(np.asfortranarray(mask.astype(np.uint8)))
    if text:
        return {"size": coded["size"], "counts": coded["counts"].decode()}
    flat = mask.T.ravel()
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flat, [~flat[-1]]])))
    return {"size": [*mask.shape], "counts": np.diff([0, *edges]).tolist()}


def write(root, *annotations, images=2, name="instances.json"):
    root.mkdir(exist_ok=True)
    for number in range(images):
        Image.new("RGB", (WIDTH, HEIGHT), (number, 0, 0)).save(root / f"{number}.png")
    listed = [{"id": number, "file_name": f"{number}.png", "width": WIDTH, "height": HEIGHT} for number in range(images)]
    values = {
        "images": listed,
        "categories": CATEGORIES,
        "annotations": [{"id": number, "image_id": 0, "category_id": 3, **one} for number, one in enumerate(annotations, 1)],
    }
    (root / name).write_text(json.dumps(values))
    return root / name


def mask_in(file, number=0):
    data = open_masks(file, shares={"val": 0.5, "test": 0})
    return data.mask_of(next(item for item in data.split("all") if item.name == f"{number}.png"))


def test_background_comes_first_and_smaller_objects_lie_over_larger_ones(tmp_path):
    big, small = {"segmentation": square(5, 5, 20)}, {"segmentation": square(8, 8, 4), "category_id": 7}
    for order in ([big, small], [small, big]):
        file = write(tmp_path, *order)
        data = open_masks(file, shares={"val": 0.5, "test": 0})
        assert data.classes == ["background", "cat", "dog"]
        mask = mask_in(file)
        assert [int((mask == value).sum()) for value in range(3)] == [WIDTH * HEIGHT - 400, 384, 16] and mask[9, 9] == 2
        assert not mask_in(file, 1).any()  # nothing is annotated there


@pytest.mark.parametrize("text", [True, False])
def test_crowds_are_void_but_where_something_is_annotated(text, tmp_path):
    crowd = np.zeros((HEIGHT, WIDTH), bool)
    crowd[:, :10] = True
    file = write(tmp_path, {"segmentation": square(2, 2, 4)}, {"segmentation": runs(crowd, text=text), "iscrowd": 1})
    mask = mask_in(file)
    assert (mask[crowd] == 255).sum() == 10 * HEIGHT - 16 and (mask[2:6, 2:6] == 1).all() and not mask[~crowd].any()
    small = np.zeros((HEIGHT, WIDTH), bool)
    small[3:5, 3:5] = True
    annotations = {"segmentation": square(0, 0, 20)}, {"segmentation": runs(small, text=text), "iscrowd": 1}
    assert mask_in(write(tmp_path, *annotations)).sum() == 400  # also a crowd that is smaller
    file = write(tmp_path, {"segmentation": runs(crowd, text=text), "iscrowd": 1})
    assert "annotations of crowds, which are void: 1" in open_masks(file, shares={"val": 0.5, "test": 0}).notes


def test_masks_agree_with_pycocotools_but_for_borders(tmp_path):
    random = np.random.default_rng(0)
    blob = np.hypot(*(np.mgrid[:HEIGHT, :WIDTH] - np.array([20, 25])[:, None, None])) < 6
    parts = [random.uniform(0, 30, (3, 2)).ravel().tolist() for _ in range(2)]
    file = write(tmp_path, {"segmentation": parts, "bbox": [0, 0, 1, 1], "area": 1}, {"segmentation": runs(blob, text=True)})
    theirs = COCO(str(file))
    union = np.zeros((HEIGHT, WIDTH), bool)
    for annotation in theirs.loadAnns(theirs.getAnnIds(imgIds=0)):
        union |= theirs.annToMask(annotation).astype(bool)
    differs = mask_in(file).astype(bool) != union
    assert union.sum() > 20 and differs.mean() < 0.04 and not (differs & blob).any()


def test_splits_are_in_file_names_or_made(tmp_path):
    for split in ("train", "val"):
        write(tmp_path / split, {"segmentation": square(1, 1, 5)}, images=3)
        (tmp_path / "annotations").mkdir(exist_ok=True)
        (tmp_path / split / "instances.json").rename(tmp_path / f"annotations/instances_{split}.json")
    (tmp_path / "annotations/captions_val.json").write_text("{}")
    data = open_masks(tmp_path)
    assert {split: [item.name for item in items] for split, items in data.splits.items()} == {
        "train": [f"train/{number}.png" for number in range(3)], "val": [f"val/{number}.png" for number in range(3)], "test": []
    }  # fmt: skip
    assert data.notes == ("left out: 1 .json",) and data.mask_of(data.split("val")[0]).sum() == 25


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        ({"segmentation": square(1, 1, 3), "category_id": 9}, "category_id 9"),
        ({"segmentation": [[1, 2, 3, 4]]}, "not three points or more"),
        ({"segmentation": [[1, 2, 3, 4, 5, "x"]]}, "not three points or more"),
        ({"segmentation": {"size": [30, 40], "counts": [3, 4]}}, "its runs have 7 pixels"),
        ({"segmentation": {"size": [40, 30], "counts": [1200]}}, "no counts and the size"),
        ({"segmentation": {"size": [30, 40], "counts": "o"}}, "middle of a number"),
        ({"segmentation": square(1, 1, 3), "iscrowd": 2}, "iscrowd"),
    ],
)
def test_a_wrong_annotation_is_named(annotation, words, tmp_path):
    found = read_masks(write(tmp_path, {"segmentation": square(0, 0, 9)}, annotation))
    (issue,) = found.issues
    assert issue.kind == "bad-annotation" and issue.what.startswith("annotation 2: ") and words in issue.what


def test_a_run_depends_on_the_shapes_without_drawing_them(tmp_path, monkeypatch):
    shapes = [{"segmentation": square(0, 0, 9)}, {"segmentation": {"size": [HEIGHT, WIDTH], "counts": [0, 1200]}}]
    before, same = (fingerprint(open_masks(write(tmp_path, *shapes))) for _ in range(2))
    monkeypatch.setattr(Drawing, "open", lambda self: pytest.fail("drawn"))
    for change in ([shapes[0]], [{"segmentation": square(0, 0, 8)}, shapes[1]]):
        assert before == same != fingerprint(open_masks(write(tmp_path, *change)))


def test_missing_images_and_annotations_without_shapes_are_counted(tmp_path):
    file = write(
        tmp_path, {"segmentation": square(0, 0, 9)}, {"bbox": [0, 0, 1, 1]}, {"segmentation": square(0, 0, 1), "image_id": 1}
    )
    (tmp_path / "1.png").unlink()
    found = read_masks(file)
    assert [issue.kind for issue in found.issues] == ["missing"]
    assert found.notes == ("annotations without a segmentation: 1", "annotations of images that are not there: 1")


@pytest.mark.parametrize("values", [[], {"images": []}, {"images": [], "annotations": [], "categories": [{"name": "cat"}]}])
def test_other_json_is_refused(values, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(values))
    with pytest.raises(DataError) as refused:
        open_masks(tmp_path / "a.json")
    assert "COCO" in refused.value.hint

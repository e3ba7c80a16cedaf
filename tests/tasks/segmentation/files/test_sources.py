"""Images with masks from folders and tables, with their splits, or an error that says where it looked."""

import shutil

import numpy as np
import pytest
from PIL import Image

from masked import CLASSES, COLORS, drawn, indexed, picture_of, write_masks
from vitrail.errors import DataError
from vitrail.tasks.inspection import row_for
from vitrail.tasks.segmentation.files.sources import open_masks, read_masks


@pytest.mark.parametrize("inside", [False, True])
def test_splits_may_be_around_or_inside_of_images_and_masks(inside, tmp_path):
    data = open_masks(write_masks(tmp_path, inside=inside))
    assert {split: len(items) for split, items in data.splits.items()} == {"train": 4, "val": 2, "test": 0}
    assert data.classes == [*CLASSES] and data.colors == COLORS and data.void == 255 and data.notes == () and data.has_splits
    for split, first in (("train", 0), ("val", 100)):
        for number, item in enumerate(data.split(split)):
            assert np.array_equal(data.mask_of(item), drawn(first + number)) and item.name.endswith(f"{number:02}.png")
    assert data.split("val")[0].name == ("images/val/00.png" if inside else "val/images/00.png")


def test_folders_without_splits_are_split_and_names_may_differ_in_suffix_and_folder(tmp_path):
    write_masks(tmp_path / "all", train=30, val=0)
    root = tmp_path / "plain"
    shutil.move(tmp_path / "all/train", root)
    (root / "images").rename(root / "JPEGImages")
    (root / "masks").rename(root / "SegmentationClass")
    for file in (root / "JPEGImages").glob("0*.png"):
        Image.open(file).save(file.with_suffix(".jpg"))
        file.unlink()
    data = open_masks(root)
    assert [len(data.splits[split]) for split in ("train", "val", "test")] == [21, 3, 6]
    assert data.classes == ["0", "1", "2"] and "no classes.csv: the classes are the 3 values" in data.notes[0]
    again = open_masks(root, assignment=data.assignment)
    assert again.splits == data.splits and open_masks(root, split_seed=1).splits != data.splits
    assert all(np.array_equal(data.mask_of(item), drawn(int(item.name[-6:-4]))) for item in data.split("all"))


def test_a_table_lists_images_masks_and_splits(tmp_path):
    write_masks(tmp_path)
    (tmp_path / "list.csv").write_text(
        "image,mask,split\ntrain/images/00.png,train/masks/00.png,train\ntrain/images/01.png,train/masks/01.png,val\n"
    )
    data = open_masks(tmp_path / "list.csv")
    assert [item.name for item in data.split("all")] == ["train/images/00.png", "train/images/01.png"]
    assert data.classes == [*CLASSES] and np.array_equal(data.mask_of(data.split("val")[0]), drawn(1))
    for split in ("train", "val"):
        (tmp_path / split).rename(tmp_path / f"{split}_pictures")
    (tmp_path / "list.csv").write_text((tmp_path / "list.csv").read_text().replace("train/", "train_pictures/"))
    assert len(open_masks(tmp_path).split("all")) == 2  # found in its folder


def test_wrong_rows_are_listed_with_their_lines(tmp_path):
    write_masks(tmp_path)
    rows = ["00.png,gone.png", "09.png,00.png", ",00.png", "01.png,01.png", "01.png,02.png", "02.png"]
    names = [
        ",".join(f"train/{kind}/{name}" if name else "" for kind, name in zip(("images", "masks"), row.split(","), strict=False))
        for row in rows
    ]
    (tmp_path / "list.csv").write_text("\n".join(["image,mask", *names, "train/images/03.png,"]))
    found = read_masks(tmp_path / "list.csv")
    assert [issue.path.rpartition(":")[2] for issue in found.issues] == ["2", "3", "4", "6", "7"]
    assert "there is no file" in found.issues[0].what and "listed twice" in found.issues[3].what
    assert [item.mask is None for item in found.splits["all"]] == [False, True]
    with pytest.raises(DataError, match=r"gone.png.*4 more faults"):
        open_masks(tmp_path / "list.csv")


def test_a_table_without_a_right_row_names_the_first_wrong_one(tmp_path):
    (tmp_path / "list.csv").write_text("image,mask\ncat.jpg,cat.png\ndog.jpg,dog.png\n")
    with pytest.raises(DataError, match=r"no masks found; .*list.csv:2: there is no file .*cat.jpg"):
        open_masks(tmp_path)


def test_an_image_without_a_mask_stays_and_a_mask_without_an_image_is_counted(tmp_path):
    root = write_masks(tmp_path)
    (root / "train/masks/01.png").unlink()
    (root / "train/images/02.png").unlink()
    (root / "val/notes.txt").write_text("")
    (root / "val/images/notes.txt").write_text("")
    data = open_masks(root)
    assert [item.name[-6:] for item in data.split("train") if item.mask is None] == ["01.png"]
    assert data.notes == ("left out: 1 .txt, 1 mask without an image",)
    with pytest.raises(DataError, match="the image has no mask") as refused:
        data.mask_of(data.split("train")[1])
    assert refused.value.where == "train/images/01.png"


def test_a_split_without_masks_is_left_out_with_a_note(tmp_path):
    root = write_masks(tmp_path)
    (root / "test/images").mkdir(parents=True)
    picture_of(drawn(7)).save(root / "test/images/0.png")
    data = open_masks(root)
    assert not data.splits["test"] and data.notes == ("no image in test/images has a mask of its name: the folder is left out",)


def test_two_masks_of_one_image_are_refused(tmp_path):
    root = write_masks(tmp_path)
    indexed(drawn(1)).save(root / "train/masks/00.gif")
    with pytest.raises(DataError, match=r"00.gif and 00.png|00.png and 00.gif"):
        open_masks(root)


@pytest.mark.parametrize("kind", ["nothing", "images alone", "other names"])
def test_without_masks_it_says_where_it_looked(kind, tmp_path):
    root = write_masks(tmp_path / "data") if kind != "nothing" else tmp_path
    if kind == "images alone":
        for split in ("train", "val"):
            shutil.rmtree(root / split / "masks")
    elif kind == "other names":
        for file in root.glob("*/masks/*"):
            file.rename(file.with_name(f"{file.stem}_mask.png"))
    with pytest.raises(DataError, match="no masks found") as refused:
        open_masks(root)
    assert refused.value.where == root and refused.value.exit_code == 3
    assert "masks/ beside images/" in refused.value.hint and "image,mask" in refused.value.hint and "COCO" in refused.value.hint
    if kind == "other names":
        assert "train/images has a mask of its name" in refused.value.what


@pytest.mark.parametrize(("name", "words"), [("gone", "no data at"), ("image.png", "holds no masks")])
def test_a_source_that_cannot_be_masks(name, words, tmp_path):
    Image.new("L", (2, 2)).save(tmp_path / "image.png")
    with pytest.raises(DataError, match=words):
        open_masks(tmp_path / name)


def test_a_class_list_that_does_not_fit_is_named_with_the_mask(tmp_path):
    root = write_masks(tmp_path)
    (root / "classes.csv").write_text("index,name\n0,ground\n1,disc\n")
    data = open_masks(root)
    with pytest.raises(DataError, match=r"the mask of train/images/00.png: the value 2 of \d+ pixels is of no class") as refused:
        data.mask_of(data.split("train")[0])
    assert refused.value.where == root / "train/masks/00.png"


def test_void_is_chosen_and_belongs_to_what_a_run_depends_on(tmp_path):
    root = write_masks(tmp_path)
    plain, data = open_masks(root), open_masks(root, void=["square"])
    assert data.classes == ["ground", "disc"] and plain.kind != data.kind
    mask = drawn(0)
    assert np.array_equal(data.mask_of(data.split("train")[0]), np.where(mask == 2, 255, mask))


def test_classes_of_a_model_are_matched_by_name(tmp_path):
    data = open_masks(write_masks(tmp_path)).matched(["square", "tree", "disc", "ground"])
    mask = data.mask_of(data.split("train")[0])
    assert np.array_equal(mask, np.array([3, 2, 0, *[255] * 253], np.uint8)[drawn(0)])
    assert data.colors[0] == COLORS[2] and len(data.colors) == 4


def test_data_with_masks_is_recognized(tmp_path):
    root = write_masks(tmp_path / "a")
    (root / "list.csv").write_text("image,mask\n")
    assert {row_for(str(place)).name for place in (root, write_masks(tmp_path / "b", inside=True), root / "list.csv")} == {
        "segment"
    }
    (root / "list.csv").write_text("image,label\n")
    classes = tmp_path / "c"
    for name in ("images", "labels"):
        (classes / name).mkdir(parents=True)
        Image.new("L", (4, 4)).save(classes / name / "0.png")
    assert row_for(str(root / "list.csv")).name == row_for(str(classes)).name == "classification"

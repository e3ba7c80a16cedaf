"""Images with captions: tables, COCO's format, splits by image, and what is refused."""

import csv
import json
import shutil

import pytest

from captioned import write_captions
from vitrail.errors import DataError
from vitrail.tasks.captioning.images.sources import open_captions, read_captions, tells_captions


@pytest.fixture
def table(tmp_path):
    return write_captions(tmp_path)


def as_coco(table, name="captions_train2017.json", **changes):
    """The same data in COCO's format, beside the table."""
    lines = [line.split(",", 1) for line in table.read_text().splitlines()[1:]]
    names = list(dict.fromkeys(name for name, _ in lines))
    values = {
        "images": [{"id": 10 + place, "file_name": name} for place, name in enumerate(names)],
        "annotations": [
            {"id": place, "image_id": 10 + names.index(name), "caption": caption.strip('"')}
            for place, (name, caption) in enumerate(lines)
        ],
        **changes,
    }
    file = table.parent / name
    file.write_text(json.dumps(values))
    return file


def test_a_table_has_a_line_for_each_caption_and_an_image_is_in_one_split_with_all_of_them(table):
    data = open_captions(table)
    assert {split: len(items) for split, items in data.splits.items()} == {"train": 21, "val": 4, "test": 7}
    items = data.split("all")
    assert len({item.name for item in items}) == 32 and all(len(item.target) == 2 for item in items)
    first = next(item for item in items if item.name == "00.png")
    assert first.target == ("A red circle on the left.", "there is a circle, and it is red")
    assert open_captions(table).splits == data.splits
    assert open_captions(table, split_seed=1).splits != data.splits
    other = open_captions(table, shares={"test": 0.0, "val": 0.25})
    assert {split: len(items) for split, items in other.splits.items()} == {"train": 24, "val": 8, "test": 0}
    assert open_captions(table, assignment=data.assignment).splits == data.splits


def test_cocos_format_says_the_same(table):
    expected = open_captions(table)
    file = as_coco(table)
    assert open_captions(file).splits == expected.splits
    table.unlink()
    file.rename(file.with_name("captions.json"))
    assert open_captions(table.parent).splits == expected.splits


def test_a_list_of_images_with_a_caption_each_says_the_same(table):
    with table.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    (table.parent / "captions.json").write_text(json.dumps(rows))
    assert open_captions(table.parent / "captions.json").splits == open_captions(table).splits


def test_a_folder_may_have_a_file_for_each_split_and_images_beside_them(table):
    lines = table.read_text().splitlines()
    (table.parent / "images").mkdir()
    for picture in table.parent.glob("*.png"):
        shutil.move(picture, table.parent / "images")
    for split, part in (("train", lines[1:41]), ("valid", lines[41:])):
        (table.parent / f"captions_{split}.csv").write_text("\n".join([lines[0], *part]) + "\n")
    table.unlink()
    data = open_captions(table.parent)
    assert {split: len(items) for split, items in data.splits.items()} == {"train": 20, "val": 12, "test": 0}
    assert data.assignment is None and data.has_splits


def lay(table, *names):
    """The folder of the table, in whose place are files of these names, each with its share of the images."""
    header, *lines = table.read_text().splitlines()
    table.unlink()
    (table.parent / "images").mkdir()
    for picture in table.parent.glob("*.png"):
        shutil.move(picture, table.parent / "images")
    for place, name in enumerate(names):
        file = table.parent / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("\n".join([header, *lines[2 * place :: 2 * len(names)]]) + "\n")
        if file.suffix == ".json":
            as_coco(file, file.name)
    return table.parent


def test_hidden_files_are_passed_over(table):
    expected = open_captions(table).splits
    (table.parent / "annotations").mkdir()
    for name in ("._captions.csv", ".captions_train.json", "annotations/._captions_val2017.json"):
        (table.parent / name).write_bytes(b"\x00\x05\x16\x07")
    assert open_captions(table.parent).splits == expected


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["annotations/captions_train2017.json", "annotations/captions_val2014.json"], ["train", "val"]),
        (["Captions-TRAIN.csv", "captions.valid.csv", "captions (test 2).csv"], ["train", "val", "test"]),
        (["captions_latest.csv"], ["all"]),
        (["captions_train_val.csv"], ["all"]),
    ],
)
def test_a_split_is_a_whole_word_of_a_files_name_perhaps_with_a_number_behind_it(table, names, splits):
    found = read_captions(lay(table, *names))
    assert sorted(found.splits) == sorted(splits) and not found.issues


@pytest.mark.parametrize(
    ("names", "unclear", "beside"),
    [
        (["captions.csv", "captions_test.csv"], "captions.csv", "captions_test.csv"),
        (["captions_train_val.json", "captions_test.csv"], "captions_train_val.json", "captions_test.csv"),
        (["captions.csv", "captions_latest.csv"], "captions.csv and captions_latest.csv", ""),
        ([f"{number}.csv" for number in range(30)], "0.csv, 1.csv, 2.csv, 3.csv and 26 more", ""),
    ],
)
def test_a_file_whose_split_is_not_clear_is_refused_by_name_and_never_dropped(table, names, unclear, beside):
    with pytest.raises(DataError) as error:
        read_captions(lay(table, *names))
    assert error.value.what == f"it is not clear which split is meant by {unclear}{beside and ', beside '}{beside}"
    assert error.value.where == table.parent and "train, val or test" in error.value.hint


def test_cocos_other_files_of_the_same_images_are_passed_over(table):
    folder = lay(table, "annotations/captions_train2017.json", "annotations/captions_val2017.json")
    for name in ("instances_train2017", "instances_val2017", "person_keypoints_train2017", "person_keypoints_val2017"):
        (folder / "annotations" / f"{name}.json").write_text("{}")
    assert [len(items) for items in read_captions(folder).splits.values()] == [16, 16]


def test_quotation_marks_are_part_of_the_sentence_between_tabs(table):
    captions = ['"Stop" stands on the sign', 'A "red', 'a 5" screen, "', '"']
    around = {'"red, round"': "red, round", '"He said ""stop"""': 'He said "stop"', '"Stop" or "go"': '"Stop" or "go"'}
    lines = [f"{place:02}.png\t{caption}" for place, caption in enumerate([*captions, *around])]
    table.write_text("\n".join(["image\tcaption", *lines]) + "\n")
    found = [item.target for item in read_captions(table).splits["all"]]
    assert found == [(caption,) for caption in [*captions, *around.values()]]


def test_copies_of_an_image_are_in_the_same_split(table):
    rows = []
    for copy in range(3):
        for number in range(0, 32, 4):
            shutil.copy(table.parent / f"{number:02}.png", table.parent / f"copy{copy}-{number:02}.png")
            rows.append(f"copy{copy}-{number:02}.png,the same once more")
    table.write_text(table.read_text() + "\n".join(rows) + "\n")
    for seed in range(5):
        split_of = open_captions(table, split_seed=seed).assignment
        for number in range(0, 32, 4):
            names = [f"{number:02}.png", *(f"copy{copy}-{number:02}.png" for copy in range(3))]
            assert len({split_of[name] for name in names}) == 1


def test_an_image_in_two_splits_is_refused_and_so_is_a_copy(table):
    lines = table.read_text().splitlines()
    rows = [f"{line},{('train', 'val')[place % 2]}" for place, line in enumerate(lines[1:])]
    table.write_text("\n".join(["image,caption,split", *rows]) + "\n")
    with pytest.raises(DataError, match=r"the image 00\.png is in the splits train and val"):
        open_captions(table)
    shutil.copy(table.parent / "00.png", table.parent / "copy.png")
    table.write_text("image,caption,split\n00.png,one,train\n01.png,two,train\ncopy.png,three,test\n")
    with pytest.raises(DataError, match="the same is in"):
        open_captions(table)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("image,caption\n00.png\n", "1 cells for 2 columns"),
        ("image,caption\n00.png,\n", "the caption is empty"),
        ("image,caption\n,words\n", "no image is named"),
        ("image,caption\nnothing.png,words\n", "there is no such image"),
        ("image,caption,split\n00.png,words,elsewhere\n", "none of train, val, test"),
        ("image,label\n00.png,words\n", "no column is called 'caption'"),
        ("picture;caption\n00.png;one, two\n", "no column is called 'image'; there are 'picture', 'caption'"),
        ("image,caption\n", "no captions found"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(table, content, message):
    table.write_text(content)
    with pytest.raises(DataError, match=message):
        open_captions(table)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": None}, "no images and annotations"),
        ({"annotations": [{"image_id": 3, "caption": "words"}]}, "there is no image 3"),
        ({"annotations": [{"image_id": 10}]}, "it has no caption"),
        ({"images": [{"id": 1}]}, "has no file_name"),
        ({"images": [{"file_name": "00.png"}]}, "no id of its own"),
        ({"annotations": []}, "no captions found"),
    ],
)
def test_what_is_wrong_with_a_file_of_cocos_is_said(table, changes, message):
    with pytest.raises(DataError, match=message):
        open_captions(as_coco(table, **changes))


def test_images_without_captions_are_left_out_and_told(table):
    values = json.loads(as_coco(table).read_text())
    file = as_coco(table, annotations=values["annotations"][:-4])
    data = open_captions(file)
    assert len(data.split("all")) == 30 and data.notes == ("left out: 2 images without a caption",)


def test_all_faults_are_found_at_once(table):
    table.write_text("image,caption\nnothing.png,words\n00.png,\n01.png\n")
    assert [issue.kind for issue in read_captions(table).issues] == ["bad-row", "no-caption", "missing-file"]


def test_no_data_is_said(tmp_path):
    for place, message in ((tmp_path / "nothing.csv", "no data at"), (tmp_path, "no file of captions in")):
        with pytest.raises(DataError, match=message):
            open_captions(place)
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(DataError, match="holds no captions"):
        open_captions(tmp_path / "photo.jpg")


@pytest.fixture
def named_alike(table):
    """Two files whose images are other ones with the same names."""
    (table.parent / "annotations").mkdir()
    for split in ("train2017", "val2017"):
        (table.parent / split).mkdir()
        for picture in table.parent.glob("*.png"):
            (table.parent / split / picture.name).write_bytes(picture.read_bytes() + split.encode())
        as_coco(table, f"captions_{split}.json").rename(table.parent / "annotations" / f"captions_{split}.json")
    table.unlink()
    return table.parent


def test_an_image_is_left_out_and_another_of_the_same_name_stays(named_alike):
    data = open_captions(named_alike)
    assert {item.name for item in data.split("all")} == {f"{split}/{n:02}.png" for split in ("train", "val") for n in range(32)}
    kept = data.without({"val/03.png"})
    assert [len(kept.splits[split]) for split in ("train", "val")] == [32, 31]
    assert "train/03.png" in {item.name for item in kept.splits["train"]}


def test_what_a_run_is_resumed_by_is_as_it_was_before_names_were_told_apart(named_alike):
    data = open_captions(named_alike)
    first = data.splits["val"][0]
    assert first.name == "val/00.png" and data.identity(first) == ("00.png", first.target)
    kept = data.without({"03.png"})  # as an earlier version wrote it, and left out both
    assert [len(kept.splits[split]) for split in ("train", "val")] == [31, 31]


def test_a_split_of_training_images_is_repeated_where_another_file_has_the_same_names(named_alike):
    annotations = named_alike / "annotations"
    (annotations / "captions_val2017.json").rename(annotations / "captions_test2017.json")
    (named_alike / "val2017").rename(named_alike / "test2017")
    data = open_captions(named_alike)
    assert data.assignment.keys() == {f"{number:02}.png" for number in range(32)}
    again = open_captions(named_alike, split_seed=7, assignment=data.assignment)
    assert again.splits == data.splits and len({item.name for item in data.split("all")}) == 64


def test_flickrs_list_without_a_header_is_read_and_found_by_its_form(table):
    captions = {line.split(",", 1)[0]: line.split(",", 1)[1] for line in table.read_text().splitlines()[1:]}
    other = table.with_name("token.txt")
    other.write_text("\ufeff" + "".join(f"{name}#0\t{caption}\r\n" for name, caption in captions.items()) + "\n")
    assert tells_captions(other) and len(read_captions(other).splits["all"]) == 32
    other.write_text("00.png#0\tA dog .\n01.png\tA cat .\n")
    (issue,) = read_captions(other).issues
    assert (issue.kind, issue.path) == ("bad-row", f"{other}:2")


@pytest.mark.parametrize("name", ["Flickr8k.token.txt", "results_20130124.token"])
def test_a_folder_may_hold_captions_as_flickrs_sets_have_them(table, name):
    names = sorted(file.name for file in table.parent.glob("*.png"))
    table.unlink()
    (table.parent / "readme.txt").write_text("x")
    (table.parent / name).write_text("".join(f"{one}#{number}\ta dog .\n" for one in names for number in range(5)))
    lemmas = table.parent / "Flickr8k.lemma.token.txt"
    lemmas.write_text(f"{names[0]}#0\tdog .\n")
    assert len(open_captions(table.parent).split("all")) == len(names)
    lemmas.unlink()
    (table.parent / name).unlink()
    with pytest.raises(DataError, match=r"no file of captions in .*, which holds 32 \.png, 1 \.txt"):
        open_captions(table.parent)


@pytest.mark.parametrize(
    ("header", "expected"),
    [("image,caption,category", True), ("image,caption,label", False), ("image,text,category", False)],
)
def test_a_category_beside_a_caption_does_not_make_labels_of_captions(tmp_path, header, expected):
    (tmp_path / "captions.csv").write_text(header + "\n")
    assert tells_captions(tmp_path / "captions.csv") is expected

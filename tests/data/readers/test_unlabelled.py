"""Images without labels."""

import pytest

from data.folders import fill, flat
from vitrail.data.readers.sources import image_files, open_data
from vitrail.data.readers.unlabelled import open_unlabelled, unlabelled_items
from vitrail.tasks.captioning.images.sources import open_captions
from vitrail.tasks.translation.pairs import open_pairs


def counts(data) -> dict[str, int]:
    return {split: len(items) for split, items in data.splits.items()}


def test_items_of_a_folder_of_images_and_of_one_image(pictures):
    file = pictures / "red" / "0.png"
    assert [item.name for item in unlabelled_items(pictures / "red", 3)] == ["0.png", "4.png", "7.png"]
    assert [item.name for item in unlabelled_items(file, 3)] == ["0.png"]
    assert unlabelled_items(pictures, 3) == unlabelled_items("digits", 3) == []


def test_an_image_beside_the_splits_makes_no_training_images_of_the_others(tmp_path):
    for split, count in (("train", 4), ("val", 2), ("test", 3)):
        fill(tmp_path / split, count)
    assert counts(open_unlabelled(tmp_path)) == {"train": 4, "val": 2, "test": 3}
    fill(tmp_path, 1)
    fill(tmp_path / "extras", 2)
    data = open_unlabelled(tmp_path)
    assert counts(data) == {"train": 4, "val": 2, "test": 3}
    assert data.notes == ("left out: 3 images outside the splits",)


def test_a_folder_of_training_images_alone_is_a_split_beside_an_image_and_none_beside_other_folders(tmp_path):
    fill(tmp_path / "Train", 10)
    fill(tmp_path, 1)
    assert counts(open_unlabelled(tmp_path)) == {"train": 9, "val": 1, "test": 0}
    fill(tmp_path / "plane", 9)
    data = open_unlabelled(tmp_path)
    assert len(data.split("all")) == 20 and data.notes == ()


def test_links_to_folders_are_followed_where_those_to_classes_and_splits_are(tmp_path):
    store = flat(tmp_path / "store", cat=2, dog=2)
    root = flat(tmp_path / "flat", cat=1)
    (root / "dog").symlink_to(store / "dog")
    (root / "cat" / "more").symlink_to(store / "cat")
    labelled, unlabelled, files = open_data(root), open_unlabelled(root), image_files([str(root)])
    expected = ["cat/0.png", "dog/0.png", "dog/1.png"]
    assert [file.relative_to(root).as_posix() for file in files] == expected
    for data in (labelled, unlabelled):
        assert sorted(item.name for item in data.split("all")) == expected
        assert data.notes == ("left out: 1 linked folder",)
    splits = flat(tmp_path / "splits" / "train", cat=1).parent
    (splits / "train" / "dog").symlink_to(store / "dog")
    (splits / "val").symlink_to(store)
    assert counts(open_unlabelled(splits)) == counts(open_data(splits)) == {"train": 3, "val": 4, "test": 0}


def test_a_link_that_leads_around_in_a_circle_is_not_followed(tmp_path):
    root = flat(tmp_path / "photos", cat=2, dog=2)
    (root / "again").symlink_to(root)
    (root / "above").symlink_to(tmp_path)
    for data in (open_data(root), open_unlabelled(root)):
        assert len(data.split("all")) == 4 and data.notes == ("left out: 2 linked folders",)
    assert len(image_files([str(root)])) == 4


@pytest.mark.parametrize(
    ("lines", "opened"),
    [
        ("image,caption\n0.png,a dog\n1.png,a cat", lambda root: open_captions(root)),
        ("image,label\n0.png,dog\n1.png,cat", lambda root: open_data(root)),
        ("en,de\na dog,ein Hund\na cat,eine Katze", lambda root: open_pairs(root, ("en", "de"))),
    ],
)
def test_what_a_folder_with_a_table_has_beside_it_is_counted_for_every_kind_of_data(tmp_path, lines, opened):
    fill(tmp_path, 3)
    (tmp_path / "train.csv").write_text(lines)
    (tmp_path / "film.MP4").write_bytes(b"x")
    images = "3 images that no table names" if lines.startswith("en") else "1 image that no table names"
    counted = {f"left out: {images}, 1 .mp4", f"left out: 1 .mp4, {images}"}
    assert counted & set(opened(tmp_path).notes)

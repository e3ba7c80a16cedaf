"""Images of one site, animal or video are in one split."""

import json

import numpy as np
import pytest
from PIL import Image

from data.folders import fill
from vitrail.data.checks.check import check_data
from vitrail.data.groups import assign_groups, joined_groups
from vitrail.data.readers.sources import open_data
from vitrail.errors import DataError
from vitrail.tasks.captioning.images.check import check_captions
from vitrail.tasks.captioning.images.sources import open_captions

COUNT, SITES = 60, 12


def table(folder, header, rows, name="labels.csv"):
    fill(folder, len(rows))
    file = folder / name
    file.write_text("\n".join([header, *(f"{i}.png,{row}" for i, row in enumerate(rows))]))
    return file


def rows(count=COUNT, sites=SITES):
    return [f"{'cat' if i % 3 else 'dog'},site {i % sites}" for i in range(count)]


def sites_of(data, sites=SITES):
    return {split: {int(item.name.split(".")[0]) % sites for item in items} for split, items in data.splits.items() if items}


@pytest.mark.parametrize("header", ["image,label,group", "image,label,Group", "image,label,site"])
def test_a_seeded_split_keeps_each_group_in_one_split_near_the_shares(tmp_path, header):
    column = None if "roup" in header else "site"
    file = table(tmp_path, header, rows())
    data = open_data(file, group=column)
    sites = sites_of(data)
    assert set(sites) == {"train", "val", "test"} and sum(map(len, sites.values())) == len(set().union(*sites.values())) == SITES
    assert 5 <= len(data.splits["val"]) <= 10 and 10 <= len(data.splits["test"]) <= 15
    assert all(min(data.counts(split)) > 0 for split in ("train", "test"))
    assert any(note.startswith("groups, each in one split: train") for note in data.notes)
    assert open_data(file, group=column).splits == data.splits != open_data(file, group=column, split_seed=3).splits


def test_captions_keep_groups_together_too(tmp_path):
    file = table(tmp_path, "image,caption,group", [f"a cat,site {i % SITES}" for i in range(COUNT)], "captions.csv")
    sites = sites_of(open_captions(file))
    assert sum(map(len, sites.values())) == len(set().union(*sites.values())) == SITES and set(sites) == {"train", "val", "test"}


def test_captions_of_one_name_in_two_splits_have_groups_of_their_own(tmp_path):
    for split in ("train", "val"):
        table(tmp_path / split, "image,caption,group", [f"a {split} cat {i},{split} {i}" for i in range(4)], "captions.csv")
        for file in (tmp_path / split).glob("*.png"):
            file.write_bytes(file.read_bytes() + split.encode())  # no copies of each other
    assert not check_captions(tmp_path).issues
    assert not any("several splits" in note for note in open_captions(tmp_path).notes)


def test_captions_without_the_column_that_is_named_are_refused(tmp_path):
    fill(tmp_path, 2)
    images = [{"id": i, "file_name": f"{i}.png"} for i in range(2)]
    values = {"images": images, "annotations": [{"id": i, "image_id": i, "caption": "a cat"} for i in range(2)]}
    (tmp_path / "captions.json").write_text(json.dumps(values))
    with pytest.raises(DataError, match="the data has no column 'site' of groups"):
        open_captions(tmp_path / "captions.json", group="site")


def test_groups_of_images_with_several_labels_stay_together_whatever_the_combinations(tmp_path):
    own = [",".join(str(n >> bit & 1) for bit in range(4)) + f",site {n % 5}" for n in range(16)]
    data = open_data(table(tmp_path, "image,a,b,c,d,group", own))
    sites = sites_of(data, 5)
    assert sum(map(len, sites.values())) == len(set().union(*sites.values())) == 5


def test_a_group_in_several_splits_of_the_datas_own_is_a_fault_and_a_warning(tmp_path):
    own = [
        f"{'cat' if i % 2 else 'dog'},{split},site {i // 2 % 3}"
        for i, split in enumerate(["train"] * 8 + ["val"] * 4 + ["test"] * 2)
    ]
    file = table(tmp_path, "image,label,split,group", own)
    found = check_data(file)
    assert next(issue.what for issue in found.issues if issue.kind == "group") == "site 0 is in the splits train, test"
    assert any("groups are in several splits" in note for note in open_data(file).notes)
    captions = table(tmp_path / "c", "image,caption,split,group", ["a cat,train,x", "a dog,val,x"], "captions.csv")
    assert [issue.kind for issue in check_captions(captions).issues] == ["group"]


def test_near_copies_of_data_to_be_split_are_told_of_groups(tmp_path):
    file = table(tmp_path, "image,label", ["cat", "dog"] * 4)
    noise = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    Image.fromarray(noise).resize((64, 64)).save(tmp_path / "0.png")
    Image.fromarray(noise).resize((64, 64)).resize((48, 48)).save(tmp_path / "2.png")
    (notice,) = [one.what for one in check_data(file).notices if one.kind == "near-duplicate"]
    assert "may be put into different splits" in notice


def test_a_column_that_sorts_labels_is_no_column_of_groups_and_a_named_one_that_cannot_divide_is_refused(tmp_path):
    file = table(tmp_path, "image,label,group", [f"{name},{kind}" for name, kind in [("cat", "mammal"), ("owl", "bird")] * 10])
    data = open_data(file)
    assert all(data.splits.values()) and any("does not divide the data" in note for note in data.notes)
    with pytest.raises(DataError, match="2 groups cannot be divided"):
        open_data(file, group="group")
    with pytest.raises(DataError, match="no column is called 'site'; there are 'image', 'label', 'group'"):
        open_data(file, group="site")
    with pytest.raises(DataError, match="the data has no column 'site' of groups"):
        open_data("digits", group="site")


def test_copies_join_groups_and_labels_stay_in_training():
    assert joined_groups(list("abcde"), {"a": "x", "b": "x", "c": "y"}, [[1, 2]]) == [[0, 1, 2], [3], [4]]
    labels = [0] * 10 + [1]
    groups = [[2 * i, 2 * i + 1] for i in range(5)] + [[10]]
    for seed in range(20):
        split = assign_groups(labels, groups, {"test": 0.2, "val": 0.1}, seed)
        assert split[10] == "train" and {"test", "val"} <= set(split)
        assert all(split[2 * i] == split[2 * i + 1] for i in range(5))

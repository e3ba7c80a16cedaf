"""Images that are not there are compared with those that are."""

import pytest

from data.folders import fill
from vitrail.data.readers.sources import read_data
from vitrail.tasks.captioning.images.sources import read_captions
from vitrail.tasks.pose.files.sources import read_people


def faults(folder, names, header="image,label", read=read_data):
    file, rest = folder / "table.csv", ",".join(["1"] * header.count(","))
    file.write_text("\n".join([header, *(f"{name},{rest}" for name in names)]))
    return [issue.what for issue in read(file).issues]


READERS = pytest.mark.parametrize(
    ("header", "read"), [("image,label", read_data), ("image,caption", read_captions), ("image,nose_x,nose_y", read_people)]
)


@READERS
@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("IMG_1.PNG", "img_1.png"),
        ("img_1.jpg", "img_1.png"),
        ("img_001.png", "img_1.png"),
        ("7.png", "0007.png"),
        ("elsewhere/0007.png", "0007.png"),
        ("https://example.org/a/0007.png?size=2", "0007.png"),
        ("C:\\Users\\bob\\0007.png", "0007.png"),
    ],
)
def test_the_near_file_is_named(tmp_path, header, read, name, near):
    fill(tmp_path, 1)
    for own in ("img_1.png", "0007.png"):
        (tmp_path / own).write_bytes((tmp_path / "0.png").read_bytes())
    (what,) = faults(tmp_path, ["0.png", name], header, read)
    assert f"there is {near}" in what and ("URL" in what) == name.startswith("https")


@READERS
@pytest.mark.parametrize("prefix", ["/home/bob/data/", "D:\\bob\\data\\", "https://example.org/data/", "data/set/"])
def test_a_folder_that_all_names_begin_with_and_the_disk_lacks_is_said_once(tmp_path, header, read, prefix):
    fill(tmp_path / "photos" / "deep", 4)
    (what,) = faults(tmp_path, [f"{prefix}{i}.png" for i in range(4)], header, read)
    assert "none of the 4 images" in what and f"'{prefix}'" in what and "photos/deep" in what
    (what,) = faults(tmp_path, [f"{prefix}gone-{i}.jpg" for i in range(4)], header, read)
    assert "nor any image of these names" in what


@READERS
def test_names_without_a_like_one_are_named_alone(tmp_path, header, read):
    fill(tmp_path, 1)
    assert all("there is no" in what and "; there is" not in what for what in faults(tmp_path, ["x.png", "y.png"], header, read))

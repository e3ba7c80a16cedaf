"""Boxes of a detector, and which pictures they are in."""

import json
from pathlib import Path

import pytest

from vitrail.data.images.box_preparation import Box
from vitrail.errors import DataError
from vitrail.tasks.pose.files.detections import Detection, Detections

BOX = [1, 2, 30, 40]


def read(tmp_path, values) -> Detections:
    file = tmp_path / "boxes.json"
    file.write_text(values if isinstance(values, str) else json.dumps(values))
    return Detections.read(file)


@pytest.mark.parametrize(
    "told",
    [
        {"image": "photos/000000000139.jpg"}, {"file_name": "000000000139.jpg"}, {"image_id": 139}, {"image_id": "139"},
        {"image_id": 139.0}, {"image": "photos\\000000000139.jpg"},
        {"image_id": "000000000139"}, {"image": "./photos/000000000139.jpg", "image_id": 7},
    ],
)  # fmt: skip
def test_a_box_tells_its_picture_by_name_or_number(tmp_path, told):
    found = read(tmp_path, [{**told, "bbox": BOX, "score": 0.25}])
    pictures = [(tmp_path / "photos" / name, None) for name in ("000000000139.jpg", "other.jpg")]
    assert found.of(pictures) == [[Detection(Box(1, 2, 30, 40), 0.25)], []]


def test_a_picture_whose_number_is_known_gets_no_boxes_of_the_number_in_its_name(tmp_path):
    found = read(tmp_path, [{"image_id": 9, "bbox": BOX}, {"image": "7.jpg", "bbox": [0, 0, 1, 1]}])
    pictures = [(Path("9.jpg"), 5), (Path("other.jpg"), 9), (Path("7.jpg"), 9), (Path("9.jpg"), None)]
    mine, named = Detection(Box(*BOX)), Detection(Box(0, 0, 1, 1))
    assert found.of(pictures) == [[], [mine], [named, mine], [mine]]


def test_annotations_are_boxes_of_people_without_crowds_and_other_things(tmp_path):
    people = {"id": 3, "name": "person", "keypoints": ["nose"]}
    annotations = [
        {"image_id": 1, "category_id": 3, "bbox": BOX},
        {"image_id": 1, "category_id": 3, "bbox": BOX, "iscrowd": 1},
        {"image_id": 1, "category_id": 4, "bbox": BOX},
    ]
    images = [{"id": 1, "file_name": "cat.jpg"}, {"id": 2, "file_name": "empty.jpg"}]
    values = {"images": images, "annotations": annotations, "categories": [people, {"id": 4, "name": "dog"}]}
    found = read(tmp_path, values)
    assert found.of([(Path("a/cat.jpg"), None), (Path("a/empty.jpg"), None)]) == [[Detection(Box(*BOX))], []]
    assert found.number(Path("a/empty.jpg")) == 2 and found.number(Path("a/0017.jpg")) == 17
    assert found.number(Path("dog.jpg")) is None


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"image": "a.jpg", "bbox": [1, 2, 0, 4]}, r"box 1 of the list, in a.jpg: the box \(1, 2, 0, 4\) is empty"),
        ({"image_id": 7, "bbox": [1, 2, 3]}, "box 1 of the list, in image 7: .* is no box"),
        ({"image_id": 7}, "box 1 of the list, in image 7: None is no box"),
        ({"image_id": 7, "bbox": [1, 2, "wide", 4]}, "is no box"),
        ({"image_id": 7, "bbox": BOX, "score": None}, "is no box"),
        ({"image_id": 7, "bbox": [1e999, 2, 3, 4]}, "is no box"),
        ({"image_id": 7, "bbox": [1, 2, 10**400, 4]}, "box 1 of the list, in image 7: .* is no box"),
        ({"image_id": 7, "bbox": BOX, "score": 10**400}, "box 1 of the list, in image 7: .* is no box"),
        ({"bbox": BOX}, "box 1 of the list has no image"),
        ({"image_id": [1], "bbox": BOX}, "box 1 of the list has no image"),
    ],
)
def test_what_is_no_box_is_told_with_its_place_and_picture(tmp_path, row, what):
    with pytest.raises(DataError, match=what):
        read(tmp_path, [row])


def test_one_box_that_is_none_is_left_out_and_told_of(tmp_path):
    wrong = [{"image_id": 2, "bbox": [5, 5, 0, 12]}, {"image_id": 2, "bbox": None}, {"bbox": BOX}]
    rows = [
        {"image_id": 1, "bbox": BOX},
        *wrong,
        {"image_id": 1, "bbox": BOX, "iscrowd": "no"},
        {"image_id": 1, "bbox": BOX, "iscrowd": "1"},
    ]
    found, notes = read(tmp_path, rows), []
    found.tell(notes.append)
    assert found.of([(Path("1.jpg"), None)]) == [[Detection(Box(*BOX))]] and notes == [
        "boxes of boxes.json that are left out: 1 of crowds",
        "boxes of boxes.json that are left out because they are none: 4 "
        "(box 2 of the list, in image 2: the box (5, 5, 0, 12) is empty; and others)",
    ]


@pytest.mark.parametrize(("values", "known"), [
    ([{"image_id": 2, "bbox": BOX}], True),  # of a picture beside it
    ([{"image": "2.png", "bbox": BOX}], True),
    ([{"image_id": 3, "bbox": BOX}], False),
    ({"images": [{"id": 7, "file_name": "1.png"}], "annotations": [{"image_id": 8, "bbox": BOX}]}, True),
])  # fmt: skip
def test_a_picture_without_boxes_may_be_asked_alone_where_the_file_is_of_it_or_of_those_beside_it(tmp_path, values, known):
    for name in ("1.png", "2.png", "3.txt"):
        (tmp_path / name).touch()
    found = read(tmp_path, values)
    if known:
        assert found.of([(tmp_path / "1.png", None)]) == [[]]
        notes: list[str] = []
        found.tell_of_empty([[], [Detection(Box(*BOX))]], notes.append)
        assert notes == ["boxes.json has no box in 1 of 2 images: nobody is looked for there"]
    else:
        with pytest.raises(DataError, match="none of the boxes is in any of the images"):
            found.of([(tmp_path / "1.png", None)])


def test_a_box_in_python_is_four_numbers_and_perhaps_a_score():
    assert Detection.of((1, 2, 3, 4, 0.5)) == Detection(Box(1, 2, 3, 4), 0.5)
    for wrong in ((1, 2, 3), (1, 2, 3, 4, 5, 6), "abcd", 3):
        with pytest.raises(DataError, match="is no box"):
            Detection.of(wrong)


@pytest.mark.parametrize(
    "text",
    [
        "image,left,top,width,height\nphotos/a.png,1,2,30,40\n",
        "sep=;\nFile;Conf;xmin;ymin;xmax;ymax\nphotos\\a.png;1,0;1;2;31;42\n;;;;;\n",
        "image,bbox_x,bbox_y,bbox_w,bbox_h,class\na.png,1,2,30,40,person\na.png,0,0,9,9,dog\n",
        "image,x,y,w,h,category\na.png,1,2,30,40,\n",
        "image_id,x,y,w,h\nphotos\\a.png,1,2,30,40\n",
    ],
)
def test_boxes_stand_in_a_table_as_well(tmp_path, text):
    (tmp_path / "boxes.csv").write_text(text)
    found = Detections.read(tmp_path / "boxes.csv")
    assert found.of([(tmp_path / "photos" / "a.png", None), (tmp_path / "b.png", None)]) == [[Detection(Box(*BOX))], []]
    assert list(found.left_out) == (["of category 'dog'"] if "dog" in text else [])
    notes: list[str] = []
    found.tell(notes.append)
    assert any("left in 'xmin'" in note for note in notes) == ("xmin" in text)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("a.png,1,2,3", "there are 4 cells for 5 columns"),
        ("a.png,1,2,x,4", "'x' under width is no number"),
        ("a.png,1,2,0,4", "the box is 0 wide and 4 high"),
        ("a.png,,,,", "there is no box"),
        (",1,2,3,4", "no image is named"),
    ],
)
def test_a_line_that_is_no_box_is_counted_and_refused_by_its_number_where_there_is_no_other(tmp_path, line, what):
    (tmp_path / "boxes.csv").write_text(f"image,left,top,width,height\na.png,1,2,3,4\n{line}\n")
    found = Detections.read(tmp_path / "boxes.csv")
    assert len(found.boxes) == len(found.wrong) == 1 and what in found.wrong[0].what
    (tmp_path / "boxes.csv").write_text(f"image,left,top,width,height\n\n{line}\n")
    with pytest.raises(DataError, match=what) as error:
        Detections.read(tmp_path / "boxes.csv")
    assert error.value.where == f"{tmp_path}/boxes.csv:3"

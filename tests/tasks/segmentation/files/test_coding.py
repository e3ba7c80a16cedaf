"""Values and colours of masks become classes and void, or an error names them."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from vitrail.errors import ConfigError, DataError
from vitrail.tasks.segmentation.files.classes import classes_in, read_classes
from vitrail.tasks.segmentation.files.coding import Coding, Row, color_in, default_color

ROWS = [Row("sky", 0, (10, 20, 30)), Row("road", 7, (200, 0, 0)), Row("void", 11, (0, 0, 0))]


def png(image: Image.Image, **options) -> bytes:
    file = BytesIO()
    image.save(file, "PNG", **options)
    return file.getvalue()


VALUES = np.array([[0, 7, 11], [255, 7, 0]], np.uint8)
CLASSES = [[0, 1, 255], [255, 1, 0]]


def in_colors(values):
    table = np.zeros((256, 3), np.uint8)
    for row in ROWS:
        table[row.value] = row.color
    return table[values]


def with_palette(values):
    image = Image.fromarray(values)
    image.putpalette(list(range(256)) * 3)
    return image


@pytest.mark.parametrize(
    "image",
    [
        Image.fromarray(VALUES),
        with_palette(VALUES),
        Image.fromarray(VALUES.astype(np.uint16)),
        Image.fromarray(in_colors(VALUES)),
        Image.fromarray(in_colors(VALUES)).convert("RGBA"),
    ],
    ids=["grey", "indexed", "16 bits", "RGB", "opaque RGBA"],
)
def test_every_coding_of_a_mask_gives_the_same_classes(image):
    mask = Coding.of(ROWS).read(png(image))
    assert mask.tolist() == CLASSES and mask.dtype == np.uint8


def test_a_table_of_colors_alone_reads_indexed_masks_by_their_palette():
    coding = Coding.of([Row(row.name, None, row.color) for row in ROWS])
    image = Image.fromarray(np.array([[3, 1, 0]], np.uint8))
    image.putpalette([0, 0, 0, 200, 0, 0, 9, 9, 9, 10, 20, 30])
    assert coding.read(png(image)).tolist() == [[0, 1, 255]]
    assert coding.read(png(Image.new("RGB", (1, 1), (200, 0, 0)))).tolist() == [[1]]


def test_one_bit_has_the_values_0_and_1():
    coding = Coding.of([Row("outside", 0), Row("inside", 1)])
    assert coding.read(png(Image.fromarray(np.array([[True, False]])))).tolist() == [[1, 0]]


def test_255_is_void_unless_a_class_has_it_and_a_background_is_a_class():
    coding = Coding.of([Row("background", 0), Row("person", 255)])
    assert coding.classes == ("background", "person") and coding.colors == ((0, 0, 0), default_color(1))
    assert coding.read(png(Image.fromarray(np.array([[0, 255]], np.uint8)))).tolist() == [[0, 1]]


@pytest.mark.parametrize("void", ["road", "ROAD", "7", "#c80000"])
def test_a_class_is_void_by_its_name_value_or_color(void):
    rows = [*ROWS, Row("tree", 8, (0, 200, 0))]
    coding = Coding.of(rows, [void])
    assert coding.classes == ("sky", "tree") and coding.colors == ((10, 20, 30), (0, 200, 0))
    values = np.array([[0, 7, 8, 11]], np.uint8)
    assert coding.read(png(Image.fromarray(values))).tolist() == [[0, 255, 1, 255]]
    colors = np.array([[row.color for row in (rows[0], rows[1], rows[3], rows[2])]], np.uint8)
    assert coding.read(png(Image.fromarray(colors))).tolist() == [[0, 255, 1, 255]]


@pytest.mark.parametrize("name", ["void", "Unlabeled", "unlabelled", "IGNORE"])
def test_these_names_are_void_by_themselves(name):
    assert Coding.of([Row("a", 0), Row("b", 1), Row(name, 2)]).classes == ("a", "b")


def test_a_further_value_may_be_void_and_an_unknown_name_may_not():
    coding = Coding.of(ROWS, ["9"])
    assert coding.read(png(Image.fromarray(np.array([[9, 0]], np.uint8)))).tolist() == [[255, 0]]
    with pytest.raises(ConfigError, match="no class is called 'river'") as refused:
        Coding.of(ROWS, ["river"])
    assert "sky, road, void" in refused.value.hint


def test_rows_of_one_name_are_one_class_and_two_classes_of_one_value_are_refused():
    coding = Coding.of([Row("car", 3), Row("road", 4), Row("car", 9)])
    assert coding.read(png(Image.fromarray(np.array([[3, 4, 9]], np.uint8)))).tolist() == [[0, 1, 0]]
    with pytest.raises(DataError, match="stands for another class"):
        Coding.of([Row("car", 3), Row("road", 3)])
    with pytest.raises(DataError, match="stands for another class"):
        Coding.of([Row("car", None, (1, 1, 1)), Row("road", None, (1, 1, 1))])
    shared = Coding.of([Row("car", 3, (1, 1, 1)), Row("road", 4, (1, 1, 1))])  # their values tell them apart
    assert shared.read(png(Image.fromarray(np.array([[4, 3]], np.uint8)))).tolist() == [[1, 0]]


def test_more_than_255_classes_have_16_bits_and_void_65535():
    coding = Coding.of([Row(f"class {value}", value) for value in range(300)])
    mask = coding.read(png(Image.fromarray(np.array([[299, 255, 0, 65535]], np.uint16))))
    assert mask.tolist() == [[299, 255, 0, 65535]] and mask.dtype == np.uint16 and coding.void == 65535
    assert Coding.of([Row(str(value), value) for value in range(255)]).void == 255


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (Image.fromarray(np.array([[0, 5, 5, 6]], np.uint8)), "the value 5 of 2 pixels is of no class, nor of 1 more"),
        (Image.new("RGB", (2, 1), (1, 2, 3)), "the value #010203 of 2 pixels is of no class"),
        (Image.new("RGBA", (2, 1), (10, 20, 30, 128)), "partly transparent"),
    ],
)
def test_what_is_of_no_class_is_named(image, words, tmp_path):
    (tmp_path / "mask.png").write_bytes(png(image))
    with pytest.raises(DataError, match=words) as refused:
        Coding.of(ROWS).read(tmp_path / "mask.png")
    assert refused.value.where == tmp_path / "mask.png" and refused.value.hint


def test_colors_without_a_table_of_colors_are_refused():
    with pytest.raises(DataError, match="the mask is RGB, and the classes have no colours"):
        Coding.of([Row("a", 0), Row("b", 1)]).read(png(Image.new("RGB", (2, 2))))


def test_a_model_with_other_indices_gets_its_own():
    coding = Coding.of(ROWS).matched(["tree", "Road", "sky"], where="data")
    assert coding.read(png(Image.fromarray(VALUES))).tolist() == [[2, 1, 255], [255, 1, 2]]
    assert coding.colors == (default_color(0), (200, 0, 0), (10, 20, 30))
    with pytest.raises(DataError, match="road"):
        Coding.of(ROWS).matched(["sky", "tree"], where="data")


def test_default_colors_are_those_of_pascal_voc_without_black():
    assert [default_color(n) for n in range(4)] == [(128, 0, 0), (0, 128, 0), (128, 128, 0), (0, 0, 128)]
    assert default_color(19) == (0, 64, 128) and len({default_color(n) for n in range(255)}) == 255


@pytest.mark.parametrize(
    ("text", "color"),
    [("#00fF10", (0, 255, 16)), ("1 2 3", (1, 2, 3)), ("(1, 2, 3)", (1, 2, 3)), ("1 2 256", None), ("#12", None), ("red", None)],
)
def test_colors_in_text(text, color):
    assert color_in(text) == color


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("index,name\n3,sky\n4,road\n", [Row("sky", 3), Row("road", 4)]),
        ("name,r,g,b\nsky,1,2,3\n", [Row("sky", None, (1, 2, 3))]),
        ("class;colour;id\nsky;#010203;5\n", [Row("sky", 5, (1, 2, 3))]),
        ("name\nsky\nroad\n", [Row("sky", 0), Row("road", 1)]),
        ("index,name,red,green,blue\n0,sky,,,\n", [Row("sky", 0)]),
    ],
)
def test_tables_of_classes(table, rows, tmp_path):
    (tmp_path / "classes.csv").write_text(table)
    assert read_classes(tmp_path / "classes.csv") == rows


@pytest.mark.parametrize(
    ("table", "words", "line"),
    [
        ("index,kind\n0,sky\n", "no columns are called 'name'", 1),
        ("index,name\nzero,sky\n", "the index 'zero'|the index zero", 2),
        ("index,name\n70000,sky\n", "70000", 2),
        ("name,red,green,blue\nsky,0,0,256\n", "0 0 256", 2),
        ("index,name\n0,\n", "no name", 2),
    ],
)
def test_a_wrong_row_is_named_by_its_line(table, words, line, tmp_path):
    (tmp_path / "classes.csv").write_text(table)
    with pytest.raises(DataError, match=words) as refused:
        read_classes(tmp_path / "classes.csv")
    assert str(refused.value.where).endswith(f"classes.csv:{line}")


def test_classes_without_a_table_are_the_values_of_the_masks_with_the_colors_of_their_palette(tmp_path):
    image = Image.fromarray(np.array([[4, 2, 255]], np.uint8))
    image.putpalette([value for index in range(256) for value in (index, 0, 9)])
    rows = classes_in([png(image), png(Image.new("L", (1, 1), 10)), b"damaged"], tmp_path)
    assert [row.name for row in rows] == ["2", "4", "10"] and [row.value for row in rows] == [2, 4, 10]
    rows = classes_in([png(image)], tmp_path)
    assert [row.color for row in rows] == [(2, 0, 9), (4, 0, 9)]


@pytest.mark.parametrize(
    ("image", "words"),
    [(Image.fromarray(np.array([[0, 255]], np.uint8)), "hold only 0 and 255"), (Image.new("RGB", (1, 1)), "has colours")],
)
def test_masks_that_name_no_classes_are_refused_with_the_table_to_write(image, words, tmp_path):
    with pytest.raises(DataError, match=words) as refused:
        classes_in([png(image)], tmp_path)
    assert str(tmp_path / "classes.csv") in refused.value.hint

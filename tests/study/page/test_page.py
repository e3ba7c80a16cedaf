"""Pages: everything is escaped, and a page needs nothing but itself."""

import base64
from html.parser import HTMLParser
from io import BytesIO

import pytest
from PIL import Image

from vitrail.study.page import page
from vitrail.study.page.page import Number

NASTY = "<b>&\"'</td><script>x</script>"


class Seen(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(source)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.texts.append(data)


@pytest.mark.parametrize(
    "made",
    [
        page.page(NASTY, []),
        page.section(NASTY),
        page.paragraph(NASTY),
        page.note(NASTY),
        page.cards([(NASTY, NASTY)]),
        page.table([NASTY], [[NASTY]], total=[NASTY]),
        page.table(["number"], [[Number(NASTY)]]),
        page.folded(NASTY, page.verbatim(NASTY)),
    ],
)
def test_whatever_is_written_is_shown_and_never_obeyed(made):
    seen = Seen(made)
    assert "".join(seen.texts).count(NASTY) >= 1
    assert not {"b", "script"} & {tag for tag, _ in seen.tags}


def test_a_picture_stands_inside_of_the_page(tmp_path):
    Image.new("RGB", (3, 2), "red").save(tmp_path / "red.png")
    seen = Seen(page.picture(tmp_path / "red.png", NASTY, NASTY))
    image = dict(seen.tags)["img"]
    assert image["alt"] == NASTY
    shown = Image.open(BytesIO(base64.b64decode(image["src"].removeprefix("data:image/png;base64,"))))
    assert (shown.size, shown.getpixel((0, 0))) == ((3, 2), (255, 0, 0))
    assert "".join(seen.texts) == NASTY


def test_numbers_stand_to_the_right_also_in_head_and_total_and_marked_rows_are_marked():
    made = page.table(
        ["name", "number", ""], [["a", Number(1), page.bar(0.5)], ["b", Number(2), page.bar(1)]], marked=[1], total="xyz"
    )
    tags = Seen(made).tags
    assert [t["class"] for tag, t in tags if tag == "th"] == ["name", "right", "bars"]
    assert [t["class"] for tag, t in tags if tag == "td"] == ["name", "right", "bars"] * 3
    assert [t.get("class") for tag, t in tags if tag == "tr"] == [None, None, "marked", "total"]
    assert [t["style"] for tag, t in tags if tag == "span"] == ["width:50.0%", "width:100.0%"]
    assert Seen(made).texts == ["name", "number", "a", "1", "b", "2", "x", "y", "z"]


def test_a_drawn_picture_scrolls_where_it_would_become_illegible_and_the_page_knows_the_dark(tmp_path):
    Image.new("RGB", (1000, 20)).save(tmp_path / "wide.png")
    made = page.page("x", [page.picture(tmp_path / "wide.png", "x", "y")])
    tags = Seen(made).tags
    place = next(number for number, (tag, _) in enumerate(tags) if tag == "img")
    assert (tags[place - 1][1]["class"], tags[place][1]["style"]) == ("wide drawn", "min-width:700px")
    assert "prefers-color-scheme: dark" in made and "color-scheme: light dark" in made


def test_a_link_is_a_name_in_a_table_and_the_best_number_stands_out():
    made = page.table(["run", "score"], [[page.link(NASTY, 'a"b'), page.Best(1)]])
    tags = Seen(made).tags
    assert [t["class"] for tag, t in tags if tag == "td"] == ["name", "right best"]
    assert dict(tags)["a"]["href"] == 'a"b' and NASTY in Seen(made).texts

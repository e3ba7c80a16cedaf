"""The page of a server that finds joints, as a real Chromium shows it: skeletons over a picture, boxes that are drawn, maps."""

import json

import numpy as np
import pytest
from PIL import Image
from server_browser import CHROMIUM, opened
from server_running import serving_by
from sklearn.datasets import load_sample_images

from stick_figures import JOINTS, LIMBS
from tiny_pose import tiny_pose
from vitrail.deploy.server.http.limits import Limits
from vitrail.study.maps.attention import look_of
from vitrail.tasks.pose.predictor import in_python
from vitrail.tasks.pose.service import ServedPoses
from vitrail.tasks.pose.study.joints import layer_maps

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")

ROWS = "document.querySelectorAll('#joints li').length"
PEOPLE = "document.querySelectorAll('#people span').length"
PROBLEM = "!document.getElementById('problem').hidden && document.getElementById('problem').innerText"
IDLE = "document.getElementById('status').innerText === ''"
WIDTH, HEIGHT = 640, 427


@pytest.fixture(scope="module")
def server():
    trained = tiny_pose(depth=2)
    look, why = look_of(trained, layer_maps)
    with serving_by(ServedPoses(in_python(trained), Limits(items=3, body=500_000), look, why), "joints") as found:
        yield found


@pytest.fixture
def page(browser, server):
    yield from opened(browser, server.url, "joints")


@pytest.fixture(scope="module")
def picture(tmp_path_factory):
    """A photograph of scikit-learn."""
    file = tmp_path_factory.mktemp("pictures") / "china.jpg"
    Image.fromarray(load_sample_images().images[0]).save(file)
    return file


@pytest.fixture
def asked(page, picture):
    page.choose("#file", picture)
    page.until(f"{ROWS} === {len(JOINTS)} && {IDLE}")
    return page


def answered(server, picture, *boxes):
    query = {"boxes": json.dumps(boxes)} if boxes else {}
    answer = server.client.post("/predict", content=picture.read_bytes(), params=query)
    return answer.json()["people"]


def sides(page):
    """Of the drawing on the screen: left, top, width, height."""
    return page.value("(r => [r.x, r.y, r.width, r.height])(document.getElementById('drawing').getBoundingClientRect())")


def mouse(page, kind, place, **options):
    """The mouse at a place of the picture."""
    left, top, width, height = sides(page)
    at = {"x": left + place[0] / WIDTH * width, "y": top + place[1] / HEIGHT * height}
    page.send("Input.dispatchMouseEvent", type=f"mouse{kind}", button="left", **at, **options)


def drag(page, start, end):
    mouse(page, "Pressed", start, buttons=1, clickCount=1)
    mouse(page, "Moved", end, buttons=1)
    mouse(page, "Released", end, clickCount=1)


def add(page, left):
    """A person by numbers."""
    page.value(f"""
        for (const [name, value] of Object.entries({{left: {left}, top: 20, width: 100, height: 200}})) {{
            document.querySelector(`#box [name=${{name}}]`).value = value;
        }}
        document.getElementById('box').requestSubmit(); 0""")


def test_the_skeleton_lies_where_the_joints_are_with_its_sides_in_their_colours(asked, server, picture):
    (person,) = answered(server, picture)
    found = asked.value("[...document.querySelectorAll('#drawing .hit')].map(c => [c.cx.baseVal.value, c.cy.baseVal.value])")
    assert np.allclose(found, np.reshape(person["keypoints"], (-1, 3))[:, :2] + 0.5, atol=0.01)
    assert asked.value("document.getElementById('drawing').getAttribute('viewBox')") == f"0 0 {WIDTH} {HEIGHT}"
    whole = asked.value("(r => [r.x, r.y, r.width, r.height])(document.getElementById('picture').getBoundingClientRect())")
    assert sides(asked) == pytest.approx(whole, abs=0.5)
    colours = "[...document.querySelectorAll('#drawing line:not(.rim)')].map(line => line.classList[0])"
    expected = [{("left",): "left", ("right",): "right"}.get(sided(limb), "middle") for limb in LIMBS]
    assert asked.value(colours) == expected


def sided(limb):
    return tuple({side for end in limb for side in ("left", "right") if JOINTS[end].startswith(side)})


@pytest.mark.parametrize("screen", [1280, 320])
@pytest.mark.parametrize(("width", "height"), [(1600, 60), (60, 1600), (600, 150), (9, 6), (40, 4), (1200, 900)])
def test_a_picture_of_any_ratio_is_under_its_drawing_from_rim_to_rim(page, tmp_path, screen, width, height):
    page.sized(screen, 900)
    Image.new("RGB", (width, height), "grey").save(tmp_path / "picture.png")
    page.choose("#file", tmp_path / "picture.png")
    page.until(f"{ROWS} && {IDLE}")
    shown = page.value("(r => [r.x, r.y, r.width, r.height])(document.getElementById('picture').getBoundingClientRect())")
    assert shown[2] / shown[3] == pytest.approx(width / height, rel=0.02)
    assert sides(page) == pytest.approx(shown, abs=0.1)
    assert shown[3] >= 111 or shown[2] >= 0.45 * screen  # as large as there is room for
    assert page.value("document.documentElement.scrollWidth") <= screen


def test_a_box_that_is_drawn_on_a_wide_picture_is_sent_as_it_is_seen(page, tmp_path):
    Image.new("RGB", (1600, 160), "grey").save(tmp_path / "wide.png")
    page.choose("#file", tmp_path / "wide.png")
    page.until(f"{ROWS} && {IDLE}")
    left, top, width, height = page.value(
        "(r => [r.x, r.y, r.width, r.height])(document.getElementById('picture').getBoundingClientRect())"
    )
    seen = min(height, width / 10)  # what the picture takes of its place, in whose middle it is
    begin = top + (height - seen) / 2
    for kind, share in (("Pressed", 0.25), ("Moved", 0.75), ("Released", 0.75)):
        place = {"x": left + share * width, "y": begin + share * seen}
        page.send("Input.dispatchMouseEvent", type=f"mouse{kind}", button="left", buttons=1, clickCount=1, **place)
    page.until(f"{PEOPLE} === 1 && {ROWS}")
    box = page.value("['x', 'y', 'width', 'height'].map(k => document.querySelector('#drawing rect')[k].baseVal.value)")
    assert box == pytest.approx([400, 40, 800, 80], abs=2.5)


def test_the_list_has_every_joint_with_its_score(asked, server, picture):
    (person,) = answered(server, picture)
    rows = asked.value("[...document.querySelectorAll('#joints li')].map(row => row.innerText.split('\\n').filter(Boolean))")
    assert rows == [[name.replace("_", " "), f"{score:.2f}"] for name, (_, _, score) in person["joints"].items()]
    assert asked.value(PEOPLE) == 0


def test_a_joint_that_is_pointed_to_says_its_name_and_score(asked, server, picture):
    (person,) = answered(server, picture)
    places = [(name, *joint) for name, joint in person["joints"].items()]
    _, x, y, _ = next(one for one in reversed(places) if 5 < one[1] < WIDTH - 5 and 5 < one[2] < HEIGHT - 5)
    mouse(asked, "Moved", (x + 0.5, y + 0.5))
    asked.until("!document.getElementById('tip').hidden")
    told = asked.value("document.getElementById('tip').innerText")
    assert told.rsplit(" ", 1)[0].replace(" ", "_") in JOINTS
    assert told.rsplit(" ", 1)[1] in {f"{one[3]:.2f}" for one in places if abs(one[1] - x) + abs(one[2] - y) < 40}
    mouse(asked, "Moved", (WIDTH / 2, -30))
    asked.until("document.getElementById('tip').hidden")


def test_boxes_that_are_drawn_are_people_who_can_be_removed_again(asked, server, picture):
    drag(asked, (100, 50), (200, 300))
    asked.until(f"{PEOPLE} === 1 && {ROWS}")
    drag(asked, (500, 400), (300, 100))  # from its end to its beginning
    asked.until(f"{PEOPLE} === 2 && {ROWS}")
    sides_of = "r => ['x', 'y', 'width', 'height'].map(k => r[k].baseVal.value)"
    boxes = asked.value(f"[...document.querySelectorAll('#drawing rect')].map({sides_of})")
    assert np.allclose(boxes, [[100, 50, 100, 250], [300, 100, 200, 300]], atol=1.5)
    found = answered(server, picture, *boxes)
    shown = asked.value("[...document.querySelectorAll('#people button:first-child')].map(b => b.innerText)")
    assert shown == [f"Person {n}, {person['score']:.2f}" for n, person in enumerate(found, 1)]
    assert asked.value("document.querySelectorAll('#people button')[2].getAttribute('aria-pressed')") == "true"
    asked.value("document.querySelectorAll('#people button')[1].click(); 0")
    asked.until(f"{PEOPLE} === 1 && {ROWS}")
    asked.value("document.getElementById('whole').click(); 0")
    asked.until(f"{PEOPLE} === 0 && {ROWS}")


def test_a_box_may_end_beyond_the_picture_and_a_click_is_none(asked):
    drag(asked, (500, 300), (WIDTH + 40, HEIGHT + 40))
    asked.until(f"{PEOPLE} === 1 && {ROWS}")
    box = asked.value(
        "(r => [r.x.baseVal.value + r.width.baseVal.value, r.y.baseVal.value + r.height.baseVal.value])"
        "(document.querySelector('#drawing rect'))"
    )
    assert box == pytest.approx([WIDTH, HEIGHT], abs=0.2)
    drag(asked, (100, 100), (101, 101))
    assert asked.value("document.querySelectorAll('#drawing rect').length") == 1


def test_who_cannot_draw_writes_numbers(asked):
    asked.value("""
        for (const [name, value] of Object.entries({left: 10, top: 20, width: 100.5, height: 200})) {
            document.querySelector(`#box [name=${name}]`).value = value;
        }
        document.getElementById('box').requestSubmit(); 0""")
    asked.until(f"{PEOPLE} === 1 && {ROWS}")
    assert asked.value("document.querySelector('#drawing rect').width.baseVal.value") == pytest.approx(100.5)


def test_a_box_outside_of_the_picture_and_too_many_are_told_plainly(asked):
    for left in (900, 10, 20, 30):
        add(asked, left)
        asked.until(f"{ROWS} && {PEOPLE} === {(900, 10, 20, 30).index(left)}")
        if left == 900:
            assert "outside of the picture" in asked.until(PROBLEM)
    asked.value("document.getElementById('box').requestSubmit(); 0")
    assert "3 people are found at a time" in asked.until(PROBLEM)


def test_a_joint_of_the_list_is_chosen_and_its_map_is_laid_over_what_the_model_sees(asked, server, picture):
    drag(asked, (100, 50), (200, 300))
    asked.until(f"{PEOPLE} === 1 && {ROWS}")
    asked.value("document.getElementById('shown').click(); 0")
    asked.until("!document.getElementById('overlay').hidden")
    first = asked.value("document.getElementById('overlay').toDataURL()")
    asked.value("document.querySelectorAll('#joints button')[3].focus(); 0")
    for kind in ("keyDown", "keyUp"):
        options = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
        asked.send("Input.dispatchKeyEvent", type=kind, **options, **({"text": "\r"} if kind == "keyDown" else {}))
    asked.until(f"document.getElementById('which-joint').innerText === {JOINTS[3].replace('_', ' ')!r} && {IDLE}")
    asked.until("!document.getElementById('overlay').hidden")
    assert asked.value("document.activeElement === document.querySelectorAll('#joints button')[3]")
    asked.until(f"document.getElementById('overlay').toDataURL() !== {first!r}")
    answer = server.client.post("/attention", content=picture.read_bytes(), params={"boxes": "[[100, 50, 100, 250]]"}).json()
    left, top, right, bottom = answer["seen"]
    whole, over = (
        sides(asked),
        asked.value("(r => [r.x, r.y, r.width, r.height])(document.getElementById('overlay').getBoundingClientRect())"),
    )
    expected = [whole[0] + left * whole[2], whole[1] + top * whole[3], (right - left) * whole[2], (bottom - top) * whole[3]]
    assert over == pytest.approx(expected, abs=4)
    asked.value("document.getElementById('shown').click(); 0")
    assert asked.value("document.getElementById('overlay').hidden") is True


def test_a_box_that_is_refused_is_taken_off_again_and_leaves_the_others_answered(asked):
    asked.value("document.getElementById('shown').click(); 0")
    add(asked, 10)
    asked.until(f"{PEOPLE} === 1 && {ROWS} && !document.getElementById('overlay').hidden")
    add(asked, 900)
    assert "outside of the picture" in asked.until(PROBLEM)
    asked.until(f"{PEOPLE} === 1 && {ROWS} && !document.getElementById('overlay').hidden")
    assert asked.value("document.querySelectorAll('#drawing rect').length") == 1
    assert "outside of the picture" in asked.value(PROBLEM)


@pytest.mark.parametrize("fails", [False, True])
def test_a_late_map_of_former_boxes_is_not_laid_over_new_ones(asked, fails):
    """The maps of the first box come when the maps of the second are asked for."""
    asked.value("""
        window.held = [];
        window.whole = window.fetch;
        window.fetch = async (path, options) => {
            const number = path.startsWith('attention') ? held.length : -1;
            const come = number < 0 || new Promise((go) => held.push(go));
            const answer = whole(path, options);
            if (await come === 'fails') throw new TypeError('no');
            return answer;
        }; 0""")
    asked.value("document.getElementById('shown').click(); 0")
    asked.until("held.length === 1")
    add(asked, 10)
    asked.until(f"held.length === 2 && {PEOPLE} === 1")
    asked.value(f"held[0]({'fails' if fails else 'comes'!r}); new Promise(go => setTimeout(go, 300))")
    assert asked.value("document.getElementById('overlay').hidden") is True and asked.value(PROBLEM) is False
    asked.value("document.querySelectorAll('#joints button')[2].click(); 0")
    asked.value("held[1]('comes'); 0")
    asked.until(f"!document.getElementById('overlay').hidden && {IDLE}")
    assert asked.value("held.length") == 2


def test_another_picture_takes_the_place_with_no_box_of_the_last(asked, picture):
    drag(asked, (100, 50), (200, 300))
    asked.until(f"{PEOPLE} === 1 && {ROWS}")
    asked.drop(300, 300, picture)
    asked.until(f"{PEOPLE} === 0 && {ROWS} && {IDLE}")
    assert asked.value("document.querySelectorAll('#drawing rect').length") == 0


def test_what_is_no_picture_is_told_plainly(page, tmp_path):
    (tmp_path / "words.png").write_text("no picture")
    page.choose("#file", tmp_path / "words.png")
    assert "cannot read the image" in page.until(PROBLEM).lower()
    assert page.value("document.getElementById('figure').hidden") is True


def test_it_fits_a_telephone(asked):
    asked.sized(390, 800, dark=True)
    assert asked.value("document.documentElement.scrollWidth <= 390")

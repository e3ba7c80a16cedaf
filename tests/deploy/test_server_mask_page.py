"""The page of a server of masks in a real Chromium: the mask over the image, classes that are switched, and saving."""

import base64
import io
import time

import numpy as np
import pytest
from PIL import Image
from server_browser import CHROMIUM, opened
from server_running import serving_by

from masked import COLORS, drawn, picture_of
from tiny_segmenter import tiny_segmenter
from vitrail.deploy.predictor import in_python
from vitrail.deploy.server.http.limits import Limits
from vitrail.tasks.segmentation.service import ServedMasks

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")

ROWS = "document.querySelectorAll('#areas li').length"
DRAWN = "(m => !m.hidden && m.complete && m.naturalWidth)(document.getElementById('mask'))"
PROBLEM = "!document.getElementById('problem').hidden && document.getElementById('problem').innerText"
SIDES = "(r => [r.x, r.y, r.width, r.height])(document.getElementById('{}').getBoundingClientRect())"
SIZE = (160, 120)
PIXELS = """(async () => {
  const mask = document.getElementById('mask');
  await mask.decode();
  const canvas = new OffscreenCanvas(mask.naturalWidth, mask.naturalHeight);
  const context = canvas.getContext('2d');
  context.drawImage(mask, 0, 0);
  return [...context.getImageData(0, 0, canvas.width, canvas.height).data];
})()"""


@pytest.fixture(scope="module")
def server():
    with serving_by(ServedMasks(in_python(tiny_segmenter()), Limits(pixels=100_000)), "shapes") as running:
        yield running


@pytest.fixture
def page(browser, server):
    yield from opened(browser, server.url, "shapes")


@pytest.fixture(scope="module")
def picture(tmp_path_factory):
    file = tmp_path_factory.mktemp("pictures") / "shapes.png"
    picture_of(drawn(3, SIZE)).save(file)
    return file


@pytest.fixture
def answer(server, picture):
    return server.client.post("/predict", content=picture.read_bytes()).json()


@pytest.fixture
def mask(answer):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(answer["mask"]))))


@pytest.fixture
def segmented(page, picture):
    page.choose("#file", picture)
    page.until(f"{ROWS} && {DRAWN}")
    return page


def laid(page):
    """The pixels of the mask on the page: red, green, blue and opacity (H, W, 4)."""
    return np.reshape(page.value(PIXELS), (SIZE[1], SIZE[0], 4))


def test_the_mask_lies_over_the_picture_with_the_share_of_each_class(segmented, answer, mask):
    pixels = laid(segmented)
    assert np.array_equal(pixels[..., :3], np.array(COLORS)[mask]) and (pixels[..., 3] == 255).all()
    over, under = (segmented.value(SIDES.format(name)) for name in ("mask", "picture"))
    assert over == pytest.approx(under, abs=0.5)
    rows = segmented.value("[...document.querySelectorAll('#areas li')].map(row => row.innerText.split(/\\s*\\n\\s*/))")
    assert rows == [[area["class"], f"{100 * area['fraction']:.1f}%"] for area in answer["areas"]] and len(rows) > 1
    patches = segmented.value("[...document.querySelectorAll('#areas i')].map(patch => patch.style.background)")
    assert patches == [f"rgb({', '.join(map(str, area['color']))})" for area in answer["areas"]]
    assert "160×120 pixels, segmented as a whole" in segmented.value("document.getElementById('status').innerText")
    assert segmented.value("document.getElementById('about').innerText") == "3 classes, torch fp32"


def test_classes_are_switched_off_and_on_by_the_keyboard(segmented, answer, mask):
    first = answer["areas"][0]["index"]
    segmented.value("document.querySelector('#areas input').focus()")
    segmented.send("Input.dispatchKeyEvent", type="keyDown", key=" ", code="Space", windowsVirtualKeyCode=32, text=" ")
    segmented.press(" ", 32)
    segmented.until("!document.querySelector('#areas input').checked")
    assert np.array_equal(laid(segmented)[..., 3], np.where(mask == first, 0, 255))
    segmented.value("document.getElementById('none').click()")
    assert (laid(segmented)[..., 3] == 0).all()
    assert segmented.value("document.querySelectorAll('#areas :checked').length") == 0
    segmented.value("document.getElementById('all').click()")
    assert (laid(segmented)[..., 3] == 255).all()


def test_a_class_that_is_pointed_at_stands_out(segmented, answer, mask):
    left, top, width, height = segmented.value(
        "(r => [r.x, r.y, r.width, r.height])(document.querySelector('#areas label').getBoundingClientRect())"
    )
    move = {"type": "mouseMoved", "x": left + width / 2, "y": top + height / 2}
    segmented.send("Input.dispatchMouseEvent", **move)
    assert np.array_equal(laid(segmented)[..., 3], np.where(mask == answer["areas"][0]["index"], 255, 40))
    segmented.send("Input.dispatchMouseEvent", **{**move, "x": 1, "y": 1})
    assert (laid(segmented)[..., 3] == 255).all()


def test_the_slider_makes_the_mask_fainter(segmented):
    opacity = "getComputedStyle(document.getElementById('mask')).opacity"
    assert segmented.value(opacity) == "0.55"
    segmented.value("document.getElementById('opacity').focus()")
    segmented.press("Home", 36)
    segmented.until(f"{opacity} === '0'")


def test_the_mask_that_is_saved_is_the_servers_file(segmented, answer, tmp_path):
    segmented.send("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    segmented.value("document.getElementById('save').click()")
    file, end = tmp_path / "shapes-mask.png", time.monotonic() + 10
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.03)
    assert file.read_bytes() == base64.b64decode(answer["mask"])


def test_a_class_that_is_off_stays_off_with_the_next_picture(segmented, picture):
    segmented.value("document.getElementById('none').click()")
    segmented.choose("#file", picture)
    segmented.until("document.getElementById('answer').hidden")
    segmented.until(f"{ROWS} && {DRAWN} && !document.getElementById('answer').hidden")
    assert (laid(segmented)[..., 3] == 0).all()
    assert segmented.value("document.querySelectorAll('#areas :checked').length") == 0


def test_a_picture_that_is_refused_leaves_no_mask_and_the_reason(segmented, tmp_path):
    Image.new("RGB", (400, 300)).save(tmp_path / "large.png")
    segmented.choose("#file", tmp_path / "large.png")
    assert "over the limit" in segmented.until(PROBLEM)
    assert segmented.value("document.getElementById('answer').hidden && document.getElementById('mask').hidden")


@pytest.mark.parametrize("screen", [1280, 320])
@pytest.mark.parametrize(("width", "height"), [(600, 60), (60, 600), (9, 6)])
def test_a_picture_of_any_ratio_is_under_its_mask(page, tmp_path, screen, width, height):
    page.sized(screen, 900)
    picture_of(drawn(1, (width, height))).save(tmp_path / "picture.png")
    page.choose("#file", tmp_path / "picture.png")
    page.until(f"{ROWS} && {DRAWN}")
    over, under = (page.value(SIDES.format(name)) for name in ("mask", "picture"))
    assert over == pytest.approx(under, abs=0.5)
    assert under[2] / under[3] == pytest.approx(width / height, rel=0.05)
    assert page.value("document.documentElement.scrollWidth") <= screen
    assert page.value("document.getElementById('figure').scrollWidth") <= screen

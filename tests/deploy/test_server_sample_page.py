"""The page of a server that makes images, as a real Chromium shows it: a class, pictures that appear, and a seed that is kept."""

import base64
import io

import pytest
from PIL import Image
from server_browser import CHROMIUM, opened
from server_running import serving_by

from tiny_diffusion import model as tiny_diffusion
from vitrail.deploy.server.http.limits import Limits
from vitrail.tasks.diffusion.service import ServedSamples

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")

MAKE = "document.querySelector('#wish button').click()"
STATUS = "document.getElementById('status').innerText"
SEEDS = "[...document.querySelectorAll('#pictures .told button')].map(button => button.innerText)"
NAMES = "[...document.querySelectorAll('#pictures b')].map(name => name.innerText)"
PIXELS = """image => {
  const canvas = Object.assign(document.createElement('canvas'), {width: image.naturalWidth, height: image.naturalHeight});
  canvas.getContext('2d').drawImage(image, 0, 0);
  return [...canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data].filter((_, n) => n % 4 === 0);
}"""
PNGS = f"[...document.querySelectorAll('#pictures img')].map({PIXELS})"


@pytest.fixture(scope="module")
def trained():
    return tiny_diffusion(objective="velocity")


@pytest.fixture(scope="module")
def server(trained):
    with serving_by(ServedSamples(trained, Limits()), "tiny") as found:
        yield found


@pytest.fixture
def page(browser, server):
    yield from opened(browser, server.url, "tiny")


def made(page, count):
    """Wait for so many pictures, and return their pixels."""
    page.until(f"document.querySelectorAll('#pictures a:not([hidden])').length === {count} && {STATUS}.includes('of seed')")
    return page.value(PNGS)


def slide(page, name, value):
    page.value(f"(s => {{ s.value = {value}; s.dispatchEvent(new Event('input', {{bubbles: true}})); "
               f"s.dispatchEvent(new Event('change', {{bubbles: true}})) }})(document.getElementById('{name}'))")  # fmt: skip


def test_pictures_are_those_of_the_server_and_of_all_classes_in_turn(page, server):
    page.value(MAKE)
    pixels = made(page, 6)
    assert page.value(NAMES) == ["ant", "bee", "cat"] * 2
    first = int(page.value(SEEDS)[0].removeprefix("seed "))
    assert page.value(SEEDS) == [f"seed {first + number}" for number in range(6)]
    sent = {"class": 2, "seed": first + 5, "steps": 20, "guidance": 2, "sampler": "dpm++"}
    (image,) = server.client.post("/sample", json=sent).json()["images"]
    with Image.open(io.BytesIO(base64.b64decode(image["png"]))) as picture:
        assert pixels[5] == list(picture.tobytes())


def test_a_kept_seed_gives_the_same_pictures_and_a_slider_changes_them(page):
    slide(page, "count", 2)
    page.value("document.querySelector('#chips [value=\"1\"]').click()")
    one = made(page, 2)
    seeds = page.value(SEEDS)
    page.value("document.getElementById('keep').click()")
    page.value(MAKE)
    assert made(page, 2) == one and page.value(SEEDS) == seeds and page.value(NAMES) == ["bee", "bee"]
    slide(page, "guidance", 6)
    page.until(f"{STATUS}.includes('Making')")
    assert made(page, 2) != one and page.value(SEEDS) == seeds
    page.value("document.getElementById('keep').click()")
    page.value(MAKE)
    made(page, 2)
    assert page.value(SEEDS) != seeds


def test_the_seed_of_a_picture_is_kept_by_a_click(page):
    page.value(MAKE)
    pixels = made(page, 6)
    page.value("document.querySelectorAll('#pictures .told button')[4].click()")
    assert made(page, 1) == [pixels[4]] and page.value(NAMES) == ["bee"]
    assert page.value("document.getElementById('keep').checked")


def test_a_refusal_is_told(page):
    page.value("document.getElementById('seed').max = ''; document.getElementById('keep').checked = true; "
               "document.getElementById('seed').value = 9007199254740992")  # fmt: skip
    page.value(MAKE)
    page.until("!document.getElementById('problem').hidden")
    assert "Body.seed" in page.value("document.getElementById('problem').innerText")


def test_without_classes_there_is_no_choice_of_them_and_no_guidance(browser):
    with serving_by(ServedSamples(tiny_diffusion(num_classes=0, objective="flow"), Limits()), "plain") as server:
        for page in opened(browser, server.url, "plain"):
            page.value(MAKE)
            made(page, 6)
            hidden = "['of', 'guiding'].map(id => document.getElementById(id).hidden)"
            assert page.value(hidden) == [True, True] and page.value(NAMES) == []


def test_many_classes_are_a_list(browser):
    many = tiny_diffusion(num_classes=40)
    many.labels = [f"kind {number}" for number in range(40)]
    with serving_by(ServedSamples(many, Limits()), "many") as server:
        for page in opened(browser, server.url, "many"):
            slide(page, "count", 1)
            page.value(
                "(l => { l.value = 39; l.dispatchEvent(new Event('change', {bubbles: true})) })(document.getElementById('list'))"
            )
            made(page, 1)
            assert page.value(NAMES) == ["kind 39"]


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_screen(page, width):
    page.sized(width, 800)
    page.value(MAKE)
    made(page, 6)
    assert page.value("document.documentElement.scrollWidth") <= width

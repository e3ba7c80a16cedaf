"""The page of a server that writes about images, as a real Chromium shows it: a sentence, and where each word looked."""

import pytest
from PIL import Image
from server_browser import CHROMIUM, opened
from server_running import serving_by
from sklearn.datasets import load_sample_images

from small_captioner import small_captioner
from vitrail.deploy.server.http.limits import Limits
from vitrail.tasks.captioning.predictor import Writer
from vitrail.tasks.captioning.service import ServedCaptions

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")

WORDS = "document.querySelectorAll('#sentence .word').length"
LIT = "!document.getElementById('overlay').hidden"
TOLD = "document.getElementById('word').innerText"
PAINTED = "document.getElementById('overlay').toDataURL()"
PROBLEM = "!document.getElementById('problem').hidden && document.getElementById('problem').innerText"


@pytest.fixture(scope="module")
def server():
    with serving_by(ServedCaptions(Writer(small_captioner()), Limits(body=500_000)), "captions") as found:
        yield found


@pytest.fixture
def page(browser, server):
    yield from opened(browser, server.url, "captions")


@pytest.fixture(scope="module")
def picture(tmp_path_factory):
    """A photograph of scikit-learn."""
    file = tmp_path_factory.mktemp("pictures") / "china.jpg"
    Image.fromarray(load_sample_images().images[0]).save(file)
    return file


@pytest.fixture
def asked(page, picture):
    page.choose("#file", picture)
    page.until(f"{WORDS} > 1")
    return page


def over(page, number):
    """The mouse over a word, or over none of them."""
    sides = f"document.querySelectorAll('.word')[{number}].getBoundingClientRect()"
    x, y = (5, 5) if number is None else page.value(f"(r => [r.x + r.width / 2, r.y + r.height / 2])({sides})")
    page.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)


def test_the_sentence_is_what_the_server_answers(asked, server, picture):
    answer = server.post(picture.read_bytes(), "/caption").json()["captions"][0]
    shown = asked.value("[...document.querySelectorAll('.word')].map(word => word.innerText)")
    assert shown == [" ".join(word["word"].split()) for word in answer["words"]]


def test_a_word_that_is_pointed_at_lights_up_its_place(asked):
    assert not asked.value(LIT)
    painted = []
    for number in (0, 1):
        over(asked, number)
        asked.until(LIT)
        assert "% likely" in asked.value(TOLD)
        painted.append(asked.value(PAINTED))
    assert painted[0] != painted[1]
    over(asked, None)
    asked.until(f"!({LIT}) && {TOLD} === ''")


def test_a_word_that_is_pressed_stays_lit_until_it_is_pressed_again(asked):
    press = "document.querySelectorAll('.word')[1].click()"
    asked.value(press)
    asked.until(LIT)
    kept = asked.value(PAINTED)
    over(asked, 0)
    asked.until(f"{PAINTED} !== {kept!r}")
    over(asked, None)
    asked.until(f"{PAINTED} === {kept!r}")
    assert asked.value("document.querySelectorAll('.word[aria-pressed=true]').length") == 1
    asked.value(press)
    asked.until(f"!({LIT})")


def test_keys_alone_will_do(asked):
    asked.value("document.querySelectorAll('.word')[0].focus()")
    asked.until(LIT)
    asked.press("Tab", 9)
    asked.until("document.activeElement === document.querySelectorAll('.word')[1]")
    assert asked.value(LIT)


def test_what_is_no_picture_is_told_and_the_next_one_is_written_about(page, picture, tmp_path):
    (tmp_path / "note.jpg").write_text("not a picture")
    page.choose("#file", tmp_path / "note.jpg")
    page.until(PROBLEM)
    assert page.value(WORDS) == 0
    page.choose("#file", picture)
    page.until(f"{WORDS} > 1 && document.getElementById('problem').hidden")


def test_it_fits_a_telephone(asked):
    asked.sized(360, 740, dark=True)
    assert asked.value("document.documentElement.scrollWidth") <= 360

"""The page of a translator, as a real Chromium shows it: write a text, read its translation, and see where the model looked."""

import contextlib
import io

import numpy as np
import pytest
from PIL import Image
from server_browser import CHROMIUM, opened
from server_running import serving_by

from vitrail.deploy.server.http.limits import TEXTS, Limits
from vitrail.tasks.translation import service as texts
from vitrail.tasks.translation.predictor import Translator, writer_of
from vitrail.tasks.translation.service import ServedTranslations

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")

SAID = "[...document.querySelectorAll('#translation p')].map(line => line.innerText)"
SHOWN = "!document.getElementById('attention').hidden"
PROBLEM = "!document.getElementById('problem').hidden && document.getElementById('problem').innerText"
WRITTEN = "document.querySelectorAll('.tokens')[1].querySelectorAll('button')"
LIT = (
    "[...document.querySelectorAll('.tokens')[{row}].querySelectorAll('button')]"
    ".map(button => Number(button.style.getPropertyValue('--share')) ** 2)"
)


@pytest.fixture(scope="module")
def server(translator):
    with serving_by(ServedTranslations(writer_of(translator), TEXTS), "words") as found:
        yield found


@pytest.fixture
def page(browser, server):
    yield from opened(browser, server.url, "words")


def write(page, text):
    page.value("document.getElementById('text').focus(); 0")
    page.send("Input.insertText", text=text)


def ask(page, text):
    write(page, text)
    page.value("document.querySelector('#asks button').click()")


def test_a_text_is_translated_line_by_line_with_the_attention_of_each(page, translator):
    ask(page, "red dog\n\none cat and dog")
    page.until(SHOWN)
    wanted = Translator(translator).translate(["red dog", "", "one cat and dog"])
    assert page.value(SAID) == [one.text for one in wanted]
    assert page.value("document.querySelectorAll('#pieces > li').length") == 2
    assert page.value("document.getElementById('about').innerText") == "English to German, torch fp32"
    assert page.value("[document.getElementById('text').lang, document.getElementById('translation').lang]") == ["en", "de"]


def test_more_lines_than_a_request_may_have_go_in_several(page, translator):
    ask(page, "\n".join(["one", "cat"] * 20))
    page.until(f"{SAID}.length === 40")
    assert len([url for url in page.asked if url.endswith("/translate")]) == 2


def test_a_token_that_is_pointed_to_or_reached_by_keys_lights_what_was_read_for_it(page, translator):
    write(page, "red dog")
    for kind in ("rawKeyDown", "keyUp"):  # Ctrl+Enter
        page.send("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, modifiers=2)
    page.until(SHOWN)
    ((_, written, weights),) = Translator(translator).translate(["red dog"], attention=True)[0].alignments
    assert page.value(LIT.format(row=0)) == pytest.approx(weights[0], abs=1e-3)
    page.value(f"{WRITTEN}[0].focus(); 0")
    page.press("ArrowRight", 39)
    assert page.value(LIT.format(row=0)) == pytest.approx(weights[1], abs=1e-3)
    page.press("End", 35)
    assert page.value(LIT.format(row=0)) == pytest.approx(weights[-1], abs=1e-3)
    x, y = page.value(f"(box => [box.x + 3, box.y + 5])({WRITTEN}[1].getBoundingClientRect())")
    page.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    page.until(f"{WRITTEN}[1].getAttribute('aria-pressed') === 'true'")
    assert page.value(LIT.format(row=0)) == pytest.approx(weights[1], abs=1e-3)
    said = page.value("document.querySelector('.shares').innerText")
    assert said.startswith(f"Writing {written[1].strip()}, it looked at") and f"{max(weights[1]):.0%}" in said
    page.value("document.querySelector('.tokens button').focus(); 0")  # and the other way
    assert page.value(LIT.format(row=1)) == pytest.approx([row[0] for row in weights], abs=1e-3)
    assert page.value("document.querySelectorAll('td').length") == (len(weights[0]) + 1) * (len(weights) + 1) - (
        len(weights[0]) + len(weights)
    )


@pytest.mark.parametrize(("width", "height", "dark"), [(1280, 900, False), (390, 844, True), (320, 640, False)])
def test_it_fits_its_screen_in_light_and_dark(page, tmp_path, width, height, dark):
    page.sized(width, height, dark=dark)
    ask(page, f"one red cat and dog {'long' * 30} {'<b>&' * 5}")
    page.until(SHOWN)
    page.value("document.querySelector('summary').click()")
    assert page.value("document.documentElement.scrollWidth") <= width
    page.shot(tmp_path / "page.png")
    shot = np.asarray(Image.open(io.BytesIO((tmp_path / "page.png").read_bytes())).convert("L"))
    assert (shot[:, 2].mean() < 60) == dark and shot.std() > 15


@contextlib.contextmanager
def page_for_five_characters(browser, translator):
    """The page of a server that refuses longer texts."""
    with serving_by(ServedTranslations(writer_of(translator), Limits(characters=5)), "words") as server:
        browser.open(server.url)
        browser.until("document.title === 'words'")
        yield


def test_what_the_server_refuses_is_told_in_place_of_a_translation(browser, translator):
    with page_for_five_characters(browser, translator):
        ask(browser, "one cat")
        assert "7 characters" in browser.until(PROBLEM)
        assert browser.value(SAID) == [] and browser.value(SHOWN) is False


def test_lines_that_are_too_much_together_go_in_halves_and_one_that_is_too_much_goes_without_attention(
    page, translator, monkeypatch
):
    monkeypatch.setattr(texts, "MOST_SEEN", 40)  # the squares of its tokens
    lines = ["one", "cat", "one red cat and one red dog", "dog", "red"]
    ask(page, "\n".join(lines))
    page.until(f"{SAID}.length === 5 && document.getElementById('status').innerText === ''")
    assert page.value(SAID) == [one.text for one in Translator(translator).translate(lines)]
    assert page.value("document.querySelectorAll('#pieces > li').length") == 4


def test_what_was_translated_stays_where_a_later_line_is_refused(browser, translator):
    with page_for_five_characters(browser, translator):
        ask(browser, "one\ncat\nred dog\none")
        assert "7 characters" in browser.until(PROBLEM)
        assert browser.value(SAID) == [one.text for one in Translator(translator).translate(["one", "cat"])]
        assert browser.value("document.querySelectorAll('#pieces > li').length") == 2


def test_a_model_without_attention_shows_the_translation_alone(browser, unseeing):
    with serving_by(ServedTranslations(writer_of(unseeing), TEXTS), "blind") as server:
        browser.open(server.url)
        browser.until("document.title === 'blind'")
        ask(browser, "one cat")
        browser.until(f"{SAID}.length === 1 && document.getElementById('status').innerText === ''")
        assert browser.value(SHOWN) is False


def test_languages_that_are_no_codes_are_called_as_they_are(browser, unseeing):
    writer = writer_of(unseeing)
    writer.languages = ("src", "de-lowercased")
    with serving_by(ServedTranslations(writer, TEXTS), "files") as server:
        browser.open(server.url)
        browser.until("document.title === 'files'")
        assert browser.value("document.getElementById('about').innerText") == "src to de-lowercased, torch fp32"
        assert browser.value("document.getElementById('text').lang") == ""


def test_a_server_with_a_token_asks_for_it(browser, translator):
    with serving_by(ServedTranslations(writer_of(translator), TEXTS), "words", token="secret") as server:
        browser.open(server.url)
        browser.until("!document.getElementById('entry').hidden")
        browser.value("document.getElementById('token').value = 'secret'; document.querySelector('#entry button').click()")
        browser.until("document.getElementById('entry').hidden && document.title === 'words'")
        ask(browser, "one cat")
        browser.until(f"{SAID}.length === 1")

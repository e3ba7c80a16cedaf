"""The page, as a real Chromium shows it: choose, drop or paste a picture, and read what the model says and where it looked."""

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from server_browser import CHROMIUM, opened
from server_running import Shades, noise, serving, tiny
from sklearn.datasets import load_sample_images

import vitrail
from vitrail.deploy.predictor import in_python
from vitrail.deploy.server.http.limits import Limits
from vitrail.study.maps.attention import head_maps, look_of, relevance_map

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")

LABELS = "[...document.querySelectorAll('#labels li')].map(item => item.innerText.split('\\n'))"
SHOWN = "!document.getElementById('attention').hidden"
PROBLEM = "!document.getElementById('problem').hidden && document.getElementById('problem').innerText"
IDLE = "document.getElementById('status').innerText === ''"


@pytest.fixture(scope="module")
def server(model, look):
    relevance, _ = look_of(model, relevance_map)
    with serving(in_python(model), Limits(body=500_000), look=look, relevance=relevance) as found:
        yield found


@pytest.fixture
def page(browser, server):
    yield from opened(browser, server.url, "tiny")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """The photographs of scikit-learn: of a pavilion in China, and of a flower."""
    folder = tmp_path_factory.mktemp("pictures")
    files = [folder / "china.jpg", folder / "flower.jpg"]
    for file, pixels in zip(files, load_sample_images().images, strict=True):
        Image.fromarray(pixels).save(file)
    return files


def expected(model, file):
    (labels,) = vitrail.predict(model, file)
    return [[label, f"{100 * score:.1f}%"] for label, score in labels]


def test_a_picture_that_is_chosen_is_answered(page, model, pictures):
    page.choose("#file", pictures[0])
    page.until(SHOWN)
    assert page.value(LABELS) == expected(model, pictures[0])
    assert page.value("document.getElementById('picture').naturalWidth") == 640


def test_a_picture_that_is_dropped_is_answered_and_takes_the_place_of_the_last(page, model, pictures):
    page.choose("#file", pictures[0])
    page.until(SHOWN)
    page.drop(300, 300, pictures[1])
    page.until(f"document.getElementById('picture').alt.includes('flower') && {SHOWN}")
    assert page.value(LABELS) == expected(model, pictures[1])


def test_a_picture_that_is_pasted_is_answered(page, model):
    content = list(noise(5))
    page.value(f"""
        const held = new DataTransfer();
        held.items.add(new File([new Uint8Array({content})], 'pasted.png', {{type: 'image/png'}}));
        document.dispatchEvent(new ClipboardEvent('paste', {{clipboardData: held}})); 0""")
    page.until(SHOWN)
    assert page.value(LABELS) == expected(model, bytes(content))


def bright(maps):
    """From the lowest to the highest twentieth."""
    low, high = maps.min(), np.sort(maps, axis=None)[round(0.95 * (maps.size - 1))]
    return ((maps - low) / (high - low)).clip(max=1)


def test_the_overlay_is_the_attention_of_the_layer_and_head_chosen_over_what_the_model_sees(page, model, pictures):
    page.choose("#file", pictures[1])
    page.until(SHOWN)
    maps = head_maps(model.model, model.preparation(pictures[1]))[0].numpy()
    assert brightness(page) == pytest.approx(bright(maps[1].mean(axis=0)), abs=0.15)
    page.value("document.getElementById('layer').focus(); 0")
    page.press("ArrowLeft", 37)
    assert page.value("document.getElementById('which').value") == "1 of 2"
    page.value("document.querySelector('#heads input').focus(); 0")
    page.press("ArrowRight", 39)
    page.press("ArrowRight", 39)
    assert brightness(page) == pytest.approx(bright(maps[0, 1]), abs=0.15)
    boxes = page.value(
        "['overlay', 'picture'].map(id => Object.values(document.getElementById(id).getBoundingClientRect().toJSON()))"
    )
    (left, top, width, height), (_, _, whole_width, whole_height) = boxes[0][:4], boxes[1][:4]
    seen = model.preparation.box(640, 427)
    assert (width / whole_width, height / whole_height) == pytest.approx(((seen[2] - seen[0]) / 640, 1), abs=0.01)
    assert left - boxes[1][0] == pytest.approx(seen[0] / 640 * whole_width, abs=1) and top == boxes[1][1]
    page.value("document.getElementById('shown').click()")
    assert page.value("document.getElementById('overlay').hidden") is True


def brightness(page):
    """What the overlay, which is smooth, lets through at the centre of every patch, 0 to 1."""
    (rows, columns), points = (4, 4), []
    for row in range(rows):
        points += [[24 * column + 12, 24 * row + 12] for column in range(columns)]
    script = f"{points}.map(([x, y]) => document.getElementById('overlay').getContext('2d').getImageData(x, y, 1, 1).data[3])"
    return 1 - np.array(page.value(script)).reshape(rows, columns) / 190


def test_everything_can_be_done_with_the_keyboard(page, pictures):
    page.choose("#file", pictures[0])
    page.until(SHOWN)
    page.value("document.activeElement.blur(); 0")
    reached = []
    for _ in range(6):
        page.press("Tab", 9)
        reached.append(page.value("document.activeElement.id || document.activeElement.name || document.activeElement.tagName"))
    assert [each for each in reached if each in ("file", "shown", "layer", "head")] == ["file", "shown", "layer", "head"]


def test_a_screen_reader_is_told_what_there_is(page, pictures):
    page.choose("#file", pictures[0])
    page.until(SHOWN)
    page.send("Accessibility.enable")
    nodes = page.send("Accessibility.getFullAXTree")["nodes"]
    shown = {(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")}
    assert ("image", "Your picture china.jpg") in shown
    assert {("radio", "all heads on average"), ("radio", "head 2"), ("checkbox", "Show it on the picture")} <= shown
    assert ("group", "Where the model looked") in shown
    assert page.value("document.getElementById('labels').ariaLive") == "polite"


@pytest.mark.parametrize(("width", "height", "dark"), [(1280, 900, False), (390, 844, True), (320, 640, False)])
def test_it_fits_its_screen_in_light_and_dark(page, pictures, tmp_path, width, height, dark):
    page.sized(width, height, dark=dark)
    page.choose("#file", pictures[1])
    page.until(SHOWN)
    assert page.value("document.documentElement.scrollWidth") <= width
    page.shot(tmp_path / "page.png")
    shot = np.asarray(Image.open(io.BytesIO((tmp_path / "page.png").read_bytes())).convert("L"))
    assert (shot[:, 2].mean() < 60) == dark and shot.std() > 20


def test_what_is_no_picture_is_told(page, tmp_path):
    (tmp_path / "notes.txt").write_text("no picture")
    page.drop(300, 300, tmp_path / "notes.txt")
    assert "not an image" in page.until(PROBLEM)
    assert page.value(LABELS) == []


def test_a_picture_that_is_too_large_is_told_before_it_is_sent(page, tmp_path):
    (tmp_path / "large.jpg").write_bytes(bytes(600_000))
    page.drop(300, 300, tmp_path / "large.jpg")
    assert "larger than 0.5 MiB" in page.until(PROBLEM)
    assert not [url for url in page.asked if "predict" in url]


def test_labels_and_names_are_shown_as_they_are(browser, tmp_path):
    labels = ["<img src=x onerror=alert(1)>", "a & b", *"cde"]
    model = tiny()
    with serving(in_python(vitrail.TrainedModel(model.model, labels, model.preparation))) as server:
        browser.open(server.url)
        (tmp_path / "<b>.png").write_bytes(noise(1))
        browser.choose("#file", tmp_path / "<b>.png")
        browser.until(f"{LABELS}.length === 5 && document.getElementById('status').textContent.startsWith('No map')")
        assert {label for label, _ in browser.value(LABELS)} == set(labels)
        assert browser.value(SHOWN) is False  # this one cannot see, and says why


def test_the_example_for_a_server_without_a_token_has_no_header(page, server):
    assert page.value("document.getElementById('example').innerText") == f"curl -F images=@cat.jpg {server.url}/predict"


def test_a_server_with_a_token_asks_for_it(browser, tmp_path):
    (tmp_path / "noise.png").write_bytes(noise(1))
    with serving(in_python(tiny()), token="secret") as server:
        browser.open(server.url)
        browser.until("!document.getElementById('entry').hidden")
        assert browser.value(PROBLEM) is False  # nothing has been entered that could be wrong
        assert "curl -H 'Authorization: Bearer TOKEN' -F" in browser.value("document.getElementById('example').innerText")
        browser.value("document.getElementById('token').value = 'secret'; document.querySelector('#entry button').click()")
        browser.until("document.getElementById('entry').hidden && document.title === 'tiny'")
        assert browser.value("document.getElementById('status').innerText").startswith("Nothing yet")
        browser.choose("#file", tmp_path / "noise.png")
        browser.until(f"{LABELS}.length === 5")


def test_a_question_that_needs_a_token_is_asked_again_with_the_one_that_is_entered(browser, tmp_path):
    (tmp_path / "noise.png").write_bytes(noise(1))
    enter = "document.getElementById('token').value = '{}'; document.querySelector('#entry button').click()"
    with serving(in_python(tiny()), token="secret") as server:
        browser.open(server.url)
        browser.until("!document.getElementById('entry').hidden")
        browser.choose("#file", tmp_path / "noise.png")
        browser.until("!document.getElementById('figure').hidden")
        assert browser.value(PROBLEM) is False
        browser.value(enter.format("wrong"))
        browser.until(f"sessionStorage.getItem('token') === null && {PROBLEM}")
        browser.value(enter.format("secret"))
        browser.until(f"{LABELS}.length === 5")
        browser.value("sessionStorage.setItem('token', 'old'); document.getElementById('labels').replaceChildren()")
        browser.choose("#file", tmp_path / "noise.png")
        browser.until("!document.getElementById('entry').hidden")
        browser.value(enter.format("secret"))
        browser.until(f"{LABELS}.length === 5 && document.getElementById('entry').hidden")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("Promise.reject(new TypeError('Failed to fetch'))", "The server does not answer."),
        ("Promise.resolve(new Response('<h1>Too large</h1>', {status: 413}))", "The answer has status 413."),
        ("Promise.resolve(new Response('null', {status: 502}))", "The answer has status 502."),
        ("Promise.resolve(new Response('{}'))", "undefined"),
    ],
)
def test_what_went_wrong_is_told_and_only_a_server_that_does_not_answer_is_told_not_to(page, pictures, answer, told):
    page.value(f"window.fetch = () => {answer}; 0")
    page.choose("#file", pictures[0])
    assert told in page.until(PROBLEM)


def test_while_the_server_is_busy_the_page_tries_again(browser, tmp_path):
    (tmp_path / "noise.png").write_bytes(noise(1))
    shades = Shades()
    with serving(shades.predictor, Limits(waiting=1, items=1)) as server:
        browser.open(server.url)
        browser.until("document.title === 'tiny'")
        shades.hold()
        waiting = server.later(noise(2))
        server.taken(1)
        browser.choose("#file", tmp_path / "noise.png")
        browser.until("document.getElementById('status').innerText.includes('busy')")
        shades.go.set()
        assert waiting.result.status_code == 200
        browser.until(f"{LABELS}.length === 5")


def test_relevance_stands_beside_attention(page, model, pictures):
    page.choose("#file", pictures[1])
    page.until(SHOWN)
    page.value("document.querySelector('#heads input[value=\"-2\"]').click()")
    expected_map = relevance_map(model.model, model.preparation(pictures[1]))[0].numpy()
    assert brightness(page) == pytest.approx(bright(expected_map), abs=0.15)
    assert page.value("document.getElementById('layer').disabled") is True


def test_several_pictures_are_answered_and_can_be_returned_to(page, model, pictures, tmp_path):
    (tmp_path / "notes.png").write_text("no picture")
    page.choose("#file", *pictures, tmp_path / "notes.png")
    page.until("document.querySelectorAll('#past button').length === 3")
    said = "[...document.querySelectorAll('#past button span')].map(span => span.innerText)"
    page.until(f"!{said}.includes('…')")
    best = [f"{label} {100 * score:.1f}%" for file in pictures for label, score in vitrail.predict(model, file)[0][:1]]
    assert page.value(said) == ["no answer", *reversed(best)]
    page.value("document.querySelectorAll('#past button')[1].click()")
    page.until(f"document.getElementById('picture').alt.includes('flower') && {SHOWN}")
    assert page.value(LABELS) == expected(model, pictures[1])
    page.value("document.querySelectorAll('#past button')[0].click()")
    assert "not an image" in page.until(PROBLEM)
    assert page.value(LABELS) == [] and page.value(SHOWN) is False
    assert page.value("sessionStorage.length + localStorage.length") == 0


def test_of_more_pictures_than_are_kept_the_first_are_taken_and_the_one_shown_is_answered(page, model, tmp_path):
    files = [tmp_path / f"{number}.png" for number in range(53)]
    for number, file in enumerate(files):
        file.write_bytes(noise(number))
    page.choose("#file", *files)
    page.until(f"{SHOWN} && {IDLE}")
    assert page.value(LABELS) == expected(model, files[0])
    assert page.value("document.getElementById('picture').naturalWidth") == 40
    assert page.value("document.querySelectorAll('#past button').length") == 50
    assert "first 50 of 53" in page.value("document.getElementById('left-out').innerText")
    page.choose("#file", files[52])
    page.until(f"document.getElementById('picture').alt.includes('52') && {SHOWN}")
    assert page.value("document.getElementById('left-out').hidden") is True


def test_a_picture_whose_map_fails_keeps_its_answer_and_gets_the_map_when_it_is_returned_to(page, model, pictures):
    page.value("""
        window.whole = window.fetch;
        window.fetch = (path, options) => path === 'attention' ? Promise.reject(new TypeError('no')) : whole(path, options); 0""")
    page.choose("#file", *pictures)
    said = "[...document.querySelectorAll('#past button span')].map(span => span.innerText)"
    page.until(f"{said}.length === 2 && !{said}.includes('…')")
    assert "does not answer" in page.until(PROBLEM)
    assert page.value(LABELS) == expected(model, pictures[0])
    best = [f"{label} {100 * score:.1f}%" for file in pictures for label, score in vitrail.predict(model, file)[0][:1]]
    assert page.value(said) == best[::-1]
    page.value("window.fetch = whole; document.querySelectorAll('#past button')[1].click()")
    page.until(f"{SHOWN} && {IDLE} && document.getElementById('problem').hidden")


@pytest.mark.parametrize("thresholds", [[0.0] * 7, [1.0] * 7, [0.0, 1.0] * 3 + [0.0]])
def test_of_several_labels_those_that_reach_their_thresholds_are_marked(browser, tmp_path, thresholds):
    (tmp_path / "noise.png").write_bytes(noise(1))
    with serving(replace(in_python(tiny(7)), multi_label=True, thresholds=thresholds)) as server:
        (answer,) = server.client.post("/predict", content=noise(1)).json()["predictions"]
        reached = answer["labels"]
        assert len(reached) == thresholds.count(0.0)
        browser.open(server.url)
        browser.until("document.title === 'tiny'")
        browser.choose("#file", tmp_path / "noise.png")
        browser.until(f"{LABELS}.length >= 5 && document.getElementById('status').innerText.includes('No map')")
        marked = "[...document.querySelectorAll('#labels .accepted [aria-label=\"reaches its threshold\"]')]"
        assert browser.value(f"{marked}.map(tick => tick.parentElement.innerText)") == [f"✓ {label}" for label in reached]
        none = "No label reaches its threshold." in browser.value("document.getElementById('status').innerText")
        assert none == (not reached)

"""Pages of other origins: those that are named may ask and read what is answered, in a real browser too, and no others."""

import http.server
import threading

import pytest
from server_browser import CHROMIUM
from server_running import Shades, client, serving, shade

from vitrail.deploy.server.http.origins import origin_of
from vitrail.errors import ConfigError

SHOP, OTHER = "https://shop.example", "https://other.example"
TOKENS = [None, "correct-horse-battery"]
PNG = {"Content-Type": "image/png"}
ASKS = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}


@pytest.fixture(scope="module", params=TOKENS, ids=["without a token", "with a token"])
def server(request):
    with serving(Shades().predictor, token=request.param, origins=frozenset([SHOP])) as found:
        yield found


def sharing(answer):
    return {name: value for name, value in answer.headers.items() if name.startswith("access-control-")}


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://Shop.Example/", SHOP),
        ("https://shop.example:443", SHOP),
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://[::1]:80", "http://[::1]"),
        ("https://bücher.example", "https://xn--bcher-kva.example"),
        ("capacitor://localhost", "capacitor://localhost"),
    ],
)
def test_an_origin_is_named_as_browsers_do(url, origin):
    assert origin_of(url) == origin


@pytest.mark.parametrize(
    "url",
    [
        "",
        "*",
        "null",
        "shop.example",
        "localhost:3000",
        f"{SHOP}/a",
        f"{SHOP}?a",
        "https://a:b@c",
        "http://a:x",
        "http://*.a",
        "//shop.example",
        "ftp://a.b",
        f"{SHOP}#x",
    ],
)
def test_what_names_no_single_origin_is_refused(url):
    with pytest.raises(ConfigError, match="is not an origin"):
        origin_of(url)


def test_a_page_that_is_named_passes_its_preflight_without_a_token(server):
    with client(server.url) as stranger:
        answer = stranger.options("/predict", headers={"Origin": SHOP, **ASKS})
    assert answer.status_code == 204 and answer.headers["vary"] == "Origin"
    assert sharing(answer) == {
        "access-control-allow-origin": SHOP,
        "access-control-allow-methods": "GET, HEAD, POST",
        "access-control-allow-headers": "authorization,content-type",
        "access-control-max-age": "600",
        "access-control-expose-headers": "Retry-After",
    }


@pytest.mark.parametrize(("origin", "shared"), [(SHOP, SHOP), (OTHER, None), ("null", None)])
def test_answers_and_errors_are_given_to_pages_that_are_named_alone(server, origin, shared):
    headers = {**PNG, "Origin": origin}
    with client(server.url) as stranger:
        answers = [server.client.get("/model", headers=headers), server.post(shade(1), headers=headers)]
        answers += [server.post(b"no picture", headers=headers), server.client.get("/nothing", headers=headers)]
        answers += [stranger.get("/model", headers=headers), server.client.get("/predict", headers=headers)]
    assert {answer.headers.get("access-control-allow-origin") for answer in answers} == {shared}
    assert {answer.headers["vary"] for answer in answers} == {"Origin"}
    assert answers[1].status_code == (200 if shared or server.client.headers.get("authorization") else 403)


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("origins", [[], [SHOP]])
def test_other_pages_are_told_how_they_could_ask(token, origins):
    with serving(Shades().predictor, token=token, origins=frozenset(origins)) as found, client(found.url) as stranger:
        answer = stranger.options("/predict", headers={"Origin": OTHER, **ASKS})
        assert answer.status_code == 403 and OTHER in answer.json()["detail"] and "--allow-origin" in answer.json()["hint"]
        assert not sharing(answer)
        if not origins:
            assert "vary" not in found.client.get("/model", headers={"Origin": OTHER}).headers


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_a_browser_gives_the_answer_to_a_page_that_is_named(browser):
    class Blank(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    token = TOKENS[1]
    script = "fetch('{url}/model', {{headers: {{Authorization: 'Bearer {token}'}}}}).then(a => a.status, error => String(error))"
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Blank) as pages:
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        here = f"http://127.0.0.1:{pages.server_port}"
        browser.open(here)
        for origins, seen in ((frozenset([here]), 200), (frozenset(), "TypeError: Failed to fetch")):
            with serving(Shades().predictor, token=token, origins=origins) as found:
                assert browser.value(script.format(url=found.url, token=token)) == seen
                wrong = browser.value(script.format(url=found.url, token="wrong"))
                assert wrong == (401 if origins else seen)
        pages.shutdown()

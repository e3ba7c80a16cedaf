"""A token: without it nothing is told, with it all is answered, and nobody guesses it."""

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from server_running import Shades, client, serving, shade

from vitrail.deploy.server.http import access
from vitrail.deploy.server.http import rate_limited_log as seldom

PNG = {"Content-Type": "image/png"}


@pytest.fixture(scope="module")
def guarded():
    with serving(Shades().predictor, token="secret") as found:
        yield found


@pytest.mark.parametrize(
    "given", [None, "", "Bearer", "Bearer wrong", "Basic c2VjcmV0", "secret", "Bearer secret2", "Bearer \xfc"]
)
def test_without_the_token_nothing_is_told_of_the_model(guarded, given):
    headers = {} if given is None else {"Authorization": given.encode("latin-1")}
    with client(guarded.url, headers=headers) as stranger:
        for path in ("/model", "/metrics", "/nothing", "/predict"):
            answer = stranger.get(path)
            assert answer.status_code == 401 and answer.headers["content-type"] == "application/problem+json"
            assert answer.headers["www-authenticate"] == "Bearer"
        assert stranger.post("/predict", content=shade(1)).status_code == 401
        for path in ("/health", "/ready", "/", "/page.js", "/page.css", "/openapi.json"):
            assert stranger.get(path).status_code == 200


def test_with_the_token_the_server_may_have_any_name(guarded):
    headers = {**PNG, "Host": "my.example", "Origin": "https://other.example"}
    assert guarded.post(shade(3), headers=headers).status_code == 200
    assert guarded.client.get("/openapi.json").json()["security"] == [{"token": []}]


def guessed(server, seconds, clients, *, patience=None):
    """Tokens that so many clients together learn to be wrong, each asking again and again; not waiting beyond a patience."""
    learned, end = [], time.monotonic() + seconds

    def guess():
        headers = {"Authorization": "Bearer wrong"}
        while time.monotonic() < end:
            with client(server.url, headers=headers) as stranger, contextlib.suppress(httpx.TimeoutException):
                learned.append(stranger.get("/model", timeout=patience or 30).status_code)

    with ThreadPoolExecutor(clients) as pool:
        for _ in range(clients):
            pool.submit(guess)
    assert set(learned) <= {401}
    return len(learned)


def test_tokens_cannot_be_guessed_by_thousands_and_good_clients_are_let_in(caplog, monkeypatch):
    monkeypatch.setattr(seldom, "GATHER", 0.2)
    with serving(Shades().predictor, token="secret") as server, ThreadPoolExecutor(1) as pool:
        begin = time.monotonic()
        guessing = pool.submit(guessed, server, 1.0, 8)
        server.until(lambda: 'status="401"' in server.client.get("/metrics").text)
        assert server.post(shade(1)).status_code == 200  # from the same address
        assert guessing.result() <= access.FREE + access.RATE * (time.monotonic() - begin)
        assert guessing.result() <= access.FREE + 8 * 5  # each waits for a quarter of a second and more
        hasty = guessed(server, 0.5, 4, patience=0.1)  # who cannot wait learns nothing
        assert hasty == 0
        assert "vitrail_wrong_tokens_total 0.0" not in server.client.get("/metrics").text
        server.until(lambda: bool(caplog.records))
    lines = [record.getMessage() for record in caplog.records]
    assert 1 <= len(lines) <= 3 and all("with a wrong token, the last one from 127.0.0.1" in line for line in lines)


def test_who_sends_no_token_waits_for_nobody_and_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(access, "GUESSERS", 3)
    with serving(Shades().predictor, token="secret") as server:
        guesses = server.server.config.app._guesses
        monkeypatch.setattr(guesses._seldom, "happened", lambda *who: None)
        for who in ("a", "b", "c", "127.0.0.1") * 20:
            guesses.add(who)
        assert len(guesses._guessers) == 3
        with client(server.url) as stranger:
            begin = time.monotonic()
            assert [stranger.get("/model").status_code for _ in range(10)] == [401] * 10
            assert time.monotonic() - begin < 1

"""The end of a server: what was let in is answered, what is new is refused, and then it goes."""

import asyncio
import contextlib
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from server_running import Process, Shades, client, noise, of_shades, received, serving, shade, tiny

from vitrail.deploy.server import running
from vitrail.deploy.server.http.access import Access
from vitrail.deploy.server.http.app import application
from vitrail.deploy.server.http.limits import Limits
from vitrail.deploy.server.service import Service
from vitrail.tasks.classification.service import ServedLabels

PNG = {"Content-Type": "image/png"}


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """A server of shades, and the command with a model; both begin to start at once."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny().save_pretrained(folder)
    with of_shades(0.15) as shades, Process("-m", "vitrail", "serve", str(folder), "--port", "0") as command:
        yield shades, command


def test_a_hundred_requests_in_flight_at_sigterm_are_all_answered(processes):
    server, _ = processes
    with ThreadPoolExecutor(100) as pool, client(server.url) as asker:

        def ask(value):
            return asker.post("/predict", content=shade(value), headers=PNG)

        asked = [pool.submit(ask, value) for value in range(100)]
        until(lambda: metric(asker, "vitrail_images") + answered(asker) >= 100)
        server.terminate()
        until(lambda: asker.get("/ready").status_code == 503)
        refused = asker.post("/predict", content=shade(1), headers=PNG)
        answers = [one.result() for one in asked]
        assert [answer.status_code for answer in answers] == [200] * 100
        assert [answer.json()["predictions"][0]["predictions"][0]["label"] for answer in answers] == [str(v) for v in range(100)]
        assert refused.status_code == 503 and "shutting down" in refused.json()["detail"]
        assert refused.headers["connection"] == "close"
        assert server.ended() == (0, "")


def metric(asker, name):
    lines = asker.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.split(" ")[0] == name)


def answered(asker):
    return metric(asker, 'vitrail_requests_total{path="/predict",status="200"}')


def until(what):
    end = time.monotonic() + 30
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_command_serves_a_model_and_leaves_with_0_at_sigterm(processes):
    _, server = processes
    assert server.said.startswith("listening at http://127.0.0.1:")
    with client(server.url) as asker:
        assert asker.post("/predict", content=noise(0), headers=PNG).status_code == 200
        assert asker.post("/attention", content=noise(0), headers=PNG).status_code == 200
    server.terminate()
    assert server.ended() == (0, "")


def test_a_body_that_is_still_on_its_way_is_waited_for():
    with serving(Shades().predictor) as server, server.connect() as connection:
        content = shade(5)
        connection.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(content))
        server.until(lambda: server.service.active == 1)
        server.server._loop.call_soon_threadsafe(server.server.drain)
        server.until(lambda: server.service.draining)
        connection.sendall(content)
        assert b'"label":"5"' in received(connection)


def test_a_model_that_hangs_does_not_keep_the_server_from_its_end(monkeypatch):
    monkeypatch.setattr(running, "BODY_SECONDS", 0.1)
    monkeypatch.setattr(running, "SPARE", 0.5)
    shades = Shades()
    with serving(shades.predictor, Limits(deadline=0.3)) as server:
        shades.hold()
        waiting = server.later(shade(1))
        assert shades.begun.wait(10)
        server.server.handle_exit(15, None)
        assert waiting.result.status_code == 504
        server.until(lambda: server.server.should_exit)
    shades.go.set()


@pytest.mark.parametrize("second", [2, 15])
def test_the_second_signal_ends_it_at_once(second):
    shades = Shades()
    with serving(shades.predictor) as server:
        shades.hold()
        waiting = server.later(shade(1))
        assert shades.begun.wait(10)
        server.server.handle_exit(15, None)
        server.server.handle_exit(second, None)
        assert waiting.result.status_code == 503
    shades.go.set()


@pytest.mark.parametrize(("received", "code"), [(15, 0), (2, 130)])
def test_a_batch_that_nobody_waits_for_keeps_no_server_from_a_clean_end(monkeypatch, received, code):
    """Python's own exit would abort, were the thread inside torch."""
    go, service = threading.Event(), Service(ServedLabels(Shades().predictor, Limits()), "shades")

    def serve(server, sockets):
        service._queue._compute = lambda values: [go.wait(30) for _ in values]
        with contextlib.suppress(TimeoutError):
            asyncio.run(asyncio.wait_for(service._queue.answers([None], time.monotonic() + 9), 0.1))
        server.signal = received

    monkeypatch.setattr(running.Server, "run", serve)
    monkeypatch.setattr(running, "LAST", 0.1)
    monkeypatch.setattr(running.logging, "shutdown", lambda: None)
    monkeypatch.setattr(running, "exit_at_once", sys.exit)
    with running.listen("127.0.0.1", 0) as bound, pytest.raises(SystemExit) as ended:
        running.run(application(service, Access()), service, bound, lambda: None)
    go.set()
    assert ended.value.code == code

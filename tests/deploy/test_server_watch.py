"""A model that hangs or is gone is told of, and when nothing can mend it the server ends, to be started again."""

import pytest
from server_running import Shades, client, serving, shade

from vitrail.deploy.server import service
from vitrail.deploy.server import watchdog as watch
from vitrail.deploy.server.http.limits import Limits
from vitrail.deploy.server.queue import Worker


@pytest.fixture(autouse=True)
def _hasty(monkeypatch):
    monkeypatch.setattr(service, "LOOK", 0.02)
    monkeypatch.setattr(watch, "LEAST", 0.0)


@pytest.fixture
def ended(monkeypatch):
    """Exit codes of the process, which goes on all the same."""
    codes: list[int] = []
    monkeypatch.setattr(service, "exit_at_once", codes.append)
    monkeypatch.setattr(service.logging, "shutdown", lambda: None)
    return codes


@pytest.fixture
def shades():
    model = Shades()
    yield model
    model.go.set()


def status(server, path):
    with client(server.url) as asker:
        return asker.get(path).status_code


def test_a_batch_that_takes_too_long_is_told_of_and_may_still_end(shades, monkeypatch):
    monkeypatch.setattr(watch, "HUNG", 1e9)
    with serving(shades.predictor, Limits(deadline=0.1)) as server:
        shades.hold()
        waiting = server.later(shade(1))
        server.until(lambda: status(server, "/ready") == 503)
        assert "computing one batch for" in server.client.get("/ready").json()["detail"]
        refused = server.post(shade(2))
        assert refused.status_code == 503 and "retry-after" in refused.headers
        assert status(server, "/health") == 200
        assert waiting.result.status_code == 504
        shades.go.set()
        server.until(lambda: status(server, "/ready") == 200)
        assert server.post(shade(3)).status_code == 200


def test_a_batch_that_never_ends_ends_the_process_with_1_and_says_why(shades, ended, caplog):
    with serving(shades.predictor, Limits(deadline=0.2)) as server:
        shades.hold()
        server.later(shade(1))
        server.until(lambda: bool(ended))
    assert ended == [1] and "computing one batch for 1 seconds" in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_has_died_is_told_of_and_ends_the_process(monkeypatch, ended, caplog):
    with serving(Shades().predictor, Limits(deadline=0.3)) as server:
        monkeypatch.setattr(server.service._queue, "_observe", None)  # a fault beside the computing itself
        waiting = server.later(shade(1))
        server.until(lambda: server.service._worker.dead)
        assert "has died" in server.client.get("/ready").json()["detail"]
        assert status(server, "/health") == 503
        assert waiting.result.status_code == 504
        server.until(lambda: bool(ended))
    assert ended == [1] and "has died" in caplog.text


def test_a_process_that_was_stopped_has_not_computed_for_so_long():
    found = watch.Watch(worker := Worker())
    found.expect(10.0, 0.1)
    worker.turn, worker.working = 5, True
    for _ in range(21):
        found.look(1.0)
    assert found.trouble is None  # however long ago the first look was
    found.look(1.0)
    assert "21 seconds" in found.trouble and not found.lost
    worker.turn = 6
    found.look(1.0)
    assert found.trouble is None

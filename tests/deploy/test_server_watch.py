"""A model that hangs or is gone is told of, and when nothing can mend it the server ends, to be started again."""

import pytest
from server_running import Shades, client, serving, shade

from vitrail.deploy.server.http.access import Access
from vitrail.deploy.server.http.app import application
from vitrail.deploy.server.http.limits import Limits
from vitrail.deploy.server.queue import Worker
from vitrail.deploy.server.service import Service
from vitrail.deploy.server.workers import running
from vitrail.deploy.server.workers import watchdog as watch
from vitrail.errors import VitrailError
from vitrail.tasks.classification.service import ServedLabels


@pytest.fixture(autouse=True)
def _hasty(monkeypatch):
    monkeypatch.setattr(running, "LOOK", 0.02)
    monkeypatch.setattr(watch, "LEAST", 0.0)


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
        assert "at one batch for" in server.client.get("/ready").json()["detail"]
        refused = server.post(shade(2))
        assert refused.status_code == 503 and "retry-after" in refused.headers
        assert status(server, "/health") == 200
        assert waiting.result.status_code == 504
        shades.go.set()
        server.until(lambda: status(server, "/ready") == 200)
        assert server.post(shade(3)).status_code == 200


def test_a_batch_that_never_ends_ends_the_server(shades):
    with serving(shades.predictor, Limits(deadline=0.2)) as server:
        shades.hold()
        server.later(shade(1))
        server.until(lambda: server.server.should_exit)
        assert "at one batch for 1 seconds" in server.server.lost
        assert server.server.force_exit and not server.server.signal


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_has_died_is_told_of_and_ends_the_server(monkeypatch):
    monkeypatch.setattr(running, "LOOK", 0.5)
    with serving(Shades().predictor) as server:
        monkeypatch.setattr(server.service._queue, "_observe", None)  # a fault beside the computing itself
        waiting = server.later(shade(1))
        server.until(lambda: server.service._worker.dead)
        assert "has died" in server.client.get("/ready").json()["detail"]
        assert status(server, "/health") == 503
        assert waiting.result.status_code == 503
        assert server.server.should_exit and "has died" in server.server.lost


@pytest.mark.parametrize("ended", [True, False])
def test_the_process_ends_with_1_and_says_why(monkeypatch, caplog, ended):
    service = Service(ServedLabels(Shades().predictor, Limits()), "shades")
    monkeypatch.setattr(running.Server, "run", lambda server, sockets: setattr(server, "lost", "the model hangs"))
    monkeypatch.setattr(service, "ended", lambda seconds: ended)
    left = []
    monkeypatch.setattr(running, "_leave", lambda code: left.append(code))
    with running.listen("127.0.0.1", 0) as bound:
        if ended:
            with pytest.raises(VitrailError, match="the model hangs") as raised:
                running.run(application(service, Access()), service, bound, lambda: None)
            assert raised.value.exit_code == 1
        else:
            running.run(application(service, Access()), service, bound, lambda: None)
            assert left[0] == 1 and "the model hangs" in caplog.text


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

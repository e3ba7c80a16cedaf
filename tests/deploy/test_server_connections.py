"""Connections: who stalls is cut off, who has most goes first, and good clients are served meanwhile."""

import errno
import logging
import resource
import socket
from types import SimpleNamespace

import pytest
from server_running import Shades, received, serving, shade

from vitrail.deploy.server.http import middleware as edge
from vitrail.deploy.server.http.clients import network
from vitrail.deploy.server.http.limits import Limits
from vitrail.deploy.server.metrics import Metrics
from vitrail.deploy.server.workers import connections, running
from vitrail.deploy.server.workers.connections import Crowd, most_connections
from vitrail.deploy.server.workers.shared_state import Place

PIPELINED = b"GET /page.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20
HEAD = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n"


@pytest.fixture
def _hasty(monkeypatch):
    """Limits that are reached in a moment."""
    monkeypatch.setattr(running, "LOOK", 0.05)
    monkeypatch.setattr(running, "SEND_BYTES", 4096)
    monkeypatch.setattr(connections, "MOST", 12)
    monkeypatch.setattr(connections, "TAKE_SECONDS", 0.5)


def stalled(server):
    """A client that asks again and again and reads nothing."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    connection.connect(("127.0.0.1", server.port))
    connection.sendall(PIPELINED)
    return connection


@pytest.mark.usefixtures("_hasty")
def test_clients_that_never_read_take_no_place_for_good(caplog):
    with serving(Shades().predictor) as server:
        held = [stalled(server) for _ in range(30)]
        assert server.post(shade(3)).status_code == 200
        server.until(lambda: len(server.server.server_state.connections) <= 1)  # the good client's own
        assert server.post(shade(4)).status_code == 200
        text = server.client.get("/metrics").text
        assert "vitrail_connections 1.0" in text and "vitrail_connections_limit 12.0" in text
        assert "vitrail_connections_stalled_total 0.0" not in text and "vitrail_connections_crowded_total 0.0" not in text
    assert len(held) == 30 and not caplog.text


@pytest.mark.usefixtures("_hasty")
def test_where_all_wait_for_the_model_a_further_connection_is_told_so():
    shades = Shades()
    with serving(shades.predictor, Limits(batch=1)) as server:
        shades.hold()
        waiting = [server.later(shade(value)) for value in range(12)]
        server.taken(12)
        with server.connect() as connection:
            answer = received(connection)
        assert b" 503 " in answer and b"too many connections" in answer and b"Retry-After: 1" in answer
        shades.go.set()
        assert {one.result.status_code for one in waiting} == {200}


class Fake(SimpleNamespace):
    """A connection to be cut."""

    def __init__(self, network, moved=0.0, untaken=0, may_go=True):
        super().__init__(network=network, moved=moved, untaken=untaken, may_go=may_go, behind=0.0, gone=False)
        self.transport = SimpleNamespace(abort=lambda: setattr(self, "gone", True))

    __hash__ = object.__hash__


@pytest.mark.parametrize(
    ("there", "newcomer", "goes"),
    [
        ([Fake("a", 1), Fake("b", 3), Fake("b", 2)], "c", 2),  # of who has most, the one that has been silent for longest
        ([Fake("a", 1), Fake("b", 2, may_go=False), Fake("b", 3)], "c", 2),  # but none whose answer is being made
        ([Fake("a", 1), Fake("b", 2, may_go=False), Fake("b", 3, may_go=False)], "b", None),  # nor one of somebody with less
        ([Fake("a", 2), Fake("a", 1), Fake("a", 3)], "a", 1),  # behind a proxy all are one
    ],
)
def test_a_new_connection_takes_the_place_of_one_of_who_has_most(monkeypatch, there, newcomer, goes):
    monkeypatch.setattr(connections, "MOST", 3)
    crowd = Crowd(Metrics("images"), Place.alone())
    assert all(crowd.let_in(one) for one in there)
    assert crowd.let_in(Fake(newcomer)) == (goes is not None)
    assert [number for number, one in enumerate(there) if one.gone] == ([] if goes is None else [goes])


def test_answers_that_nobody_takes_are_bounded_over_all_clients(monkeypatch):
    monkeypatch.setattr(connections, "UNTAKEN", 100)
    crowd, there = Crowd(Metrics("images"), Place.alone()), [Fake("a", untaken=size) for size in (30, 60, 40)]
    for one in there:
        crowd.let_in(one)
    crowd.sweep(1.0)
    assert [one.gone for one in there] == [False, True, False]


@pytest.mark.parametrize(("files", "most"), [(64, (10, 40)), (1024, (600, 896)), (100_000, (1000, 1000))])
def test_there_are_fewer_connections_than_descriptors(monkeypatch, files, most):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (files, files))
    monkeypatch.setattr(connections.os, "listdir", lambda folder: range(20))
    assert most[0] <= most_connections() <= most[1]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_what_counts_as_one_client(host, expected):
    assert network(host) == expected


def test_what_cannot_be_accepted_is_told_once_and_not_for_every_attempt(caplog):
    with serving(Shades().predictor) as server:
        context = {"message": "socket.accept() out of system resource", "exception": OSError(errno.EMFILE, "too many")}
        for _ in range(1000):
            server.server._loop.call_soon_threadsafe(server.server._loop.call_exception_handler, context)
        server.until(lambda: bool(caplog.records))
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["1000 times a connection could not be accepted"]


def test_rubbish_after_an_answer_has_begun_is_no_error_of_the_server(monkeypatch, caplog):
    monkeypatch.setattr(edge, "LINGER", 5.0)
    with caplog.at_level(logging.WARNING), serving(Shades().predictor) as server, server.connect() as connection:
        connection.sendall(HEAD.replace(b"image/png", b"text/html") + b"Transfer-Encoding: chunked\r\n\r\n")
        assert b" 415 " in connection.recv(65536)
        connection.sendall(b"no chunk\r\n\r\n")
        received(connection)
        server.until(lambda: not server.server.server_state.connections)
    assert not caplog.text

"""Clients that hang up, at any moment: they count as 499, and nobody hears of it."""

import json
import socket
import struct
import threading

import pytest
import torch
from server_running import Shades, serving, serving_by, shade

from vitrail.deploy.server.http import middleware as edge
from vitrail.deploy.server.http.limits import TEXTS, Limits
from vitrail.tasks.translation.predictor import writer_of
from vitrail.tasks.translation.service import ServedTranslations

IMAGE = ("image/png", shade(7))
PART = b'--x\r\nContent-Disposition: form-data; name="a"; filename="a.png"\r\n\r\n' + shade(7) + b"\r\n"
FORM = ("multipart/form-data; boundary=x", PART * 3 + b"--x--\r\n")


def request(path, kind, content):
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


def count(server, path):
    """How many requests of a path have had which status."""
    begin = f'vitrail_requests_total{{path="{path}",status="'
    lines = [line for line in server.client.get("/metrics").text.splitlines() if line.startswith(begin)]
    return {int(line.removeprefix(begin)[:3]): float(line.split()[-1]) for line in lines}


def hang_up(connection, abruptly):
    if abruptly:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.parametrize("abruptly", [False, True])
def test_clients_that_hang_up_are_no_errors(caplog, abruptly):
    shades = Shades()
    with serving(shades.predictor, Limits(batch=1), look=lambda pixels: torch.ones(1, 1, 2, 2)) as server:
        for path, (kind, content) in [("/predict", IMAGE), ("/predict", FORM), ("/attention", IMAGE)]:
            with server.connect() as connection:  # while the body comes
                connection.sendall(request(path, kind, content)[:-20])
                server.until(lambda: server.service.active == 1)
                hang_up(connection, abruptly)
            server.until(lambda: server.service.active == 0)
        shades.hold()
        inside = server.later(shade(1))
        assert shades.begun.wait(10)
        for path, (kind, content) in [("/predict", IMAGE), ("/predict", FORM), ("/attention", IMAGE)]:
            with server.connect() as connection:  # while it waits
                connection.sendall(request(path, kind, content))
                server.until(lambda: len(server.service._queue) + len(server.service.queues["/attention"]) > 0)
                hang_up(connection, abruptly)
            server.until(lambda: server.service.active == 1)
        shades.go.set()
        assert inside.result.status_code == 200
        assert count(server, "/predict") == {200: 1, 499: 4}
        assert count(server, "/attention") == {499: 2}
    assert not caplog.text


def test_clients_of_a_translator_that_hang_up_are_no_errors(caplog, translator):
    content = json.dumps({"text": "one two three."}).encode()
    sent = request("/translate", "application/json", content)
    with serving_by(ServedTranslations(writer_of(translator), TEXTS), "words") as server:
        go = threading.Event()
        server.service._queue._compute = lambda values: [go.wait(10) for _ in values]
        for bytes_sent, begun in ((sent[:-5], lambda: server.service.active), (sent, lambda: server.service._queue.taken)):
            with server.connect() as connection:
                connection.sendall(bytes_sent)
                server.until(lambda begun=begun: begun() == 1)
            server.until(lambda: server.service.active == 0)
        go.set()
        server.until(lambda: sum(count(server, "/translate").values()) == 2)
        assert count(server, "/translate") == {499: 2}
    assert not caplog.text


def test_who_is_answered_and_then_hangs_up_has_had_his_answer(caplog, monkeypatch):
    monkeypatch.setattr(edge, "LINGER", 5.0)
    with serving(Shades().predictor) as server:
        with server.connect() as connection:
            connection.sendall(request("/predict", "text/plain", bytes(1000))[:-500])
            assert b" 415 " in connection.recv(65536)
        with server.connect() as connection:  # who doesn't wait for the whole of it
            connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
            connection.recv(10)
            hang_up(connection, abruptly=True)
        server.until(lambda: bool(count(server, "/openapi.json") and count(server, "/predict")))
        assert (count(server, "/predict"), count(server, "/openapi.json")) == ({415: 1}, {200: 1})
    assert not caplog.text

"""What is not answered is refused with a problem of RFC 9457 that says why, and the connection is never just cut."""

import io
import json
import struct
import time
import zlib

import pytest
from PIL import Image
from server_running import Shades, noise, received, serving, shade, tiny

from vitrail.deploy.predictor import in_python
from vitrail.deploy.server import running
from vitrail.deploy.server.http import middleware as edge
from vitrail.deploy.server.http import protocol, reading
from vitrail.deploy.server.http.limits import Limits

BODY = 100_000
PNG = {"Content-Type": "image/png"}


@pytest.fixture(scope="module")
def server():
    with serving(in_python(tiny()), Limits(body=BODY, items=4)) as found:
        yield found


def problem(answer, status):
    """The document of a refusal, which must be one."""
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert answer.status_code == document["status"] == status, document
    assert document["type"] == "about:blank" and document["title"] and document["detail"]
    return document


def files(*contents):
    return [("images", (f"{number}.png", content, "image/png")) for number, content in enumerate(contents)]


def raw(server, *pieces, pause=0.0):
    """What comes back on a connection for bytes as they are, until the server closes it."""
    with server.connect() as connection:
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(pause)
        return received(connection)


HEAD = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n"


# not an image


@pytest.mark.parametrize("content", [b"no image", b"\x89PNG\r\n\x1a\n", noise(0)[:300], b"<svg/>", b"%PDF-1.4"])
def test_what_is_no_image_is_refused_with_the_reason(server, content):
    document = problem(server.post(content), 422)
    assert "cannot read the image" in document["detail"] and "PNG" in document["hint"]


@pytest.mark.parametrize("format", ["TIFF", "AVIF"])
def test_formats_that_only_files_of_ones_own_may_have_are_refused(server, format):
    content = io.BytesIO()
    Image.new("RGB", (16, 16)).save(content, format)
    document = problem(server.post(content.getvalue()), 422)
    assert "known format" in document["detail"] and format not in document["hint"]


def test_an_image_of_too_many_pixels_is_refused_before_it_is_decoded(server):
    head = b"IHDR" + struct.pack(">IIBBBBB", 65_000, 65_000, 8, 2, 0, 0, 0)
    bomb = (
        b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head)) + struct.pack(">I", 9) + b"IDAT"
    )
    assert "pixels" in problem(server.post(bomb + bytes(50)), 422)["detail"]


def test_a_server_has_a_limit_of_pixels_of_its_own():
    with serving(in_python(tiny()), Limits(pixels=40 * 30)) as server:
        assert server.post(noise(0, (40, 30))).status_code == 200
        assert "limit of 1,200" in problem(server.post(noise(0, (41, 30))), 422)["detail"]


def test_no_body_is_no_image(server):
    assert "empty" in problem(server.post(b""), 422)["detail"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/json", "video/mp4"])
def test_what_says_that_it_is_no_image_is_refused_unread(server, kind):
    assert kind in problem(server.post(noise(0), headers={"Content-Type": kind}), 415)["detail"]


def test_compressed_bodies_are_refused(server):
    problem(server.post(noise(0), headers={**PNG, "Content-Encoding": "gzip"}), 415)


def test_one_bad_image_of_several_refuses_all_and_every_bad_one_is_named(server):
    document = problem(server.client.post("/predict", files=files(noise(0), b"bad", noise(1), b"")), 422)
    assert [error["image"] for error in document["errors"]] == ["1.png", "3.png"]
    assert "2 of 4 images" in document["detail"]


# forms


@pytest.mark.parametrize(
    ("kind", "content"),
    {
        "no boundary": ("multipart/form-data", b"--x\r\n"),
        "empty": ("multipart/form-data; boundary=x", b""),
        "no parts": ("multipart/form-data; boundary=x", b"--x--\r\n"),
        "cut off": (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="a"; filename="b"\r\n\r\nabc',
        ),
        "no disposition": ("multipart/form-data; boundary=x", b"--x\r\n\r\nabc\r\n--x--\r\n"),
        "no form": ("multipart/form-data; boundary=x", b"hello"),
        "long header": ("multipart/form-data; boundary=x", b"--x\r\nA: " + b"b" * 9000 + b"\r\n\r\n\r\n--x--\r\n"),
        "long boundary": (f"multipart/form-data; boundary={'x' * 500}", b"--x--\r\n"),
        "strange charset": ("multipart/form-data; boundary=x; charset=idna", b"--x\r\n\r\nabc\r\n--x--\r\n"),
    }.values(),
)
def test_a_damaged_form_is_refused_and_logged_nowhere(server, kind, content, caplog):
    assert "form" in problem(server.post(content, headers={"Content-Type": kind}), 422)["detail"]
    assert not caplog.text


def test_a_file_without_a_plain_name_is_told_what_it_lacks(server):
    content = b"--x\r\nContent-Disposition: form-data; name=\"a\"; filename*=UTF-8''a.png\r\n\r\nabc\r\n--x--\r\n"
    document = problem(server.post(content, headers={"Content-Type": "multipart/form-data; boundary=x"}), 422)
    assert document["detail"] == "the form has no files" and "filename=" in document["hint"]


def test_labels_per_image_are_not_passed_over_in_a_form(server):
    document = problem(server.client.post("/predict", files=files(noise(0)), data={"top": "3"}), 422)
    assert document["detail"].startswith("top ") and "?top=" in document["hint"]


def test_too_many_images_are_refused(server):
    assert "more than 4 images" in problem(server.client.post("/predict", files=files(*[noise(0)] * 5)), 413)["detail"]


def test_thousands_of_tiny_parts_are_not_even_parsed(server):
    part = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n'
    begin = time.monotonic()
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    problem(server.post(part * (BODY // len(part) - 1) + b"--x--\r\n", headers=headers), 413)
    assert time.monotonic() - begin < 1


# too large, too slow


def test_a_body_that_says_it_is_too_large_is_refused_unread(server, monkeypatch):
    monkeypatch.setattr(edge, "LINGER", 0.1)
    answer = raw(server, HEAD + b"Content-Length: 100001\r\n\r\n" + bytes(1000))
    assert b" 413 " in answer and b"connection: close" in answer


def test_a_body_without_a_length_is_refused_once_it_is_too_large(server):
    problem(server.client.post("/predict", content=(bytes(10_000) for _ in range(50)), headers=PNG), 413)


def test_the_refusal_reaches_a_client_that_goes_on_sending(server):
    large = 30 * BODY
    answer = raw(server, HEAD + f"Content-Length: {large}\r\n\r\n".encode(), *[bytes(BODY)] * 30, pause=0.002)
    assert b" 413 " in answer and b"problem+json" in answer


def test_a_body_as_large_as_it_may_be_is_read(server):
    assert "cannot read" in problem(server.post(bytes(BODY)), 422)["detail"]
    problem(server.post(bytes(BODY + 1)), 413)


def test_a_body_that_does_not_come_is_given_up(server, monkeypatch):
    monkeypatch.setattr(reading, "BODY_SECONDS", 0.2)
    monkeypatch.setattr(edge, "LINGER", 0.1)
    answer = raw(server, HEAD + b"Content-Length: 5000\r\n\r\nabc")
    assert b" 408 " in answer and b"problem+json" in answer
    assert server.service._memory.held == 0


def test_a_head_that_does_not_come_is_given_up(server, monkeypatch):
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.2)
    assert raw(server, b"POST /predict HT") == b""
    assert raw(server) == b""
    answer = raw(server, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /health", pause=0.1)
    assert answer.count(b"HTTP/1.1") == 1


def test_bodies_that_are_held_take_only_so_much_memory_together():
    with serving(Shades().predictor, Limits(body=1000)) as server:
        server.service._memory.most = 1500
        with server.connect() as first, server.connect() as second:
            for connection in (first, second):
                connection.sendall(HEAD + b"Content-Length: 1000\r\n\r\n" + bytes(900))
            answer = second.recv(65536)
            assert b" 429 " in answer and b"retry-after: 1" in answer
            server.until(lambda: server.service._memory.held == 900)
        server.until(lambda: server.service._memory.held == 0)
        assert server.post(shade(7)).status_code == 200


def test_a_request_with_two_accounts_of_its_length_is_refused_and_the_connection_closed(server):
    for path, method in (("/predict", b"POST"), ("/model", b"GET")):
        both = b"%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n" % (method, path.encode())
        answer = raw(server, both + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answer.count(b"HTTP/1.1 ") == answer.count(b"HTTP/1.1 400") == 1
        assert b"connection: close" in answer and b"Content-Length and Transfer-Encoding" in answer


def test_more_connections_than_the_server_takes_are_told_so(monkeypatch):
    monkeypatch.setattr(running, "CONNECTIONS", 3)
    with serving(Shades().predictor) as server, server.connect(), server.connect(), server.connect() as third:
        server.until(lambda: len(server.server.server_state.connections) == 3)
        third.sendall(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 503 " in received(third)


def test_rubbish_after_an_answer_has_begun_is_no_error_of_the_server(server, monkeypatch, caplog):
    monkeypatch.setattr(edge, "LINGER", 5.0)
    with server.connect() as connection:
        connection.sendall(HEAD.replace(b"image/png", b"text/html") + b"Transfer-Encoding: chunked\r\n\r\n")
        assert b" 415 " in connection.recv(65536)
        connection.sendall(b"no chunk\r\n\r\n")
        received(connection)
    assert not caplog.text


# not for this server


def test_paths_and_methods_that_there_are_none_of_are_problems(server):
    assert "/nothing" in problem(server.client.get("/nothing"), 404)["detail"]
    answer = server.client.get("/predict")
    problem(answer, 405)
    assert answer.headers["allow"] == "POST"
    problem(server.client.request("BREW", "/predict"), 405)
    problem(server.client.get("/predict/"), 404)


@pytest.mark.parametrize("top", ["0", "101", "-1", "x", "", "1.5"])
def test_a_parameter_that_is_none_is_named(server, top):
    document = problem(server.post(noise(0), params={"top": top}), 422)
    assert document["errors"][0]["where"] == "query.top"


def test_what_is_no_http_is_a_problem_too(server):
    head, _, body = raw(server, b"NONSENSE\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400") and json.loads(body)["status"] == 400


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[::1", "2130706433", "10.0.0.1"]
)
def test_on_this_machine_a_name_that_is_not_its_own_is_refused(server, host):
    for path in ("/", "/model", "/metrics"):
        problem(server.client.get(path, headers={"Host": host}), 421)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1234", "127.0.1.1:80", "LOCALHOST:80", "[::1]:8000"])
def test_this_machine_has_several_names(server, host):
    assert server.client.get("/model", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://localhost", "http://["])
def test_pages_of_other_sites_may_not_ask(server, origin):
    problem(server.post(noise(0), headers={**PNG, "Origin": origin}), 403)
    preflight = server.client.options("/predict", headers={"Origin": origin, "Access-Control-Request-Method": "POST"})
    assert not [name for name in preflight.headers if name.startswith("access-control")]


def test_the_page_itself_may_ask(server):
    assert server.post(noise(0), headers={**PNG, "Origin": server.url}).status_code == 200

"""What the server says is what the model says."""

import base64
import io
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Thread

import numpy as np
import pytest
import torch
from PIL import Image
from server_running import SHADES, Shades, noise, serving, shade, tiny

import vitrail
from vitrail.deploy.predictor import in_python
from vitrail.study.maps.attention import head_maps, look_of, relevance_map

PICTURES = [noise(seed, (30 + 3 * seed, 60 - 2 * seed)) for seed in range(12)]


@pytest.fixture(scope="module")
def server(model, look):
    with serving(in_python(model), look=look) as found:
        yield found


def scores(predictions):
    return {each["label"]: each["score"] for each in predictions}


def form(*contents):
    return [("images", (f"{number}.png", content, "image/png")) for number, content in enumerate(contents)]


def test_a_raw_image_is_answered_as_predict_has_it(server, model):
    answer = server.post(PICTURES[0], params={"top": 3})
    assert answer.status_code == 200
    (found,) = answer.json()["predictions"]
    (expected,) = vitrail.predict(model, PICTURES[0], top=3)
    assert found["image"] == "image"
    assert [each["label"] for each in found["predictions"]] == [label for label, _ in expected]
    assert scores(found["predictions"]) == pytest.approx(dict(expected), abs=1e-5)


def test_images_of_a_form_are_answered_in_their_order_and_by_their_names(server, model):
    answer = server.client.post("/predict", files=form(*PICTURES)).json()["predictions"]
    assert [each["image"] for each in answer] == [f"{number}.png" for number in range(len(PICTURES))]
    for found, expected in zip(answer, vitrail.predict(model, PICTURES), strict=True):
        assert scores(found["predictions"]) == pytest.approx(dict(expected), abs=1e-5)


def test_a_file_of_a_form_may_have_any_name_and_other_fields_are_passed_over(server):
    answer = server.client.post("/predict", files={"picture": ("", PICTURES[0])}, data={"note": "hello"})
    assert answer.status_code == 422  # without a file's name it is a field like any other
    answer = server.client.post("/predict", files={"picture": ("ü.png", PICTURES[0])}, data={"note": "hello"})
    assert [each["image"] for each in answer.json()["predictions"]] == ["ü.png"]


@pytest.mark.parametrize("kind", ["image/jpeg", "application/octet-stream", "IMAGE/PNG; q=1", None])
def test_what_an_image_is_shows_in_its_bytes_whatever_its_type_says(server, kind):
    answer = server.post(PICTURES[0], headers={"Content-Type": kind} if kind else {})
    assert answer.status_code == 200


def test_more_labels_than_there_are_are_all_of_them(server):
    assert len(server.post(PICTURES[0], params={"top": 100}).json()["predictions"][0]["predictions"]) == 5


def test_images_that_are_computed_together_are_answered_as_alone(model):
    batches = []
    predictor = in_python(model)

    def logits(pixels):
        batches.append(len(pixels))
        return predictor.logits(pixels)

    with serving(replace(predictor, logits=logits)) as server, ThreadPoolExecutor(12) as pool:
        together = server.client.post("/predict", files=form(*PICTURES)).json()["predictions"]
        assert max(batches[2:]) > 1
        alone = pool.map(lambda picture: server.post(picture).json()["predictions"][0], PICTURES)
        for one, other in zip(together, alone, strict=True):
            assert scores(one["predictions"]) == pytest.approx(scores(other["predictions"]), abs=1e-5)


def test_labels_of_a_multi_label_model_have_scores_of_their_own(model):
    with serving(replace(in_python(model), multi_label=True)) as server:
        found = server.post(PICTURES[0]).json()["predictions"][0]["predictions"]
        assert sum(each["score"] for each in found) > 1.5
        assert server.client.get("/model").json()["multi_label"] is True


def test_no_answer_goes_to_another_client():
    clients, each = 16, 8
    shades = Shades(seconds=0.002)

    def ask(client):
        wrong = 0
        for number in range(each):
            value = (client * each + number) % SHADES
            others = [(value + 7 * k) % SHADES for k in range(number % 4)]
            answer = server.client.post("/predict", params={"top": 1 + client % 3}, files=form(*map(shade, [value, *others])))
            found = [image["predictions"] for image in answer.json()["predictions"]]
            wrong += [int(labels[0]["label"]) for labels in found] != [value, *others]
            wrong += any(len(labels) != 1 + client % 3 for labels in found)
        return wrong

    with serving(shades.predictor) as server, ThreadPoolExecutor(clients) as pool:
        assert sum(pool.map(ask, range(clients))) == 0
    assert max(map(len, shades.batches)) > 4  # they did travel together


# where the model looked


def test_attention_is_that_of_every_head_of_every_layer(server, model):
    answer = server.post(PICTURES[3], "/attention").json()
    preparation = model.preparation
    expected = head_maps(model.model, preparation(PICTURES[3]))[0].numpy()
    shape = tuple(answer[side] for side in ("layers", "heads", "rows", "columns"))
    assert shape == expected.shape == (2, 2, 4, 4)
    maps = np.frombuffer(base64.b64decode(answer["maps"]), np.uint8).reshape(shape)
    found = maps / 255 * np.array(answer["largest"])[..., None, None]
    assert np.abs(found - expected).max() <= expected.max() / 255
    assert (maps.max(axis=(2, 3)) == 255).all()


def test_attention_tells_which_part_of_the_picture_is_seen(server):
    assert server.post(noise(0, (80, 40)), "/attention").json()["seen"] == pytest.approx([0.25, 0, 0.75, 1])
    assert server.post(noise(0, (40, 160)), "/attention").json()["seen"] == pytest.approx([0, 0.375, 1, 0.625])


def test_attention_is_of_formats_alone_that_a_server_takes(server):
    content = io.BytesIO()
    Image.new("RGB", (16, 16)).save(content, "TIFF")
    answer = server.post(content.getvalue(), "/attention")
    assert answer.status_code == 422 and "known format" in answer.json()["detail"]


def test_attention_is_of_one_picture_at_a_time(server):
    answer = server.client.post("/attention", files=form(*PICTURES[:2]))
    assert answer.status_code == 413


def test_without_attention_the_server_says_so_and_why():
    with serving(Shades().predictor) as server:
        answer = server.post(shade(1), "/attention")
        assert (answer.status_code, server.client.get("/model").json()["attention"]) == (501, False)
        assert "it is a test" in answer.json()["detail"]
        assert "it is a test" in server.client.get("/model").json()["unseen"]  # which the page tells


# the server itself


def test_the_model_tells_its_labels_its_preparation_and_the_limits(server, model):
    answer = server.client.get("/model").json()
    assert answer["labels"] == model.labels
    assert vitrail.Preparation.read(answer["preparation"]) == model.preparation
    assert answer["limits"] == {"body": 20 * 2**20, "images": 32, "pixels": 25_000_000, "deadline": 10.0}
    assert (answer["name"], answer["engine"], answer["attention"]) == ("tiny", "torch fp32", True)


def test_it_is_alive_and_ready(server):
    assert server.client.get("/health").json() == {"status": "alive"}
    assert server.client.get("/ready").json() == {"status": "ready"}


def test_head_is_answered_as_get_without_the_body(server):
    paths = ["/", "/page.js", "/page.css", "/icon.svg", "/images.js", "/model", "/openapi.json", "/health", "/ready", "/metrics"]
    for path in [*paths, "/nothing", "/predict"]:
        got, head = server.client.get(path), server.client.head(path)
        assert head.status_code == got.status_code and head.content == b""
        assert got.status_code == {"/nothing": 404, "/predict": 405}.get(path, 200)
        varying = ("date", "content-length") if path == "/metrics" else ("date",)
        assert all(head.headers.get(name) == got.headers[name] for name in got.headers if name not in varying), path
        assert "content-length" in head.headers


def test_prometheus_is_told_of_requests_batches_and_what_waits(server):
    server.post(PICTURES[0])
    server.client.get("/nothing/here")
    answer = server.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    for line in (
        'vitrail_requests_total{path="/predict",status="200"}',
        'vitrail_requests_total{path="other",status="404"}',
        'vitrail_request_seconds_bucket{le="0.005",path="/predict"}',
        "vitrail_batch_images_count",
        "vitrail_images 0.0",
        "vitrail_body_bytes 0.0",
        "process_resident_memory_bytes",
    ):
        assert line in answer.text


def test_an_access_log_has_a_line_for_every_request_and_strangers_write_none():
    lines = []
    with serving(Shades().predictor, on_answer=lines.append) as server:
        answers = [server.client.get("/model"), server.client.head("/model"), server.post(shade(3)), server.post(b"")]
        answers.extend(server.client.get(path) for path in ("/a%0A%1B[31m%22b", "/" + 300 * "%C3%BC"))
        server.until(lambda: len(lines) == len(answers))
    found = [line.split(" ") for line in lines]
    assert all(len(words) == 7 and words[1] == "127.0.0.1" for words in found)
    assert [int(words[4]) for words in found] == [answer.status_code for answer in answers] == [200, 200, 200, 422, 404, 404]
    assert [int(words[5]) for words in found] == [len(answer.content) for answer in answers]
    assert [words[2] for words in found] == ["GET", "HEAD", "POST", "POST", "GET", "GET"]
    assert found[2][3] == "/predict" and found[4][3] == "/a%0A%1B%5B31m%22b" and len(found[5][3]) == 203
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", words[0]) and float(words[6]) >= 0 for words in found)


def test_the_description_names_every_path_and_needs_nothing_from_elsewhere(server):
    answer = server.client.get("/openapi.json").json()
    paths = {path for path in answer["paths"] if not path.startswith("/v2")}
    assert paths == {"/predict", "/attention", "/model", "/health", "/ready", "/metrics"}
    kinds = set(answer["paths"]["/predict"]["post"]["requestBody"]["content"])
    assert {"image/jpeg", "application/octet-stream", "multipart/form-data"} <= kinds
    problem = answer["paths"]["/predict"]["post"]["responses"]["429"]["content"]
    assert set(problem) == {"application/problem+json"}


def test_every_answer_has_the_headers_that_keep_browsers_from_harm(server):
    for path in ("/", "/page.js", "/model", "/nothing"):
        headers = server.client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert not [name for name in headers if name.startswith("access-control")]
        assert "server" not in headers


def test_only_finite_answers_are_given():
    says = [0.0]
    broken = replace(Shades().predictor, logits=lambda pixels: torch.full((len(pixels), SHADES), says[0]))
    with serving(broken) as server:
        assert server.post(shade(1)).status_code == 200
        says[0] = torch.nan
        assert server.post(shade(1)).status_code == 500


def test_relevance_comes_with_attention_where_there_is_one(server, model):
    assert server.post(PICTURES[3], "/attention").json()["relevance"] is None
    look, relevance = (look_of(model, seen)[0] for seen in (head_maps, relevance_map))
    with serving(in_python(model), look=look, relevance=relevance) as found:
        answer = found.post(PICTURES[3], "/attention").json()
    expected = relevance_map(model.model, model.preparation(PICTURES[3]))[0].numpy()
    shown = np.frombuffer(base64.b64decode(answer["relevance"]), np.uint8).reshape(expected.shape)
    assert shown / 255 == pytest.approx(expected / expected.max(), abs=0.003)


def test_others_are_answered_while_a_large_form_is_taken_apart():
    body = b"--B\r\n" + b"\r\n--Bx" * 900_000  # each almost ends a part
    headers = {"Content-Type": "multipart/form-data; boundary=B"}
    with serving(in_python(tiny())) as server:
        sending = Thread(target=lambda: server.client.post("/predict", content=body, headers=headers))
        sending.start()
        answered = 0
        while sending.is_alive():
            answered += server.client.get("/health").status_code == 200
        sending.join()
    assert answered >= 20  # some are answered before the form has come


def test_a_server_that_rejects_gives_unsure_images_no_label(model):
    sureness = [answer[0][1] for answer in vitrail.predict(model, PICTURES)]
    bound = (sorted(sureness)[5] + sorted(sureness)[6]) / 2
    predictor = replace(in_python(model), thresholds=[bound] * len(model.labels))
    with serving(predictor.rejecting()) as found:
        answer = found.client.post("/predict", files=form(*PICTURES)).json()["predictions"]
    assert [bool(each["labels"]) for each in answer] == [score > bound for score in sureness]
    assert all(each["predictions"] for each in answer)

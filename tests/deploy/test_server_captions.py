"""The server of a model that writes about images: captions, where it looked for each word, and what is refused."""

import base64

import numpy as np
import pytest
from server_running import noise, png, serving_by

from small_captioner import small_captioner
from vitrail.deploy.server.http.limits import Limits
from vitrail.tasks.captioning.predictor import Writer, caption
from vitrail.tasks.captioning.service import ServedCaptions

LIMITS = Limits(body=500_000, items=8, waiting=16, batch=4, pixels=1_000_000)
PICTURES = [noise(seed, size) for seed, size in enumerate([(40, 30), (30, 40), (24, 24)])]


@pytest.fixture(scope="module")
def trained():
    return small_captioner()


@pytest.fixture(scope="module")
def server(trained):
    with serving_by(ServedCaptions(Writer(trained), LIMITS), "captions") as found:
        yield found


def ask(server, *contents, **query):
    files = [("images", (f"{number}.png", content)) for number, content in enumerate(contents)]
    return server.client.post("/caption", files=files, params=query)


def captions(answer):
    assert answer.status_code == 200, answer.text
    return answer.json()["captions"]


def expected(trained, contents, tmp_path):
    files = [tmp_path / f"{number}.png" for number in range(len(contents))]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    return caption(trained, files, attention=True)


def test_captions_are_those_of_the_command_in_the_order_of_the_pictures(server, trained, tmp_path):
    found = captions(ask(server, *PICTURES))
    for number, (told, wanted) in enumerate(zip(found, expected(trained, PICTURES, tmp_path), strict=True)):
        assert told == {**wanted.to_json(f"{number}.png"), "attention": None}


def test_looks_have_a_map_for_each_word_over_what_the_model_sees(server, trained, tmp_path):
    found = captions(ask(server, *PICTURES, attention=True))
    for told, wanted in zip(found, expected(trained, PICTURES, tmp_path), strict=True):
        look = told["attention"]
        maps = np.frombuffer(base64.b64decode(look["maps"]), np.uint8).reshape(-1, look["rows"], look["columns"])
        own = np.stack([word.look for word in wanted.words])
        assert (look["rows"], look["columns"]) == own.shape[1:]
        np.testing.assert_allclose(maps / 255, own / own.max(axis=(1, 2), keepdims=True), atol=0.003)
    assert [one["attention"]["seen"] for one in found[:2]] == [[0.125, 0, 0.875, 1], [0, 0.125, 1, 0.875]]


def test_those_who_ask_for_looks_and_those_who_do_not_are_answered_together(server):
    """By one batch, as the server makes it."""
    both = [server.later(PICTURES[number % 3], f"/caption?attention={number % 2 == 1}".lower()) for number in range(8)]
    answers = [one.result for one in both]
    assert [captions(answer)[0]["attention"] is not None for answer in answers] == [number % 2 == 1 for number in range(8)]
    assert captions(answers[0])[0]["caption"] == captions(answers[3])[0]["caption"]


def test_a_model_without_attention_says_so():
    trained = small_captioner("Captioner-LSTM-Ti/16", attention="none")
    with serving_by(ServedCaptions(Writer(trained), LIMITS), "captions") as server:
        assert server.client.get("/model").json()["attention"] is False
        assert captions(ask(server, PICTURES[0]))[0]["words"]
        answer = ask(server, PICTURES[0], attention=True)
        assert answer.status_code == 501 and "no attention" in answer.json()["detail"]


def test_it_describes_itself_and_its_limits(server, trained):
    told = server.client.get("/model").json()
    assert told["vocabulary"] == trained.config.vocabulary and told["beams"] == 3 and told["attention"]
    assert told["limits"] == {"body": 500_000, "images": 8, "pixels": 1_000_000, "deadline": 10.0}
    described = server.client.get("/openapi.json").json()
    answered = described["paths"]["/caption"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
    assert answered.endswith("/Captions") and "Looks" in described["components"]["schemas"]


@pytest.mark.parametrize("damage", ["cut", "empty", "text"])
def test_damaged_pictures_are_refused_with_a_sentence(server, damage):
    content = {"cut": PICTURES[0][:200], "empty": b"", "text": b"a picture of me"}[damage]
    answer = server.post(content, "/caption")
    assert answer.status_code == 422 and answer.json()["detail"]


def test_a_wish_for_attention_is_not_passed_over_in_a_form(server):
    answer = server.client.post("/caption", files={"images": ("a.png", noise(1))}, data={"attention": "true"})
    assert answer.status_code == 422 and "?attention=" in answer.json()["hint"]


def test_more_pictures_than_at_a_time_and_too_large_ones_are_refused(server):
    from PIL import Image

    assert ask(server, *PICTURES * 3).status_code == 413
    answer = ask(server, png(Image.new("RGB", (2000, 2000))))
    assert answer.status_code == 422 and "pixels" in answer.text

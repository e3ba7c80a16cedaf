"""The server of a translator: it says what the translator says, within limits."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from server_running import Later, client, serving_by

from vitrail.data.text.tokenizer import ByteLevel
from vitrail.deploy.server.http.limits import TEXTS, Limits
from vitrail.errors import DataError
from vitrail.tasks.translation import service as texts
from vitrail.tasks.translation.predictor import InPython, Translator, writer_of
from vitrail.tasks.translation.service import ServedTranslations

SENTENCES = ["one cat", "red dog and cat", "", "dog", "one red cat and dog"]


@pytest.fixture(scope="module")
def server(translator):
    with serving_by(ServedTranslations(writer_of(translator), TEXTS), "words") as found:
        yield found


def ask(server, text, **options):
    return server.client.post("/translate", json={"text": text, **options})


def translations(answer):
    assert answer.status_code == 200, answer.text
    return answer.json()["translations"]


def expected(translator, sentences, beams=5, **options):
    return [done.to_json() for done in Translator(translator, beams=beams).translate(sentences, **options)]


def same(found, wanted):
    """Scores depend in their last digits on who stands beside a text."""
    assert [{**one, "score": 0} for one in found] == [{**one, "score": 0} for one in wanted]
    assert [one["score"] for one in found] == pytest.approx([one["score"] for one in wanted], abs=1e-4)


# what it says


def test_a_language_that_the_model_has_not_is_refused(server, monkeypatch):
    def refuse(tokenizer, text):
        raise DataError(f"the model has no language {text}", hint="did you mean >>de<<?")

    monkeypatch.setattr(ByteLevel, "language_code", refuse)
    answer = ask(server, [">>DE<<"])
    assert answer.status_code == 422 and ">>DE<<" in answer.json()["detail"] and ">>de<<" in answer.json()["hint"]


@pytest.mark.parametrize("options", [{}, {"beams": 1}, {"beams": 3}])
def test_one_text_or_several_are_answered_as_the_translator_has_them(server, translator, options):
    same(translations(ask(server, SENTENCES, **options)), expected(translator, SENTENCES, **options))
    same(translations(ask(server, "one cat", **options)), expected(translator, ["one cat"], **options))


def test_attention_comes_where_it_is_asked_for(server, translator):
    (found,) = translations(ask(server, "red dog", attention=True))
    (wanted,) = expected(translator, ["red dog"], attention=True)
    assert found["attention"][0]["tokens"] == wanted["attention"][0]["tokens"]
    assert found["attention"][0]["attention"] == [pytest.approx(row, abs=1e-3) for row in wanted["attention"][0]["attention"]]
    assert "attention" not in translations(ask(server, "red dog"))[0]
    assert "attention" not in translations(ask(server, "", attention=True))[0]


def test_a_long_text_has_the_attention_of_each_of_its_pieces(server, translator):
    (found,) = translations(ask(server, "One red cat and one dog. " * 12, attention=True, beams=1))
    assert len(found["attention"]) == 12 == len(Translator(translator).cut("One red cat and one dog. " * 12))


class Held(ServedTranslations):
    """One that computes nothing, once it has started, until it may, and remembers what was computed together."""

    def __init__(self, trained, limits):
        super().__init__(writer_of(trained), limits)
        self.go, self.begun, self.batches = threading.Event(), threading.Event(), []
        self.go.set()

    def _written(self, rows):
        self.begun.set()
        assert self.go.wait(30)
        self.batches.append(len(rows))
        return super()._written(rows)


@pytest.fixture
def held(translator):
    task = Held(translator, Limits(waiting=6, batch=4))
    with serving_by(task, "words") as server:
        task.go.clear()
        task.begun.clear()
        task.batches.clear()
        yield server
        task.go.set()


def later(server, text, **options):
    def call():
        with client(server.url) as other:
            return other.post("/translate", json={"text": text, **options})

    return Later(call)


def test_texts_of_many_requests_are_translated_together_as_each_would_be_alone(held, translator):
    first = later(held, "dog")
    assert held.service.task.begun.wait(10)
    asked = [("one cat", {}), ("red dog", {"beams": 1}), (["one", "cat and dog"], {"attention": True})]
    others = [later(held, text, **options) for text, options in asked]
    held.until(lambda: len(held.service._queue) == 4)
    # The model is the server's, too: nothing else may use it once the server computes.
    wanted = [
        expected(translator, [text] if isinstance(text, str) else text, **options) for text, options in [("dog", {}), *asked]
    ]
    held.service.task.go.set()
    for answer, translated in zip([first, *others], wanted, strict=True):
        same(translations(answer.result), translated)
    assert held.service.task.batches == [1, 4]


def test_whether_a_model_has_attention_is_not_asked_beside_the_thread_that_computes(translator, monkeypatch):
    """To ask is to run the model, which only one thread may do at a time."""
    asked = []
    monkeypatch.setattr(InPython, "attends", property(lambda self: asked.append(1) or True))
    with serving_by(ServedTranslations(writer_of(translator), TEXTS), "words") as server:
        before = len(asked)
        ask(server, "one", attention=True)
        server.client.get("/")
    assert before == len(asked) == 1


def test_a_full_queue_refuses_at_once_and_says_when_to_come_again(held):
    waiting = later(held, ["one", "cat", "dog", "red"])
    held.taken(4)
    answer = ask(held, ["one", "cat", "dog"])
    assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1
    held.service.task.go.set()
    assert len(translations(waiting.result)) == 4


def test_no_answer_goes_to_another_client(server, translator):
    wanted = {text: done["translation"] for text in SENTENCES for done in expected(translator, [text], 2)}
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda number: (number, translations(ask(server, SENTENCES[number % 5], beams=2))), range(24))
        assert all(one["translation"] == wanted[SENTENCES[number % 5]] for number, (one,) in found)


@pytest.mark.parametrize(
    ("tokens", "marks", "most", "expected"),
    [
        (5, (0, 1, 2), 128, [3, 4] * 15 + [3, 2]),
        (40, (39, 37, 38), 128, [*range(31), 38]),  # marks at the end of a vocabulary
        (40, (0, 1, 2), 4, [3, 4, 5, 2]),
    ],
)
def test_it_learns_its_pace_on_tokens_that_any_model_has(translator, tokens, marks, most, expected):
    writer = writer_of(translator)
    named = dict(zip(("pad", "start", "end"), marks, strict=True))
    writer.preparation, writer.max_tokens = type("Vocabulary", (), {**named, "__len__": lambda self: tokens})(), most
    assert ServedTranslations(writer, TEXTS).blank().tokens == expected


# what it refuses


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        (b"", 422, "Invalid JSON"),
        (b"{", 422, "Invalid JSON"),
        (b'{"text": "\xff"}', 422, "Invalid JSON"),
        (b"[" * 10_000, 422, "Invalid JSON"),
        (b'{"text": "\\ud800"}', 422, "Invalid JSON"),
        (b'"one"', 422, "body: Input should be an object"),
        (b"{}", 422, "body.text: Field required"),
        (b'{"text": 1}', 422, "body.text"),
        (b'{"text": []}', 422, "body.text"),
        (b'{"text": ["one", null]}', 422, "body.text.1"),
        (b'{"text": "one", "beams": 0}', 422, "body.beams"),
        (b'{"text": "one", "beams": 6}', 422, "body.beams"),
        (b'{"text": "one", "beams": "2"}', 422, "body.beams"),
        (b'{"text": "one", "beam": 2}', 422, "body.beam"),
        (b'{"text": "one", "attention": 1}', 422, "body.attention"),
        (b'{"text": "' + b"x" * 5001 + b'"}', 413, "5,001 characters"),
        (b'{"text": [' + b'"x",' * 32 + b'"x"]}', 413, "33 texts"),
        (b'{"text": "' + b"x" * 2**20 + b'"}', 413, "larger than 1,048,576 bytes"),
    ],
)
def test_what_is_no_request_is_refused_with_the_place_and_what_to_do(server, body, status, word):
    answer = server.client.post("/translate", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status and answer.headers["content-type"] == "application/problem+json"
    assert word in answer.json()["detail"] and answer.json()["hint"]


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        (b'{"text": [' + b"1," * 500_000 + b"1]}", 413, "500,001 texts"),
        (
            b'{"text": ["one", ' + b",".join([b"1"] * 25) + b"]}",
            422,
            "body.text.1: Input should be a valid string; 24 more mistakes",
        ),
        (b'{"text": "one"' + b"".join(b',"%d":1' % number for number in range(90_000)) + b"}", 422, "89,999 more mistakes"),
    ],
)
def test_many_mistakes_make_no_long_answer(server, body, status, word):
    answer = server.client.post("/translate", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status and word in answer.json()["detail"]
    assert len(answer.json().get("errors", [])) <= 20 and len(answer.content) < 5000


def test_a_body_that_says_it_is_no_json_is_refused_unread(server):
    for headers in ({"Content-Type": "text/plain"}, {"Content-Type": "application/json", "Content-Encoding": "gzip"}):
        assert server.client.post("/translate", content=b"x", headers=headers).status_code == 415


def test_more_pieces_or_more_attention_than_there_is_room_for_is_refused(held, server, monkeypatch):
    answer = ask(held, ["One red cat and one dog. " * 12])
    assert answer.status_code == 413 and "12 pieces" in answer.json()["detail"]
    monkeypatch.setattr(texts, "MOST_SEEN", 100)
    answer = ask(server, SENTENCES * 4, attention=True)
    assert answer.status_code == 413 and "attention" in answer.json()["detail"]
    assert ask(server, "one", attention=True).status_code == 200


def test_what_a_server_at_work_cannot_do_by_the_deadline_is_refused_at_once(held):
    held.service._queue.pace = 2.5
    waiting = later(held, "red")
    held.taken(1)
    answer = ask(held, ["one", "cat", "dog", "red", "and"])
    assert answer.status_code == 413 and "5 pieces would take about 12 seconds" in answer.json()["detail"]
    held.service.task.go.set()
    assert len(translations(waiting.result)) == 1


def test_an_idle_server_that_seemed_slow_takes_on_what_shows_that_it_is_not(held):
    """As behind a while in which the process was stopped."""
    held.service._queue.pace = 400.0
    held.service.task.go.set()
    assert len(translations(ask(held, ["one", "cat", "dog"]))) == 3
    held.until(lambda: held.service._queue.taken == 0)
    assert held.service._queue.pace < 400


def test_letters_that_need_many_bytes_and_control_characters_are_texts_like_any_other(server):
    found = translations(ask(server, ["\U0001f600\0\u2028\x1b", "</s><pad>", "\n\n"], beams=1))
    assert len(found) == 3 and all(len(one["translation"].splitlines()) <= 1 for one in found)


def test_a_model_without_attention_translates_and_says_that_it_cannot_tell(unseeing):
    with serving_by(ServedTranslations(writer_of(unseeing), TEXTS), "blind") as server:
        assert server.client.get("/model").json()["attention"] is False
        assert ask(server, "one", beams=1).status_code == 200
        answer = ask(server, "one", attention=True)
        assert answer.status_code == 501 and "no attention" in answer.json()["detail"]


# the server itself


def test_the_model_tells_its_languages_and_the_limits(server):
    answer = server.client.get("/model").json()
    assert answer["languages"] == {"source": "en", "target": "de"} and answer["attention"] is True
    assert answer["limits"] == {"body": 2**20, "texts": 32, "characters": 5000, "beams": 5, "deadline": 10.0}


def test_it_has_no_path_of_another_kind_of_model(server):
    paths = server.client.get("/openapi.json").json()["paths"]
    assert {path for path in paths if not path.startswith("/v2")} == {"/translate", "/model", "/health", "/ready", "/metrics"}
    for path in ("/predict", "/attention", "/images.js", "/v2/models/words/infer"):
        assert server.client.get(path).status_code == 404
    schemas = server.client.get("/openapi.json").json()["components"]["schemas"]
    assert "Translation" in schemas and "Prediction" not in schemas


def test_prometheus_is_told_of_texts(server):
    ask(server, "one")
    text = server.client.get("/metrics").text
    for line in ('vitrail_requests_total{path="/translate",status="200"}', "vitrail_batch_pieces_count", "vitrail_pieces 0.0"):
        assert line in text
    assert "images" not in text and "attention" not in text


def test_the_page_and_its_parts_need_no_token(translator):
    task = ServedTranslations(writer_of(translator), TEXTS)
    with serving_by(task, "words", token="secret") as server, client(server.url) as stranger:
        for path in ("/", "/page.js", "/page.css", "/texts.js", "/texts.css", "/openapi.json"):
            answer = stranger.get(path)
            assert answer.status_code == 200 and "default-src 'none'" in answer.headers["content-security-policy"]
        assert stranger.post("/translate", json={"text": "one"}).status_code == 401
        assert ask(server, "one").status_code == 200

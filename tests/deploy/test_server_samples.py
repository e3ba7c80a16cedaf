"""The server of a model that makes images: the command's images, passes that are shared, and work that ends with its client."""

import base64
import io
import json
import signal
import threading

import numpy as np
import pytest
from PIL import Image
from server_running import Later, client, serving_by

import vitrail
from tiny_diffusion import model as tiny_diffusion
from vitrail.deploy.server.http.limits import Limits
from vitrail.tasks.diffusion.service import ServedSamples

LIMITS = Limits(items=8, batch=8, deadline=30)


class Watched(ServedSamples):
    """A server that notes the passes, and waits before each while it is held."""

    def __init__(self, trained, limits=LIMITS):
        super().__init__(trained, limits)
        self.passes, self.held = [], None

    def _advanced(self, rows):
        self.passes.append(len(rows))
        if self.held is not None:
            self.held(len(self.passes))
        return super()._advanced(rows)


@pytest.fixture(scope="module")
def trained():
    return tiny_diffusion(objective="velocity")


@pytest.fixture(scope="module")
def server(trained):
    with serving_by(ServedSamples(trained, LIMITS), "tiny") as running:
        yield running


def ask(server, **fields):
    return server.client.post("/sample", json=fields)


def pictures(answer):
    assert answer.status_code == 200, answer.text
    return [np.array(Image.open(io.BytesIO(base64.b64decode(each["png"])))) for each in answer.json()["images"]]


def same(made, expected):
    assert len(made) == len(expected) > 0
    for one, other in zip(made, expected, strict=True):
        np.testing.assert_allclose(one.astype(float), np.array(other, float), atol=1)  # of 255: a rounding


@pytest.mark.parametrize("sampler", ["ddim", "ddpm", "dpm++", "heun"])
@pytest.mark.parametrize("guidance", [1, 2.5])
def test_images_are_those_of_the_command(server, trained, sampler, guidance):
    options = {"count": 4, "seed": 5, "steps": 6, "sampler": sampler, "guidance": guidance}
    answer = ask(server, **options)
    same(pictures(answer), vitrail.sample(trained, **options))
    assert [(each["class"], each["seed"]) for each in answer.json()["images"]] == [("ant", 5), ("ant", 6), ("bee", 7), ("cat", 8)]


@pytest.mark.parametrize("chosen", ["bee", 1])
def test_a_class_goes_by_its_name_or_its_index(server, trained, chosen):
    made = pictures(ask(server, **{"class": chosen}, seed=3, steps=4))
    same(made, vitrail.sample(trained, classes=["bee"], count=1, seed=3, steps=4))


@pytest.mark.parametrize("objective", ["flow", "noise"])
def test_a_model_without_classes_makes_images_and_knows_no_guidance(objective):
    trained = tiny_diffusion(num_classes=0, objective=objective)
    with serving_by(ServedSamples(trained, LIMITS), "plain") as server:
        same(pictures(ask(server, count=2, steps=4)), vitrail.sample(trained, count=2, steps=4))
        described = server.client.get("/model").json()
        assert described["classes"] == [] and not described["guidance"]
        assert ("ddpm" in described["samplers"]) == (objective == "noise")
        for fields in ({"class": "ant"}, {"class": 0}, {"guidance": 2}):
            assert ask(server, **fields).status_code == 422


def at_once(server, requests):
    """Answers to requests that are all in the server before the first pass is computed."""

    def until_all_are_in(passes):
        if passes == 1:
            server.taken(sum(request["steps"] for request in requests))

    def call(fields):
        with client(server.url) as other:
            return other.post("/sample", json=fields)

    task = server.service.task
    task.passes.clear()
    task.held = until_all_are_in
    return [one.result for one in [Later(lambda fields=fields: call(fields)) for fields in requests]]


def test_requests_of_different_steps_classes_and_guidance_share_passes(trained):
    """Eight images of 4 to 11 steps do not take 60 passes, as one after another; and each is its own image."""
    requests = [
        {
            "class": "ant",
            "seed": number,
            "steps": 4 + number,
            "guidance": 1 + number % 2,
            "sampler": ("ddim", "dpm++")[number // 4],
        }
        for number in range(8)
    ]
    with serving_by(Watched(trained), "tiny") as server:
        answers = at_once(server, requests)
        passes = server.service.task.passes
    assert sum(passes) == sum(request["steps"] for request in requests) == 60
    assert len(passes) <= 20 and max(passes) == 8
    for answer, request in zip(answers, requests, strict=True):
        options = {name: value for name, value in request.items() if name != "class"}
        same(pictures(answer), vitrail.sample(trained, classes=["ant"], count=1, **options))


@pytest.mark.parametrize("count", [1, 3])
def test_a_client_that_hangs_up_ends_its_work(trained, count):
    with serving_by(Watched(trained), "tiny") as server:
        task = server.service.task
        task.passes.clear()
        connection, gone = server.connect(), threading.Event()

        def hang_up(passes):
            if passes == 3:
                connection.close()
                server.until(lambda: server.service.active == 0)
                gone.set()

        task.held = hang_up
        body = json.dumps({"steps": 200, "count": count}).encode()
        head = "POST /sample HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
        connection.sendall(f"{head}{len(body)}\r\n\r\n".encode() + body)
        assert gone.wait(10)
        task.held = None
        assert ask(server, steps=2, seed=1).status_code == 200
        assert len(task.passes) == 3 + 2 and len(server.service._queue) == server.service._queue.taken == 0


def test_a_full_queue_refuses_and_says_when_to_come_again(trained):
    with serving_by(Watched(trained, Limits(waiting=1, items=8, deadline=30)), "tiny") as server:
        task = server.service.task
        task.passes.clear()
        refused = []
        task.held = lambda passes: refused or refused.append(ask(server, steps=1))
        with client(server.url) as other:
            assert other.post("/sample", json={"steps": 50}).status_code == 200
        assert refused[0].status_code == 429 and int(refused[0].headers["retry-after"]) >= 1


def test_more_than_can_be_done_by_the_deadline_is_refused_while_others_wait(trained):
    with serving_by(Watched(trained), "tiny") as server:
        refused, queue = [], server.service._queue
        server.service.task.passes.clear()

        def held(passes):
            if not refused:
                pace, queue.pace = queue.pace, 0.05
                refused.append(ask(server, steps=250, count=8))
                queue.pace = pace

        server.service.task.held = held
        assert ask(server, steps=3).status_code == 200
        assert refused[0].status_code == 413 and "2,000 passes would take about 100 seconds" in refused[0].json()["detail"]


def test_what_is_in_flight_at_sigterm_is_finished(trained):
    with serving_by(Watched(trained), "tiny") as server:
        task = server.service.task
        task.passes.clear()

        def held(passes):
            if passes == 2:
                server.server.handle_exit(signal.SIGTERM, None)
                server.until(lambda: server.service.draining)

        task.held = held
        with client(server.url) as other:
            answer = other.post("/sample", json={"steps": 9, "count": 2, "seed": 4})
        same(pictures(answer), vitrail.sample(trained, steps=9, count=2, seed=4))
        assert server.service.active == 0 and server.service.draining


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"class": "bea"}, 422, "did you mean 'bee'?"),
        ({"class": 3}, 422, "give 0 to 2"),
        ({"class": -1}, 422, "there is no class -1"),
        ({"class": True}, 422, "body.class"),
        ({"seed": -1}, 422, "body.seed"),
        ({"seed": 2**53}, 422, "body.seed"),
        ({"steps": 0}, 422, "body.steps"),
        ({"steps": 251}, 422, "less than or equal to 250"),
        ({"guidance": 20.1}, 422, "body.guidance"),
        ({"guidance": "2"}, 422, "body.guidance"),
        ({"count": 0}, 422, "body.count"),
        ({"count": 9}, 413, "9 images, and 8 are made at a time"),
        ({"sampler": "plms"}, 422, "body.sampler"),
        ({"step": 5}, 422, "body.step"),
    ],
)
def test_a_request_that_cannot_be_is_refused_in_a_sentence(server, fields, status, words):
    answer = ask(server, **fields)
    assert answer.status_code == status and words in answer.text


def test_the_description_and_the_metrics_know_samples(server):
    paths = server.client.get("/openapi.json").json()
    sent = paths["paths"]["/sample"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"class", "seed", "steps", "guidance", "count", "sampler"} == sent["properties"].keys()
    assert {"429", "413", "422"} <= paths["paths"]["/sample"]["post"]["responses"].keys()
    ask(server, steps=3)
    metrics = server.client.get("/metrics").text
    assert "vitrail_passes 0.0" in metrics and "vitrail_batch_passes_count" in metrics
    assert f"vitrail_passes_limit {float(50 * LIMITS.waiting)}" in metrics

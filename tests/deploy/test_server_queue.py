"""The queue: bounded, refusing at once, in batches of what waits, with deadlines, and no client in the way of another."""

import threading
import time
from dataclasses import replace

import pytest
import torch
from server_running import Later, Shades, serving, shade

from vitrail.deploy.server.http.limits import Limits
from vitrail.deploy.server.queue import Queue, sizes

HEAD = "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nContent-Length: {}\r\n\r\n"


@pytest.fixture
def shades():
    model = Shades()
    yield model
    model.go.set()


def label(answer):
    assert answer.status_code == 200, answer.text
    return [int(each["predictions"][0]["label"]) for each in answer.json()["predictions"]]


def form(*values):
    return [("images", (f"{value}.png", shade(value), "image/png")) for value in values]


def test_a_full_queue_refuses_at_once_and_before_the_body_is_read(shades):
    with serving(shades.predictor, Limits(waiting=3, batch=2)) as server:
        shades.hold()
        waiting = [server.later(shade(value)) for value in range(3)]
        server.taken(3)
        with server.connect() as connection:
            begin = time.monotonic()
            connection.sendall(HEAD.format(1000).encode())  # and not a byte of its body
            answer = connection.recv(65536).decode()
            assert time.monotonic() - begin < 1
        assert answer.startswith("HTTP/1.1 429") and "retry-after: " in answer and "connection: close" in answer
        shades.go.set()
        assert [label(one.result) for one in waiting] == [[0], [1], [2]]
        assert label(server.post(shade(9))) == [9]


def test_a_request_for_more_than_is_free_is_refused_as_a_whole(shades):
    with serving(shades.predictor, Limits(waiting=4, items=4)) as server:
        shades.hold()
        waiting = server.later(shade(1))
        server.taken(1)
        assert server.client.post("/predict", files=form(1, 2, 3, 4)).status_code == 429
        further = [server.later(shade(value)) for value in (5, 6, 7)]
        server.taken(4)
        shades.go.set()
        assert [label(one.result) for one in (waiting, *further)] == [[1], [5], [6], [7]]


def test_a_long_wait_is_refused_even_where_there_is_room(shades):
    with serving(shades.predictor, Limits(waiting=100)) as server:
        server.service._queue.pace = 2.0
        shades.hold()
        waiting = [server.later(shade(value)) for value in range(2)]
        server.taken(2)
        answer = server.post(shade(3))
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "4")
        shades.go.set()
        assert [label(one.result) for one in waiting] == [[0], [1]]


@pytest.mark.parametrize(("most", "expected"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (16, [1, 2, 4, 8, 16])])
def test_batches_have_a_few_sizes(most, expected):
    assert sizes(most) == expected


def test_requests_one_by_one_do_not_make_a_crowd_look_slow():
    """A batch of one takes as long as one of four: that is no reason to refuse four."""
    queue = Queue(lambda values: values, capacity=9, most=4, changed=threading.Condition(), observe=lambda count, seconds: None)
    for count, seconds in ((4, 1.0), (1, 1.0), (1, 1.0)):
        queue._learn_pace(count, seconds / count)
    assert queue.pace == 0.25
    queue._learn_pace(4, 0.5)
    assert queue.pace == pytest.approx(0.3)  # the machine is slower now
    queue._learn_pace(1, 0.1)
    assert queue.pace == pytest.approx(0.26)


def test_a_batch_in_which_the_process_was_stopped_hardly_counts():
    queue = Queue(lambda values: values, capacity=9, most=4, changed=threading.Condition(), observe=lambda count, seconds: None)
    queue._learn_pace(4, 0.25)
    queue._learn_pace(4, 900.0)
    assert queue.pace == pytest.approx(0.3)


def test_nobody_is_sent_away_for_longer_than_what_waits_can_take(shades):
    with serving(shades.predictor) as server:
        server.service._queue.pace = 900.0
        shades.hold()
        waiting = server.later(shade(1))
        server.taken(1)
        answer = server.post(shade(2))
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "60")
        shades.go.set()
        assert label(waiting.result) == [1]


def first_and_waiting(server, shades, count):
    """Requests for the shades from 0 on: the first is computed while ``count`` others come to wait, and then all of them go."""
    shades.hold()
    first = server.later(shade(0))
    assert shades.begun.wait(10)
    others = [server.later(shade(value)) for value in range(1, 1 + count)]
    server.until(lambda: len(server.service._queue) == count)
    shades.go.set()
    return first, *others


def test_what_waits_is_computed_together_the_moment_the_model_is_free(shades):
    with serving(shades.predictor, Limits(batch=4)) as server:
        answers = first_and_waiting(server, shades, 6)
        assert [label(one.result) for one in answers] == [[value] for value in range(7)]
        assert [len(batch) for batch in shades.batches] == [1, 4, 2]


def test_requests_take_turns_whatever_the_first_has_sent(shades):
    with serving(shades.predictor, Limits(batch=1)) as server:
        shades.hold()
        first = server.later(shade(0))
        assert shades.begun.wait(10)
        many = Later(lambda: server.client.post("/predict", files=form(1, 2, 3)))
        server.until(lambda: len(server.service._queue) == 3)
        other = server.later(shade(9))
        server.until(lambda: len(server.service._queue) == 4)
        shades.go.set()
        assert [label(one.result) for one in (first, many, other)] == [[0], [1, 2, 3], [9]]
        assert shades.batches == [[0], [1], [9], [2], [3]]


def test_an_image_that_is_alone_waits_for_no_other_and_no_packet_for_another(shades):
    with serving(shades.predictor) as server:
        took = []
        for value in range(20):
            begin = time.monotonic()
            label(server.post(shade(value)))
            took.append(time.monotonic() - begin)
        assert min(took) < 0.02


def test_what_waits_beyond_its_deadline_is_told_so_and_never_computed(shades):
    with serving(shades.predictor, Limits(deadline=0.3, batch=1)) as server:
        shades.hold()
        inside, waiting = server.later(shade(1)), None
        assert shades.begun.wait(10)
        waiting = server.later(shade(2))
        assert waiting.result.status_code == inside.result.status_code == 504
        assert waiting.result.headers["content-type"] == "application/problem+json"
        shades.go.set()
        assert label(server.post(shade(3))) == [3]
        assert shades.batches == [[1], [3]]


def test_a_client_that_goes_frees_its_place_and_is_not_computed(shades):
    with serving(shades.predictor, Limits(waiting=2, batch=1)) as server:
        shades.hold()
        inside = server.later(shade(1))
        assert shades.begun.wait(10)
        with server.connect() as connection:
            content = shade(2)
            connection.sendall(HEAD.format(len(content)).encode() + content)
            server.taken(2)
            assert server.post(shade(3)).status_code == 429
        server.taken(1)
        third = server.later(shade(3))
        server.taken(2)
        shades.go.set()
        assert [label(one.result) for one in (inside, third)] == [[1], [3]]
        assert shades.batches == [[1], [3]]


def test_a_batch_that_fails_is_told_to_those_in_it_and_to_nobody_else(shades, caplog):
    with serving(shades.predictor) as server:
        shades.fails = True
        answer = server.post(shade(1))
        assert answer.status_code == 500
        assert answer.json()["detail"] == "the model failed"
        assert "the engine is broken" in caplog.text and "the engine is broken" not in answer.text
        shades.fails = False
        assert label(server.post(shade(2))) == [2]
        assert server.service._queue.taken == 0


def test_an_image_that_fails_takes_none_of_its_batch_with_it(shades):
    def logits(pixels):
        found = shades._logits(pixels)
        return torch.where(pixels[:, :1, 0, 0] == 2, torch.nan, found)

    with serving(replace(shades.predictor, logits=logits), Limits(batch=4)) as server:
        answers = first_and_waiting(server, shades, 4)
        assert [label(answers[value].result) for value in (0, 1, 3, 4)] == [[0], [1], [3], [4]]
        assert answers[2].result.status_code == 500
        assert sorted(map(len, shades.batches)) == [1, 1, 1, 1, 1, 4]


def test_a_client_that_goes_while_it_sends_leaves_nothing_behind(shades):
    with serving(shades.predictor) as server:
        with server.connect() as connection:
            connection.sendall(HEAD.format(1000).encode() + bytes(500))
            server.until(lambda: server.service._memory.held == 500)
            assert server.service.active == 1
        server.until(lambda: server.service.active == 0)
        assert server.service._memory.held == 0


# attention


def look(pixels):
    return torch.ones(1, 1, 2, 2)


def test_attention_has_places_of_its_own(shades):
    with serving(shades.predictor, look=look) as server:
        shades.hold()
        answer = server.later(shade(1))
        assert shades.begun.wait(10)
        looks = [server.later(shade(2), "/attention") for _ in range(4)]
        server.until(lambda: server.service.queues["/attention"].taken == 4)
        refused = server.post(shade(2), "/attention")
        assert refused.status_code == 429 and "retry-after" in refused.headers
        other = server.later(shade(3))  # which is not refused
        server.taken(2)
        shades.go.set()
        assert [label(one.result) for one in (answer, other)] == [[1], [3]]
        assert {one.result.status_code for one in looks} == {200}


def test_between_two_looks_a_batch_is_answered(shades):
    order = []

    def slow(pixels):
        order.append("look")
        return look(pixels)

    with serving(shades.predictor, Limits(batch=1), look=slow) as server:
        shades.hold()
        first = server.later(shade(0))
        assert shades.begun.wait(10)
        looks = [server.later(shade(9), "/attention") for _ in range(3)]
        answers = [server.later(shade(value)) for value in (1, 2)]
        server.until(lambda: len(server.service.queues["/attention"]) == 3 and len(server.service._queue) == 2)
        shades.batches = type("Noted", (list,), {"append": lambda self, batch: order.append("answer")})()
        shades.go.set()
        assert {one.result.status_code for one in (first, *looks, *answers)} == {200}
        assert order == ["look", "answer", "look", "answer", "look"]

"""Several processes behind one address: each may die at any moment."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import httpx
import psutil
import pytest
import torch
from server_running import noise, tiny

from vitrail.deploy.server import serve
from vitrail.deploy.server.metrics import Metrics, merged
from vitrail.deploy.server.workers import connections
from vitrail.deploy.server.workers.connections import LEAVE, Door
from vitrail.deploy.server.workers.shared_state import Board, Place
from vitrail.errors import ConfigError

WORKERS = Path(__file__).with_name("server_workers.py")


def until(what: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A program; whatever it has forked is gone after the block."""
    with subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, text=True) as found:
        try:
            yield found
        finally:
            forked = [other for other in psutil.process_iter(["cmdline"]) if other.info["cmdline"] == [sys.executable, *words]]
            for other in forked:
                other.kill()


def lines(found: subprocess.Popen[str], count: int) -> list[str]:
    assert found.stderr is not None
    return [found.stderr.readline() for _ in range(count)]


# the supervisor alone


def workers(work: str, count: int = 2) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(WORKERS), work, str(count)], capture_output=True, text=True, timeout=30)


def test_why_the_first_worker_cannot_start_is_the_servers_error():
    found = workers("refuse")
    assert found.returncode == 4
    assert found.stderr.splitlines()[1:] == ["ModelFileError: the model is damaged, model.onnx"]


def test_a_first_worker_that_vanishes_ends_the_server():
    found = workers("vanish")
    assert found.returncode == 1
    assert "died at its start" in found.stderr


def test_a_worker_that_hangs_is_killed_and_replaced():
    with process(str(WORKERS), "freeze", "1") as found:
        first, started, hangs, killed, second = lines(found, 5)
        assert started == "started\n"
        assert "hangs and is killed" in hangs and "signal 9" in killed
        assert first.split()[0] == second.split()[0] == "0" and first != second


def test_a_worker_that_does_not_end_is_killed_and_told_of():
    found = workers("refuse_to_end", 1)
    assert found.returncode == 1
    assert "requests were given up" in found.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_all_and_its_number_is_given(number):
    with process(str(WORKERS), "answer", "3") as found:
        said = lines(found, 4)
        pids = [int(line.split()[1]) for line in said if line != "started\n"]
        found.send_signal(number)
        assert found.wait(10) == number
        assert len(pids) == 3 and not any(map(alive, pids))


def test_what_nohup_ignores_stays_so_but_ctrl_c_is_heard():
    ignoring = "import os, signal, sys; signal.signal(2, signal.SIG_IGN); signal.signal(1, signal.SIG_IGN); "
    with process("-c", f"{ignoring}os.execv(sys.executable, [sys.executable, {str(WORKERS)!r}, 'answer', '1'])") as found:
        lines(found, 2)
        found.send_signal(signal.SIGHUP)
        found.send_signal(signal.SIGINT)
        assert found.wait(10) == signal.SIGINT


def test_a_signal_before_the_first_worker_is_ready_is_heard():
    with process(str(WORKERS), "take_long", "2") as found:
        pid = int(lines(found, 1)[0].split()[1])
        found.send_signal(signal.SIGTERM)
        assert found.wait(10) == signal.SIGTERM
        assert not alive(pid)


def test_what_a_worker_gave_up_fails_the_server():
    with process(str(WORKERS), "give_up", "1") as found:
        lines(found, 2)
        found.send_signal(signal.SIGTERM)
        assert found.wait(10) == 1


def test_a_killed_supervisor_is_replaced_and_can_be_ended_as_the_first_one():
    with process(str(WORKERS), "answer", "2") as found:
        pids = [int(line.split()[1]) for line in lines(found, 3) if line != "started\n"]
        until(lambda: len(psutil.Process(found.pid).children()) == 3)  # the second supervisor, too
        found.kill()
        (said,) = lines(found, 1)
        second = int(re.findall(r"process (\d+) takes its place", said)[0])
        os.kill(pids[1], signal.SIGKILL)
        died, started = lines(found, 2)
        assert f"worker 2, process {pids[1]}," in died
        assert started.split()[0] == "1"
        os.kill(second, signal.SIGTERM)
        until(lambda: not any(map(alive, [second, pids[0], int(started.split()[1])])))


def test_where_no_process_can_be_made_the_others_go_on_and_it_is_tried_again():
    with process(str(WORKERS), "answer_without_forks", "2") as found:
        pids = [int(line.split()[1]) for line in lines(found, 3) if line != "started\n"]
        until(lambda: len(psutil.Process(found.pid).children()) == 3)
        os.kill(pids[0], signal.SIGKILL)
        said = lines(found, 4)
        assert "signal 9" in said[0]
        assert all("worker 1 cannot be started now" in line for line in said[1:3])
        assert said[3].split()[0] == "0"
        assert alive(pids[1])


# a server


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "tiny"
    tiny().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def server(model) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Of two workers, and its address."""
    with process("-m", "vitrail", "serve", str(model), "--port", "0", "--workers", "2") as found:
        (said,) = lines(found, 1)
        url = said.split()[-1]
        until(lambda: httpx.get(f"{url}/health").json()["workers"] == 2)
        yield found, url
        found.send_signal(signal.SIGTERM)
        assert found.wait(30) == 0


def ask(url: str) -> tuple[int, object]:
    answer = httpx.post(f"{url}/predict", content=noise(1), headers={"Content-Type": "image/png"})
    return answer.status_code, answer.json()


def test_all_workers_give_the_same_answers_and_one_scrape_counts_all(server):
    _, url = server
    assert len({str(ask(url)) for _ in range(8)}) == 1

    def counted() -> dict[str, float]:
        pattern = r'vitrail_requests_total{path="/predict",status="200",worker="(\d)"} (\S+)'
        return {worker: float(count) for worker, count in re.findall(pattern, httpx.get(f"{url}/metrics").text)}

    until(lambda: sum(counted().values()) == 8)
    assert set(counted()) <= {"1", "2"}


def test_the_server_goes_on_when_a_worker_is_killed_and_has_another_soon(server):
    found, url = server
    expected = ask(url)
    own = [
        child for child in psutil.Process(found.pid).children() if len(child.net_connections("tcp")) and child.num_threads() > 2
    ]
    own[0].kill()
    until(lambda: ask_or_none(url) == expected)
    until(lambda: not own[0].is_running())  # until the supervisor knows, it counts as one that answers
    until(lambda: httpx.get(f"{url}/health").json() == {"status": "alive", "workers": 2, "workers_wanted": 2})


def test_a_worker_that_is_told_to_end_leaves_what_comes_to_the_others(server):
    found, url = server
    expected = ask(url)
    one = next(child for child in psutil.Process(found.pid).children() if child.num_threads() > 2)
    one.terminate()
    for _ in range(10):
        assert ask_or_none(url) in (expected, None)
    until(lambda: not one.is_running() and httpx.get(f"{url}/health").json()["workers"] == 2)


def ask_or_none(url: str) -> tuple[int, object] | None:
    try:
        return ask(url)
    except httpx.TransportError:  # its connection went with the worker
        return None


# what the processes share


def test_metrics_of_several_workers_name_their_worker():
    texts = {}
    for number in (0, 1):
        metrics = Metrics("images")
        metrics.answered("/predict", 200, 0.01)
        texts[number] = metrics.text().decode()
    found = merged(texts).decode()
    for worker in ("1", "2"):
        assert f'vitrail_requests_total{{path="/predict",status="200",worker="{worker}"}} 1.0' in found
    assert found.count("# TYPE vitrail_requests_total counter") == 1


def test_metrics_are_heard_whole_or_not_at_all():
    board = Board(2)
    first, second = Place(board, 0), Place(board, 1)
    second.say(b"a 1")
    assert first.heard() == {}  # it is not ready
    second.begin()
    assert first.heard() == {1: "a 1"}
    second.own.version += 1  # killed while it wrote
    assert first.heard() == {}
    another = Place(board, 1)
    another.say(b"b 1")
    assert first.heard() == {1: "b 1"}


@pytest.fixture
def bound() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found


@pytest.fixture
def two() -> tuple[Place, Place]:
    """The places of two workers that answer."""
    board = Board(2)
    places = Place(board, 0), Place(board, 1)
    for place in places:
        place.begin()
    return places


def test_a_connection_is_left_to_a_worker_with_fewer_but_not_for_long(bound, two, monkeypatch):
    (first, second), now = two, 100.0
    monkeypatch.setattr(connections, "time", SimpleNamespace(monotonic=lambda: now))
    with Door(bound, first) as busy, Door(bound, second) as free:
        first.own.connections = 1
        with socket.create_connection(bound.getsockname()):
            with pytest.raises(BlockingIOError):
                busy.accept()
            free.accept()[0].close()
        assert second.own.connections == 1
        second.own.connections = 0
        with socket.create_connection(bound.getsockname()):
            now += 2.1 * LEAVE  # for the next one it waits anew
            for _ in range(2):
                with pytest.raises(BlockingIOError):
                    busy.accept()
                now += 0.6 * LEAVE
            busy.accept()[0].close()


def test_a_worker_in_trouble_takes_nothing_while_another_can(bound, two):
    first, second = two
    first.own.troubled = 1
    with Door(bound, first) as stuck, socket.create_connection(bound.getsockname()):
        time.sleep(2 * LEAVE)
        with pytest.raises(BlockingIOError):
            stuck.accept()
        second.own.connections = 1
        assert not second.yields and second.answering == 1
        second.own.ready = 0
        stuck.accept()[0].close()


def test_only_one_process_has_the_turn():
    board = Board(2)
    read, write = os.pipe()
    with board.turn():
        pid = os.fork()
        if not pid:
            with board.turn():
                os.write(write, b"child")
            os._exit(0)
        time.sleep(0.05)
        os.write(write, b"parent ")
    os.waitpid(pid, 0)
    assert os.read(read, 100) == b"parent child"


def test_several_workers_share_a_processor_and_no_gpu(monkeypatch):
    monkeypatch.setattr(serve, "pick_device", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    assert serve._threads_of_each(2, exported=True) >= 1  # engines compute on the processor
    with pytest.raises(ConfigError, match="this model runs on cuda"):
        serve._threads_of_each(2, exported=False)

"""Several processes under uvicorn's process manager: each answers, one that dies is replaced, and all end together."""

import contextlib
import os
import pickle
import re
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil
import pytest
from server_running import Process, client, noise, tiny

from vitrail.deploy.server import running, serve
from vitrail.deploy.server.metrics import Metrics

COUNTED = r'vitrail_requests_total\{path="/predict",status="200",worker="(\d+)"\} (\S+)'


def until(what: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "tiny"
    tiny().save_pretrained(folder)
    return folder


def workers(server: Process) -> list[psutil.Process]:
    found = []
    for child in psutil.Process(server.process.pid).children():
        with contextlib.suppress(psutil.Error):
            found += [child] if any("spawn_main" in word for word in child.cmdline()) else []
    return found


def label(url: str) -> str | None:
    """The best label by a client of its own; None where the connection went with its worker."""
    with contextlib.suppress(httpx.TransportError), client(url) as asker:
        answer = asker.post("/predict", content=noise(1), headers={"Content-Type": "image/png"})
        return answer.json()["predictions"][0]["predictions"][0]["label"]


@pytest.mark.soak
def test_two_workers_answer_one_that_is_killed_is_replaced_and_sigterm_ends_both(model):
    with Process("-m", "vitrail", "serve", str(model), "--port", "0", "--workers", "2") as server:
        url, counts = server.url, dict[str, str]()
        expected, both = label(url), workers(server)

        def counted() -> bool:
            assert label(url) == expected
            counts.update(re.findall(COUNTED, httpx.get(f"{url}/metrics").text))
            return len(counts) == 2

        until(counted)
        assert {*counts} == {str(worker.pid) for worker in both}
        both[0].kill()
        until(lambda: label(url) == expected and {*workers(server)} != {*both} and len(workers(server)) == 2)
        server.terminate()
        assert server.ended()[0] == 0
    with Process("-m", "vitrail", "serve", str(model), "--port", "0", "--workers", "2") as server:
        url, both = server.url, workers(server)
        server.process.kill()  # and its workers go, too
        until(lambda: not any(worker.is_running() for worker in both))


def test_each_worker_gets_a_copy_of_all_that_builds_its_application(model, monkeypatch):
    monkeypatch.setattr(running, "run_workers", lambda build, *others: given.append(pickle.loads(pickle.dumps(build))) or 15)
    given: list[serve.Build] = []
    assert serve.serve(model, port=0, workers=2, precision="bf16") == 15
    assert given[0].workers == 2 and given[0].options == {"precision": "bf16"}
    service, _ = given[0].opened()
    assert service.metrics._worker == str(os.getpid()) and service.described()["engine"] == "torch bf16"


def test_what_is_wrong_with_the_model_is_the_servers_error(model):
    (model.parent / "broken").mkdir()
    for file in model.iterdir():
        (model.parent / "broken" / file.name).write_bytes(file.read_bytes()[:-1])
    with Process("-m", "vitrail", "serve", str(model.parent / "broken"), "--port", "0", "--workers", "2") as server:
        code, said = server.ended()
    assert code == 4 and said.startswith("error: ")


def test_metrics_of_a_worker_name_it_in_every_sample():
    metrics = Metrics("images", "17")
    metrics.answered("/predict", 200, 0.01)
    lines = [line for line in metrics.text().decode().splitlines() if not line.startswith("#")]
    assert 'vitrail_requests_total{path="/predict",status="200",worker="17"} 1.0' in lines
    assert all('worker="17"' in line for line in lines)

"""The proxy, the unit and the manifest of docs/deploy.md: each is what its program takes, and the proxy keeps strangers away."""

import contextlib
import re
import shutil
import signal
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import yaml
from server_running import Shades, client, serving, shade

from vitrail.deploy.server import running
from vitrail.deploy.server.http.limits import Limits
from vitrail.tasks.classification.predictor import LabelPredictor

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
DOCUMENT = Path(__file__).parents[2] / "docs" / "deploy.md"
PNG = {"Content-Type": "image/png"}
TOKEN = "correct-horse-battery"
needs_nginx = pytest.mark.skipif(NGINX is None, reason="nginx is not installed: the proxy of docs/deploy.md is not tested")
MAIN = """
user root;
daemon off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {site}
}}
"""


def block(language: str) -> str:
    """The one block of the document in a language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    return found


class Proxy:
    """nginx with the configuration of the document, at a free port."""

    def __init__(self, folder: Path):
        with running.listen("127.0.0.1", 0) as free:
            self.port = free.getsockname()[1]
        self.folder, self.url = folder, f"http://127.0.0.1:{self.port}"
        (folder / "token").write_text(f'"Bearer {TOKEN}" "";\n')
        site = re.sub(r"ssl_\w+ .*;", "", block("nginx").replace("listen 443 ssl;", f"listen 127.0.0.1:{self.port};"))
        self.site = site.replace("/etc/nginx/vitrail-token", str(folder / "token"))

    def lead_to(self, port: int) -> None:
        site = self.site.replace("127.0.0.1:8000", f"127.0.0.1:{port}")
        (self.folder / "nginx.conf").write_text(MAIN.format(folder=self.folder, site=site))

    @contextlib.contextmanager
    def up(self):
        assert NGINX is not None
        words = [NGINX, "-p", str(self.folder), "-c", str(self.folder / "nginx.conf")]
        with subprocess.Popen(words, stderr=subprocess.DEVNULL) as process:
            try:
                yield process
            finally:
                process.send_signal(signal.SIGQUIT)


def of(name: str) -> LabelPredictor:
    """A model whose labels begin with its name."""
    predictor = Shades(seconds=0.02).predictor
    return replace(predictor, labels=[f"{name} {label}" for label in predictor.labels])


def label_of(url: str, number: int) -> str:
    """The label of a picture, by a client of its own; nothing is asked twice."""
    with client(url, headers={**PNG, "Authorization": f"Bearer {TOKEN}"}) as asker:
        answer = asker.post("/predict", content=shade(number))
    assert answer.status_code == 200, answer.text
    return answer.json()["predictions"][0]["predictions"][0]["label"]


@needs_nginx
def test_another_model_takes_over_behind_the_proxy_and_every_request_is_answered(tmp_path):
    proxy, over, labels = Proxy(tmp_path), threading.Event(), [[] for _ in range(4)]

    def ask(number: int) -> None:
        while not over.is_set():
            labels[number].append(label_of(proxy.url, number))

    with serving(of("old"), token=TOKEN) as old, serving(of("new"), token=TOKEN) as new, ThreadPoolExecutor(4) as pool:
        proxy.lead_to(old.port)
        with proxy.up() as process:
            old.until(lambda: is_ready(proxy.url))
            asked = [pool.submit(ask, number) for number in range(4)]
            try:
                old.until(lambda: all(len(own) > 2 for own in labels))
                proxy.lead_to(new.port)
                process.send_signal(signal.SIGHUP)
                new.until(lambda: all(own[-1].startswith("new") for own in labels))
                old.server.should_exit = True  # as SIGTERM does
                new.until(lambda: all(own[-3].startswith("new") for own in labels))
            finally:
                over.set()
            for one in asked:
                one.result()
    for number, own in enumerate(labels):
        assert (own[0], own[-1]) == (f"old {number}", f"new {number}") and {*own} == {own[0], own[-1]}


def is_ready(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError), client(url) as stranger:
        return stranger.get("/ready").status_code == 200
    return False


@needs_nginx
def test_nginx_takes_the_configuration_of_the_document(tmp_path):
    proxy = Proxy(tmp_path)
    proxy.lead_to(8000)
    words = [NGINX, "-t", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")]
    found = subprocess.run(words, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


@needs_nginx
def test_the_proxy_limits_guesses_and_connections_of_an_address_and_lets_the_token_in(tmp_path):
    proxy, shades = Proxy(tmp_path), Shades()
    with serving(shades.predictor, token=TOKEN) as server:
        proxy.lead_to(server.port)
        with proxy.up(), client(proxy.url, headers={"Authorization": "Bearer wrong"}) as guesser:
            server.until(lambda: is_ready(proxy.url))
            guessed = [guesser.get("/model").status_code for _ in range(40)]
            assert set(guessed) == {401, 429} and guessed.count(401) <= 25
            assert label_of(proxy.url, 7) == "7"  # from the same address
            shades.hold()
            with ThreadPoolExecutor(30) as pool:
                asked = [pool.submit(status_of, proxy.url, number) for number in range(30)]
                server.until(lambda: sum(one.done() for one in asked) >= 10)
                shades.go.set()
            assert sorted(one.result() for one in asked) == [200] * 20 + [429] * 10


@needs_nginx
def test_a_client_that_reads_slowly_holds_nothing_in_the_server(tmp_path):
    proxy = Proxy(tmp_path)
    with serving(Shades().predictor, token=TOKEN) as server:
        proxy.lead_to(server.port)
        with proxy.up(), contextlib.ExitStack() as held:
            server.until(lambda: is_ready(proxy.url))
            for _ in range(15):
                stalled = held.enter_context(socket.socket())
                stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                stalled.connect(("127.0.0.1", proxy.port))
                stalled.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n")
            server.until(lambda: 'path="/openapi.json",status="200"} 15.0' in server.client.get("/metrics").text)
            server.until(lambda: len(server.server.server_state.connections) <= 1)  # of who looks


def status_of(url: str, number: int) -> int:
    with client(url, headers={**PNG, "Authorization": f"Bearer {TOKEN}"}) as asker:
        return asker.post("/predict", content=shade(number)).status_code


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd is not installed: the unit of docs/deploy.md is not tested"
)
def test_systemd_takes_the_unit_of_the_document_which_waits_for_the_drain(tmp_path):
    unit = block("ini")
    (tmp_path / "vitrail.service").write_text(unit.replace("/opt/vitrail/bin/vitrail", "/bin/true").replace("User=vitrail", ""))
    words = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "vitrail.service")]
    found = subprocess.run(words, capture_output=True, text=True)
    assert "vitrail.service" not in found.stderr, found.stderr
    assert int(re.findall(r"TimeoutStopSec=(\d+)", unit)[0]) > running.patience(Limits()) + running.SPARE


def test_the_manifest_of_the_document_probes_paths_that_answer_and_waits_for_the_drain():
    deployment, service = yaml.safe_load_all(block("yaml"))
    pod = deployment["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    (container,) = pod["spec"]["containers"]
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")]
    with serving(Shades().predictor, token=TOKEN) as server, client(server.url) as stranger:
        assert [stranger.get(probe["path"]).status_code for probe in probes] == [200] * 3
    assert {probe["port"] for probe in probes} == {service["spec"]["ports"][0]["targetPort"]} == {8000}
    sleep = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["spec"]["terminationGracePeriodSeconds"] > sleep + running.patience(Limits()) + running.SPARE

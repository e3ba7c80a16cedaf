"""The proxy of docs/deploy.md: another model takes over behind it, and no request is lost."""

import contextlib
import re
import shutil
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from server_running import Shades, client, serving, shade

from vitrail.deploy.server import running
from vitrail.tasks.classification.predictor import LabelPredictor

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
DOCUMENT = Path(__file__).parents[2] / "docs" / "deploy.md"
PNG = {"Content-Type": "image/png"}
TOKEN = "correct-horse-battery"
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


class Proxy:
    """nginx with the configuration of the document, at a free port."""

    def __init__(self, folder: Path):
        with running.listen("127.0.0.1", 0) as free:
            self.port = free.getsockname()[1]
        self.folder, self.url = folder, f"http://127.0.0.1:{self.port}"
        (block,) = re.findall(r"```nginx\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
        self.site = re.sub(r"ssl_\w+ .*;", "", block.replace("listen 443 ssl;", f"listen 127.0.0.1:{self.port};"))

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


@pytest.mark.skipif(NGINX is None, reason="there is no nginx")
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

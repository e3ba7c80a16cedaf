"""A real Chromium without a window, driven over a pipe by the DevTools protocol."""

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync", "--no-first-run",
    "--disable-component-update", "--disable-quic", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--remote-debugging-pipe",
]  # fmt: skip
SECONDS = 20


class Page:
    """A page in a browser, which a test does to what a person would do."""

    def __init__(self, to_browser: int, from_browser: int):
        self._to, self._from = to_browser, from_browser
        self._number, self._rest, self._session = 0, b"", None
        self.asked: list[str] = []
        """Everything that was asked of any server."""
        self.complaints: list[str] = []
        """What the browser complained of: errors of the script, what the policy of the page forbids."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "DOM", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Have the browser do something, and its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self._heard(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert select.select([self._from], [], [], SECONDS)[0], "the browser says nothing"
            more = os.read(self._from, 1 << 20)
            assert more, "the browser has gone"
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _heard(self, event: dict[str, Any]) -> None:
        details = event.get("params", {})
        if event.get("method") == "Network.requestWillBeSent":
            self.asked.append(details["request"]["url"])
        elif event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(details["exceptionDetails"]))
        elif (
            event.get("method") == "Log.entryAdded"
            and details["entry"]["level"] == "error"
            and details["entry"]["source"] != "network"
        ):
            self.complaints.append(details["entry"]["text"])

    def open(self, url: str) -> None:
        self.send("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def value(self, script: str) -> Any:
        """What an expression of JavaScript comes to."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, script: str) -> Any:
        """Wait for an expression to be true."""
        end = time.monotonic() + SECONDS
        while not (found := self.value(script)):
            assert time.monotonic() < end, f"never: {script}; {self.value('document.body.innerText')}; {self.complaints}"
            time.sleep(0.03)
        return found

    def choose(self, selector: str, *files: Path) -> None:
        """Choose files in the dialogue of an input."""
        root = self.send("DOM.getDocument")["root"]["nodeId"]
        node = self.send("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.send("DOM.setFileInputFiles", nodeId=node, files=[str(file) for file in files])

    def drop(self, x: int, y: int, *files: Path) -> None:
        """Drop files on a place."""
        data = {"items": [], "files": [str(file) for file in files], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.send("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)

    def press(self, key: str, code: int) -> None:
        """Press a key, and let it go."""
        for kind in ("rawKeyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def sized(self, width: int, height: int, *, dark: bool = False) -> None:
        """On a screen of that size, in that scheme of colours."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def shot(self, file: Path) -> None:
        """A picture of the whole page."""
        answer = self.send("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(answer["data"]))


def opened(browser: Page, url: str, title: str) -> Iterator[Page]:
    """For a fixture: the page of a server, which must complain of nothing and ask nobody else."""
    browser.asked.clear()
    browser.complaints.clear()
    browser.sized(1280, 900)
    browser.open(url)
    browser.until(f"document.title === {title!r}")
    yield browser
    assert browser.complaints == []
    assert {asked.removeprefix("blob:").startswith(url) for asked in browser.asked} == {True}


@contextlib.contextmanager
def browsing(profile: Path) -> Iterator[Page]:
    """A page in a Chromium that is started for it and can reach nothing but this machine."""
    assert CHROMIUM is not None
    read_by_it, to_browser = os.pipe()
    from_browser, written_by_it = os.pipe()
    high = [os.dup2(end, place, inheritable=True) for end, place in ((read_by_it, 103), (written_by_it, 104))]
    quiet = (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)
    actions = [(os.POSIX_SPAWN_DUP2, 103, 3), (os.POSIX_SPAWN_DUP2, 104, 4), quiet]
    words = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}"]
    number = os.posix_spawn(CHROMIUM, words, os.environ, file_actions=actions, setpgroup=0)
    for end in (read_by_it, written_by_it, *high):
        os.close(end)
    try:
        yield Page(to_browser, from_browser)
    finally:
        os.close(to_browser)
        os.close(from_browser)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(number, signal.SIGKILL)
        os.waitpid(number, 0)

"""Nothing that runs an exported model reaches out, or leaves anything in the user's home."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deploy import no_network
from deploy.server_running import Process, client, noise
from deploy.small import described, shade_folder, small_model
from vitrail.deploy.export.export import export_graph

pytestmark = pytest.mark.skipif(not no_network.SUPPORTED, reason="the kernel takes no such filter")
FORBIDDING = str(Path(no_network.__file__))
TALKS = 5
"""Seconds after which ONNX Runtime 1.31, unless it is told not to, looks up where it reports to."""


def alone(home: Path) -> dict[str, str]:
    """An environment without what ONNX Runtime takes for a test, where it keeps quiet.

    It names the user, whom a service of this machine would otherwise be asked for, and where matplotlib keeps its list of fonts.
    """
    path = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), "MPLCONFIGDIR": str(home.parent)}
    return {**path, "HOME": str(home), "USER": "user", "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A folder with a model and images, and an empty home."""
    folder = tmp_path_factory.mktemp("network")
    (folder / "home").mkdir()
    shade_folder(folder / "images")
    small_model(num_classes=2).save_pretrained(folder / "model")
    return folder


@pytest.mark.parametrize(
    "attempt",
    ["socket.getaddrinfo('example.com', 80)", "socket.create_connection(('127.0.0.1', 9))"],
)
def test_an_attempt_to_reach_anybody_ends_the_process(attempt):
    done = subprocess.run([sys.executable, FORBIDDING, "-c", f"import socket\n{attempt}"], check=False, capture_output=True)
    assert done.returncode == -signal.SIGSYS


@pytest.mark.soak
def test_no_command_reaches_out_or_writes_to_the_home(given):
    commands = [
        "export model --to onnx --out onnx",
        "export model --to openvino --out openvino --precision int8 --calibrate images --force",
        "predict onnx images --engine onnxruntime",
        "predict onnx images --engine openvino",
    ]
    program = f"""
import time
from functools import partial
from vitrail import api
from vitrail.cli.app import main
from vitrail.deploy.export import speeds
speeds.timed = partial(speeds.timed, seconds=0.01)
begun = time.monotonic()
for command in {commands!r}:
    main(command.split())
api.bench("onnx", batch_sizes=[1], threads=[1], seconds=0.01)
time.sleep(max(0.0, {TALKS} + 2 - time.monotonic() + begun))
"""
    words = [sys.executable, FORBIDDING, "-c", program]
    done = subprocess.run(words, cwd=given, check=False, capture_output=True, text=True, env=alone(given / "home"))
    assert done.returncode == 0, done.stderr
    assert list((given / "home").iterdir()) == []


def test_no_server_reaches_out_or_writes_to_the_home(given, tmp_path):
    trained = small_model()
    export_graph(trained, described(trained), "onnx", tmp_path)
    words = [FORBIDDING, "-m", "vitrail", "serve", str(tmp_path), "--port", "0"]
    with Process(*words, environment=alone(given / "home")) as server:
        assert server.process.stderr is not None
        assert server.process.stderr.readline().startswith("engine:"), "both engines were opened"
        with client(server.url) as asking:
            assert asking.post("/predict", content=noise(0)).status_code == 200
        server.terminate()
        assert server.ended()[0] == 0
    assert list((given / "home").iterdir()) == []

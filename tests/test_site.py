"""The documents as a site: built without a warning or a connection; the tutorial's commands and its notebook run."""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small_clip import save_clip, small_clip

import vitrail
from documents import ROOT, Block, blocks, command_lines, run_block
from vitrail.cli.app import main

LOADED = re.compile(r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//|<link\b[^>]*\bhref=["']?(?:https?:)?//""")


# The pages

NO_CONNECTION = """
import socket, sys
def refuse(*_): raise OSError("the site is built without a connection")
socket.socket.connect = socket.getaddrinfo = refuse
from mkdocs.__main__ import cli
cli()
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Return the folder of the built site; a warning of the strict build fails every test of it."""
    pytest.importorskip("mkdocs", reason="there is no mkdocs (extra docs)")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-c", NO_CONNECTION, "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.soak
def test_every_document_is_a_page_and_no_page_loads_anything_from_elsewhere(site):
    documents = {document.stem for document in (ROOT / "docs").glob("*.md")} | {"index", "CHANGELOG", "CONTRIBUTING"}
    pages = {page.stem: page.read_text(encoding="utf-8") for page in site.glob("*.html")}
    assert pages.keys() == documents | {"404"}
    assert not {name for name, page in pages.items() if LOADED.search(page)}
    for name in ("formulas", "transformer"):
        assert "$" not in re.sub(r"<(pre|code|script)\b.*?</\1>", "", pages[name], flags=re.DOTALL)  # every formula is drawn
        assert pages[name].count('<svg viewBox="0 0 ') > 50


@pytest.mark.soak
def test_the_reference_has_every_public_name_with_its_docstring(site):
    page = (site / "reference.html").read_text(encoding="utf-8")
    missing = {name for name in vitrail.__all__ if not re.search(rf'id="vitrail\.{name}"', page)}
    assert not missing
    assert "Continue an interrupted run with its own settings" in page and ">Raises:<" in page
    assert "Args:" not in page and "<blockquote" not in page


# The tutorial


@pytest.fixture
def beginner(run, tmp_path, monkeypatch) -> None:
    """An empty working directory, but for tiny models under the names of published ones, which stand before the hub."""
    run.trained.save_pretrained(tmp_path / "ViT-Ti/16")
    save_clip(small_clip(), tmp_path / "openai/clip-vit-base-patch32")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: pytest.fail("the tutorial asked for an address"))


@pytest.mark.soak
def test_the_commands_of_the_tutorial_run_in_their_order(beginner):
    namespace: dict[str, Any] = {}
    for block in blocks((ROOT / "docs/tutorial.md").read_text(encoding="utf-8")):
        if block.run and block.language == "python":
            run_block("docs/tutorial.md", block, namespace)
        for line, words in command_lines(block) if block.run and block.language == "sh" else ():
            shorter = ["--epochs", "1"] if "--time-limit" in words else []

            try:
                main([*words, *shorter])
            except SystemExit as stop:
                assert not stop.code, f"docs/tutorial.md, line {line}: {' '.join(words)} ends with {stop.code}"
    for written in (
        "runs/first/report.html",
        "checks/first/wrong-labels.csv",
        "answers.csv",
        "sorted",
        "squares-onnx/model.onnx",
    ):
        assert Path(written).exists()


@pytest.mark.soak
def test_the_notebook_runs(beginner):
    cells = json.loads((ROOT / "docs/tutorial.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 5 and not any(cell.get("outputs") for cell in cells)  # what it shows is the reader's own
    namespace: dict[str, Any] = {}
    for number, text in enumerate(code, start=1):
        run_block(f"docs/tutorial.ipynb, cell {number}", Block("python", text, 1, run=True), namespace)
    assert namespace["vectors"].shape == (227, 16)


def test_the_tutorial_and_the_notebook_make_the_same_photographs():
    (tutorial, _) = (block for block in blocks((ROOT / "docs/tutorial.md").read_text()) if block.language == "python")
    cells = json.loads((ROOT / "docs/tutorial.ipynb").read_text(encoding="utf-8"))["cells"]
    assert tutorial.text in ("".join(cell["source"]) for cell in cells)

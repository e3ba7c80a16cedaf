"""A wheel of this clone holds the whole library and runs from an empty folder."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import vitrail

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "vitrail"


def pip(*words: object) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", *map(str, words), "--no-index", "--quiet"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("hatchling", reason="there is no hatchling (extra dev)")
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", ROOT, "--no-deps", "--no-build-isolation", "--wheel-dir", folder)
    (found,) = folder.iterdir()
    return found


@pytest.mark.soak
def test_a_wheel_installed_into_an_empty_folder_runs(wheel, tmp_path):
    pip("install", wheel, "--no-deps", "--target", tmp_path / "installed")
    script = f"import vitrail; assert vitrail.__file__.startswith({str(tmp_path)!r}); from vitrail.cli.app import main; main()"
    for words, said in ((["--version"], vitrail.__version__), (["recipes", "digits"], "digits")):
        answer = subprocess.run(
            [sys.executable, "-c", script, *words],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")}, capture_output=True, text=True,
        )  # fmt: skip
        assert answer.returncode == 0 and said in answer.stdout, answer.stderr


@pytest.mark.soak
def test_a_wheel_holds_every_file_of_the_library(wheel):
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("vitrail/")}
    files = (file for file in SOURCE.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    assert packed == {file.relative_to(SOURCE.parent).as_posix() for file in files}


def test_the_container_of_the_docs_is_built_from_the_clone():
    (text,) = re.findall(r"```dockerfile\n(.*?)```", (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8"), re.DOTALL)
    assert "COPY vitrail /src/vitrail\n" in text and "--no-deps --no-build-isolation ." in text
    assert "--require-hashes --no-deps -r requirements/serve.txt" in text
    assert text.startswith("ARG BASE\nFROM $BASE\n")  # by its digest, which no default can know
    assert " 'vitrail" not in text  # no index has it

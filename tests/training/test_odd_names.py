"""Images whose names are in no encoding: a run keeps them, resumes and reports on them."""

import json
import shutil

import pytest

from conftest import TINY
from vitrail import api
from vitrail.errors import ConfigError, ModelFileError
from vitrail.weights.formats.tensor_files import read_tensors


def test_a_run_takes_any_name_that_a_disk_holds(pictures, tmp_path, reported):
    data = shutil.copytree(pictures, tmp_path / "d\udcff")
    for file in [*data.glob("*/*")]:
        file.rename(file.with_name(f"g\udcff{file.name}"))
    run = api.train(data, tmp_path / "run", **TINY)
    assert "red/g\udcff0.png" in json.loads((run.folder / "splits.json").read_text())
    assert r"g\udcff" in (run.folder / "predictions.csv").read_text() and r"d\udcff" in (run.folder / "train.log").read_text()
    assert (run.folder / "report.html").exists()
    assert len((api.resume(run.folder, **{"training.epochs": 3}).folder / "metrics.jsonl").read_text().splitlines()) == 3


def test_a_run_is_written_where_its_weights_can_be_opened(pictures, run, tmp_path):
    with pytest.raises(ConfigError, match="is not in UTF-8"):
        api.train(pictures, tmp_path / "r\udcff", **TINY)
    weights = shutil.copy(run.folder / "best" / "model.safetensors", tmp_path / "w\udcff.safetensors")
    with pytest.raises(ModelFileError, match="is not valid UTF-8"):
        read_tensors(weights)

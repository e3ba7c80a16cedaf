"""A model folder says what its files were, and a file that is another is refused by name."""

import itertools
import json
import shutil
import subprocess
import threading
import time

import pytest
import torch

from vitrail import api
from vitrail.deploy.export.graph_files import description_in
from vitrail.errors import ConfigError, ModelFileError
from vitrail.weights.formats.checksums import read_again, verified
from vitrail.weights.model_folder.folder import keep_thresholds
from vitrail.weights.model_folder.trained import save_model
from vitrail.weights.reference import from_pretrained, load_model

SUMS = "SHA256SUMS"


@pytest.fixture
def saved(tmp_path, trained):
    """A model folder with its sums."""
    save_model(tmp_path / "a model", trained(registers=1), card="# A model\n")
    return tmp_path / "a model"


def run_in(folder, command: str) -> str:
    done = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_tool_of_that_name_checks_them_and_the_card_may_change(saved):
    assert run_in(saved, f"sha256sum --check --strict {SUMS}").splitlines() == [
        "config.json: OK",
        "model.safetensors: OK",
        "preprocessor_config.json: OK",
    ]
    (saved / "README.md").write_text("# Ours\n")
    (saved / "notes.txt").write_text("not listed")
    assert load_model(saved).card == "# Ours\n"


def test_labels_may_be_changed_by_hand_which_is_told(saved, capsys):
    values = json.loads((saved / "config.json").read_text())
    values["id2label"]["0"] = "tomcat"
    (saved / "config.json").write_text(json.dumps(values))
    assert load_model(saved).labels[0] == "tomcat"
    told = capsys.readouterr().err
    assert "config.json differs from its checksum" in told
    run_in(saved.parent, told.strip().partition("yourself: ")[2])
    assert load_model(saved).labels[0] == "tomcat"
    assert not capsys.readouterr().err


def test_a_changed_file_is_refused_by_name_and_the_hint_renews_the_sums(saved):
    preparation = saved / "preprocessor_config.json"
    preparation.write_text(preparation.read_text() + " ")
    with pytest.raises(ModelFileError, match=r"^preprocessor_config\.json differs from its checksum") as error:
        from_pretrained(saved)
    assert error.value.exit_code == 4
    run_in(saved.parent, error.value.hint.partition("yourself: ")[2])
    load_model(saved)
    weights = bytearray((saved / "model.safetensors").read_bytes())
    weights[-1] ^= 1  # the least of a change: a number of the last tensor
    (saved / "model.safetensors").write_bytes(weights)
    for model in (saved, saved / "model.safetensors"):
        with pytest.raises(ModelFileError, match=r"^model\.safetensors differs from its checksum"):
            from_pretrained(model)


def test_what_is_refused_at_once_does_not_wait_for_the_sum_of_a_large_file(tmp_path):
    with (tmp_path / "model.safetensors").open("wb") as content:
        content.truncate(40 * 2**30)  # a minute of reading
    (tmp_path / SUMS).write_text(f"{0:064}  model.safetensors\n")
    begin = time.monotonic()
    with pytest.raises(ZeroDivisionError), verified(tmp_path, ["model.safetensors"]):
        raise ZeroDivisionError
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize("line", [f"{0:064}  ../config.json", f"{0:064}  /etc/passwd", f"{0:064}  ..", "0  config.json", "\\"])
def test_sums_of_files_elsewhere_and_damaged_ones_are_refused(line, saved):
    (saved / SUMS).write_text((saved / SUMS).read_text() + line + "\n")
    with pytest.raises(ModelFileError, match="no sum of a file in this folder") as error:
        load_model(saved)
    assert str(error.value.where).endswith(f"{SUMS}:4")


def test_a_link_in_the_place_of_the_sums_shows_nothing_of_the_file_it_leads_to(saved, tmp_path):
    (tmp_path / "secret").write_text("a password\nanother\n")
    (saved / SUMS).unlink()
    (saved / SUMS).symlink_to(tmp_path / "secret")
    with pytest.raises(ModelFileError, match="line 1 is no sum") as error:
        load_model(saved)
    assert "password" not in str(error.value)


def test_a_model_that_is_replaced_again_and_again_is_read_whole(saved, trained, tmp_path, capsys):
    """By the way of a run, whose best model is replaced while others read it."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "status.json").write_text('{"state": "running", "best": true}')
    models = [trained(seed, registers=1) for seed in (0, 1)]
    for number, model in enumerate(models):
        model.labels = [f"{label} {number}" for label in model.labels]
    models[0].save_pretrained(run / "best")
    over = threading.Event()

    def replace() -> None:
        for model in itertools.cycle(models):
            if over.is_set():
                return
            save_model(run / "best", model, card="# A model\n")
            over.wait(0.2)  # long enough that some read ends between two replacements, also on a busy machine

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        begin, seen = time.monotonic(), []
        while time.monotonic() - begin < 1:
            found = from_pretrained(run)
            number = int(found.labels[0][-1])
            seen.append(number)
            assert torch.equal(found.model.state_dict()["norm.weight"], models[number].model.state_dict()["norm.weight"])
    finally:
        over.set()
        writer.join()
    assert seen and "differs from its checksum" not in capsys.readouterr().err


@pytest.mark.parametrize(("changed", "reads"), [("", 1), ("other.txt", 1), ("model.safetensors", 2)])
def test_a_refused_file_is_read_again_where_it_was_replaced_and_not_where_another_one_was(changed, reads, tmp_path):
    (file := tmp_path / "model.safetensors").touch()
    done = []

    def read() -> None:
        done.append(file)
        if changed and len(done) < 2:
            (tmp_path / "new").touch()
            (tmp_path / "new").rename(tmp_path / changed)
        raise ModelFileError("damaged", where=file, hint="fetch it again")

    with pytest.raises(ModelFileError, match="damaged"):
        read_again(file, read)
    assert len(done) == reads


def test_a_folder_needs_no_sums_and_files_that_are_not_there_are_not_missed(saved):
    (saved / SUMS).write_text(f"{0:064}  optimizer.bin\n{(saved / SUMS).read_text()}")
    assert load_model(saved).labels
    (saved / SUMS).unlink()
    assert load_model(saved).labels
    keep_thresholds(saved, [0.5, 0.25, 0.5])
    assert (saved / SUMS).exists() and load_model(saved).thresholds == (0.5, 0.25, 0.5)


def test_a_run_and_what_is_exported_of_it_have_them(run, tmp_path):
    for folder in (run.folder / "best", run.folder / "last"):
        run_in(folder, f"sha256sum --check --strict {SUMS}")
    api.export(run.folder, tmp_path / "graph", to="onnx")
    assert "model.onnx: OK" in run_in(tmp_path / "graph", f"sha256sum --check --strict {SUMS}")
    graph = tmp_path / "graph" / "model.onnx"
    graph.write_bytes(graph.read_bytes() + b"\x32\x00")  # a doc_string of no letters: the same graph
    with pytest.raises(ModelFileError, match=r"^model\.onnx differs from its checksum"):
        description_in(graph)


def test_a_saved_model_replaces_an_older_one_and_nothing_else(saved, trained, tmp_path, monkeypatch):
    (saved / "README.md").write_text("written on by hand")
    model = trained()
    model.save_pretrained(saved)
    assert "written on by hand" not in (saved / "README.md").read_text()
    for other in ("notes.txt", "drafts"):
        (saved / other).mkdir() if other == "drafts" else (saved / other).touch()
        with pytest.raises(ConfigError, match="exists"):
            model.save_pretrained(saved)
        assert (saved / other).exists() and (saved / "model.safetensors").exists()
        (saved / other).rmdir() if other == "drafts" else (saved / other).unlink()
    (file := tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigError, match="exists"):
        model.save_pretrained(file)
    assert file.read_text() == "mine" and not list(tmp_path.glob(".file*"))
    (here := tmp_path / "here").mkdir()
    monkeypatch.chdir(here)
    model.save_pretrained(".")
    assert (here / "model.safetensors").exists()


def test_a_run_is_not_replaced_by_its_model(run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(run.folder, folder)
    with pytest.raises(ConfigError, match="exists"):
        from_pretrained(folder).save_pretrained(folder)
    assert (folder / "checkpoints").is_dir() and (folder / "status.json").exists()

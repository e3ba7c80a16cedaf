"""Several processes make of a run what one makes of it, read their own shares, stop together, and go on in other numbers."""

import csv
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from commands import Command, started
from safetensors.torch import load_file
from together import QUICK, cases

import vitrail
from vitrail import api
from vitrail.errors import ConfigError, DataError
from vitrail.files import locked
from vitrail.runtime.processes import Processes
from vitrail.training.loop.learner import require_possible
from vitrail.training.runs.checkpoint import checkpoints

KINDS = ("ddp", "fsdp")


def found_together(folder: Path, *words: str) -> dict:
    """What `together` found in two processes started by torchrun."""
    script = Path(__file__).with_name("together.py")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*torchrun, str(script), str(folder), *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "results.json").read_text())


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> dict:
    return found_together(tmp_path_factory.mktemp("together"))


@pytest.fixture(scope="module")
def every_result(tmp_path_factory) -> dict:
    return found_together(tmp_path_factory.mktemp("everything"), "all")


@pytest.mark.parametrize(
    ("kind", "case"),
    [*((kind, case) for kind in KINDS for case in (*QUICK, "adamw", "dino")), ("ddp", "texts"), ("ddp", "diffusion")],
)
def test_two_processes_train_as_one_does(results, kind, case):
    """After ten steps of plain gradient descent, whose parameters differ no more than their gradients did; and of AdamW."""
    found = results[f"{kind} {case}"]
    assert found["steps"] >= 10 and found["weights"] <= 1e-6 and found["metrics"] <= 1e-6


@pytest.mark.soak
@pytest.mark.parametrize(
    ("kind", "case"), [(kind, case) for kind in KINDS for case in (*cases(kind), "texts", "diffusion", "dino", "muon", "poses")]
)
def test_two_processes_train_as_one_does_in_every_way(every_result, kind, case):
    """Muon computes in 16 bits and makes small singular values large, so that what rounding leaves is seen in single weights.

    The OKS, exponentials of squares, differs by 1.3e-6 with AVX2 alone.
    """
    found = every_result[f"{kind} {case}"]
    weights, metrics = {"muon": (1e-3, 1e-4), "poses": (1e-6, 2e-6)}.get(case, (1e-6, 1e-6))
    assert found["steps"] >= 10 and found["weights"] <= weights and found["metrics"] <= metrics


@pytest.fixture(params=["ddp", pytest.param("fsdp", marks=pytest.mark.soak)])
def batch_norm(request) -> dict:
    """What was found of models with BatchNorm."""
    found = request.getfixturevalue("results" if request.param == "ddp" else "every_result")
    return found[f"{request.param} batch norm"]


def test_what_batch_norm_remembers_is_the_same_in_both_processes_and_in_their_average(batch_norm):
    """Else they would evaluate different models, each a part of the images."""
    assert batch_norm["processes"] == 0
    assert batch_norm["batches"][0] == batch_norm["batches"][1]


def test_two_processes_remember_the_mean_of_the_whole_batch_however_unequal_their_parts(batch_norm):
    assert batch_norm["moved"] > 0.01 and batch_norm["one"] <= 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_to_one_of_two_processes_stops_both_and_the_resumed_run_is_the_unbroken_one_to_the_bit(results, kind):
    found = results[f"{kind} resumed by 2"]
    assert (found["code"], found["at"], found["weights"]) == (143, 5, 0.0)
    assert found["kept"] == ["step-000000006", "step-000000005"]


@pytest.mark.parametrize("kind", KINDS)
def test_one_process_goes_on_with_the_checkpoint_of_two(results, kind):
    found = results[f"{kind} resumed by 1"]
    assert (found["at"], found["done"]) == (5, 6)
    assert 0 < found["weights"] < 0.01  # other dropout in the last step


def test_an_image_that_one_process_cannot_read_stops_both_with_everything_saved(results):
    assert results["unreadable"] == ["a.png 2 ['step-000000002']"] * 2


# the commands, without torchrun itself, which makes no difference to them


@pytest.fixture
def launch(tmp_path) -> Callable[..., list[Command]]:
    """``launch("train", …)``: the command in two processes that know of each other."""
    commands: list[Command] = []

    def start(*words: object) -> list[Command]:
        commands.extend(started([str(word) for word in words], 2, tmp_path / f"printed-{len(commands)}"))
        return commands[-2:]

    yield start
    for command in commands:
        command.process.kill()


def ended(commands: list[Command]) -> tuple[list[int], list[str], list[str]]:
    """Exit codes and what was printed."""
    for command in commands:
        command.process.join(120)
    codes = [143 if command.process.exitcode == -signal.SIGTERM else command.process.exitcode for command in commands]
    return codes, [command.out.read_text() for command in commands], [command.err.read_text() for command in commands]


def test_two_processes_evaluate_and_predict_as_one_does_and_the_first_prints(launch, run, pictures):
    codes, outs, _ = ended(launch("evaluate", run.folder, "--data", pictures, "--batch-size", 5, "--json"))
    assert codes == [0, 0] and outs[1] == ""
    evaluation, split = api.evaluate(run.folder, pictures)
    assert json.loads(outs[0]) == {**{k: pytest.approx(v) for k, v in evaluation.scores().items()}, "split": split}
    codes, outs, _ = ended(launch("predict", run.folder, pictures, "--json", "--top", 2))
    assert codes == [0, 0] and outs[1] == ""
    answers = json.loads(outs[0])
    expected = vitrail.predict(run.folder, [answer["image"] for answer in answers], top=2)
    assert [answer["image"] for answer in answers] == sorted(str(p) for p in pictures.rglob("*.png"))
    assert [[p["label"] for p in a["predictions"]] for a in answers] == [[label for label, _ in one] for one in expected]


def test_two_terminated_processes_leave_with_143_and_everything_saved(launch, pictures, tmp_path, tiny):
    settings = [word for name, value in {**tiny, "training.epochs": 100_000}.items() for word in (f"--{name}", value)]
    folder = tmp_path / "run"
    commands = launch("train", *settings, "--data", pictures, "--out", folder)
    waited = time.monotonic()
    while not (folder / "metrics.jsonl").exists() and time.monotonic() < waited + 60:
        time.sleep(0.05)
    for command in commands:
        command.process.terminate()
    codes, outs, errs = ended(commands)
    assert codes == [143, 143] and outs == ["", ""]
    assert f"resume {folder}" in errs[0] and not errs[1]
    status = json.loads((folder / "status.json").read_text())
    assert status["state"] == "interrupted" and checkpoints(folder)[0].name == f"step-{status['step']:09d}"
    epochs = [int(row["epoch"]) for row in csv.DictReader((folder / "metrics.csv").open())]
    assert epochs == list(range(1, status["epoch"] + 1))


def test_a_wrong_setting_is_told_once(launch, pictures, tmp_path):
    codes, _, errs = ended(launch("train", "--data", pictures, "--out", tmp_path / "run", "--lr", -1))
    assert codes == [2, 2] and "lr" in errs[0] and errs[1] == ""


def test_a_run_that_somebody_works_on_is_told_once_and_left_by_both(launch, run, tmp_path):
    folder = shutil.copytree(run.folder, tmp_path / "run")
    status = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps({**status, "state": "running"}))
    with locked(folder):
        codes, _, errs = ended(launch("resume", folder))
    assert codes == [2, 2] and "another process is at work" in errs[0] and errs[1] == ""


@pytest.mark.soak
def test_a_shape_of_parameters_is_the_same_file_whoever_wrote_it(launch, pictures, tmp_path, tiny):
    settings = {**tiny, "optimizer.name": "sgd", "model.dropout": 0, "augmentation.policy": "none"}
    words = [word for name, value in settings.items() for word in (f"--{name}", value)]
    codes, _, errs = ended(launch("train", *words, "--data", pictures, "--parallel", "fsdp", "--out", tmp_path / "two"))
    assert codes == [0, 0], errs
    api.train(pictures, tmp_path / "one", **settings)
    one, two = (load_file(tmp_path / name / "last/model.safetensors") for name in ("one", "two"))
    for name in one:
        torch.testing.assert_close(one[name], two[name], atol=1e-5, rtol=0)
    assert re.findall(r"rank|process", (tmp_path / "two/train.log").read_text()) == []


@pytest.mark.soak
def test_two_processes_fit_the_head_that_one_fits(launch, run, pictures, tmp_path):
    """Each computes the features of its part of every batch; one of 5 images has no part for the second at its end."""
    words = ["--from", run.folder, "--data", pictures, "--tune", "head", "--batch-size", 3]
    codes, _, errs = ended(launch("train", *words, "--out", tmp_path / "two"))
    assert codes == [0, 0], errs
    alone = api.train(pictures, tmp_path / "one", start=str(run.folder), tune="head", batch_size=3)
    one, two = (load_file(folder / "best/model.safetensors") for folder in (alone.folder, tmp_path / "two"))
    for name in one:
        torch.testing.assert_close(one[name], two[name], atol=1e-4, rtol=1e-3)


# alone


def test_alone_everything_is_ones_own():
    group = Processes()
    assert group.first and group.part([1, 2, 3]) == [1, 2, 3] and group.all_reduce_max(1, 2) == [1, 2]
    assert group.broadcast("a") == "a" and group.all_gather("a") == ["a"]
    with pytest.raises(DataError, match="gone"), group.together():
        raise DataError("gone")


@pytest.mark.parametrize("count", [1, 3])
def test_shares_in_order_are_everything(count):
    items = list(range(10))
    assert [x for rank in range(count) for x in Processes(rank, count).part(items)] == items


@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 1, 2)])
def test_what_processes_make_of_the_things_dealt_to_them_comes_in_order(sizes, monkeypatch):
    items = list(range(10))
    shares = [Processes(rank, 3).dealt(items) for rank in range(3)]
    made = [[share[i : i + size] for i in range(0, len(share), size)] for share, size in zip(shares, sizes, strict=True)]
    turns = iter([[batches[turn] if turn < len(batches) else None for batches in made] for turn in range(5)])
    monkeypatch.setattr(Processes, "all_gather", lambda self, own: next(turns))
    assert [x for batch in Processes(0, 3).in_order(made[0]) for x in batch] == items


def test_fp16_does_not_go_with_shared_parameters(make_trainer):
    from vitrail.training.loop.trainer import Trainer

    one = make_trainer()
    settings = one.settings.changed(training=one.settings.training.changed(parallel="fsdp", precision="fp16"))
    with pytest.raises(ConfigError, match="fp16"):
        Trainer(settings, one.learner.task, one.data, one.folder, group=Processes(0, 2))
    with pytest.raises(ConfigError, match="fp16"):
        require_possible(settings, one.learner.task, Processes(0, 2))  # before a probe begins

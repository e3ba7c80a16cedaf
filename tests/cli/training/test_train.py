"""``vitrail train``: flags to settings, and whole runs through the command line."""

import json
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Literal, get_args, get_origin

import pytest
import yaml

from vitrail import api
from vitrail.cli.training.train import dotted_settings, print_result
from vitrail.config.configuration import deep_merge, nested
from vitrail.config.settings import RunSettings
from vitrail.config.short_names import SHORT_NAMES
from vitrail.models.inference import quickest_precision
from vitrail.result import Run
from vitrail.runtime.device import pick_device
from vitrail.training.runs import setup as preparing
from vitrail.training.runs.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("unreported")

# flags to settings


@pytest.fixture
def settings_of(vitrail, monkeypatch, pictures, tmp_path):
    """The complete settings that a command line stands for; nothing is trained."""
    seen, model = {}, SimpleNamespace(uses=())

    def note_down(out=None, *, recipe=None, config=None, observer=None, **settings):
        seen["settings"], seen["start"] = preparing.resolve_run(recipe, config, nested(settings))
        return Run(tmp_path, model, "test", {"top1": 0.0, "loss": 0.0, "images": 0})

    def settings_of(*words, data=pictures) -> RunSettings:
        seen.clear()
        answer = vitrail("train", "--data", data, *words)
        assert answer.code == 0, answer.err
        return seen["settings"]

    monkeypatch.setattr("vitrail.api.train", note_down)
    return settings_of


def choices(section, prefix=""):
    """A (dotted name, choice) for every field that has a list of choices."""
    for name, field in section.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and hasattr(kind, "model_fields"):
            yield from choices(kind, f"{prefix}{name}.")
        elif get_origin(kind) is Literal:
            yield f"{prefix}{name}", get_args(kind)[-1]
        elif kind is bool:
            yield f"{prefix}{name}", not field.default


def at(settings, dotted):
    for name in dotted.split("."):
        settings = getattr(settings, name)
    return settings


COMPANIONS = {
    ("model.embedding_norm", "patches"): ("--model.embedding", "conv"),
    ("model.embedding_norm", "projected"): ("--model.embedding", "conv"),
    ("model.crop_remainder", True): ("--model.embedding", "conv"),
    ("model.distillation_token", True): ("--model.pool", "class"),
    ("distillation.kind", "soft"): ("--teacher", "RUN"),
    ("distillation.once", True): ("--teacher", "RUN"),
    ("training.tune", "head"): ("--from", "RUN"),
    ("training.tune", "lora"): ("--from", "RUN"),
}
"""What else a choice asks for; RUN stands for a finished run."""


@pytest.mark.parametrize(("name", "choice"), list(choices(RunSettings)))
def test_every_choice_can_be_made_on_the_command_line(settings_of, run, name, choice):
    text = str(choice).lower() if isinstance(choice, bool) else choice
    companions = [run.folder if word == "RUN" else word for word in COMPANIONS.get((name, choice), ())]
    settings = settings_of(f"--{name.replace('_', '-')}", text, *companions)
    assert at(settings, name) == choice


NUMBERS = {
    "model.patch_size": ("4", (4, 4)),
    "model.layer_scale": ("0.1", 0.1),
    "model.norm_eps": ("1e-5", 1e-5),
    "augmentation.horizontal_flip": ("0", 0.0),
    "optimizer.lr": ("1e-4", 1e-4),
    "optimizer.betas": ("[0.9, 0.95]", (0.9, 0.95)),
    "schedule.warmup_epochs": ("0.5", 0.5),
    "training.accumulate": ("4", 4),
}


@pytest.mark.parametrize(("name", "text", "value"), [(n, t, v) for n, (t, v) in NUMBERS.items()])
def test_every_number_can_be_given_on_the_command_line(settings_of, name, text, value):
    assert at(settings_of(f"--{name.replace('_', '-')}", text), name) == value
    assert at(settings_of(f"--{name}={text}"), name) == value


SHORT = {
    "time_limit": ("1h30m", 5400.0),
    "patience": ("3", 3),
    "task": ("mae", "mae"),
    "model": ("ViT-S/16", "ViT-S/16"),
    "epochs": ("7", 7),
    "batch_size": ("9", 9),
    "tune": ("all", "all"),
    "teacher": ("ann/teacher", "ann/teacher"),
    "lr": ("1e-4", 1e-4),
    "seed": ("5", 5),
    "image_size": ("48x32", (48, 32)),
    "precision": ("bf16", "bf16"),
    "checkpoint_every_steps": ("11", 11),
    "checkpoint_every_seconds": ("1.5", 1.5),
    "parallel": ("fsdp", "fsdp"),
    "bad_images": ("skip", "skip"),
    "balance": ("loss", "loss"),
    "track": ("tensorboard", "tensorboard"),
}


def test_images_are_mirrored_or_not_by_a_flag(settings_of):
    flips = [settings_of(*words).augmentation.horizontal_flip for words in (["--no-flip"], ["--flip"], [])]
    assert flips == [0, 0.5, 0.5]
    digits = settings_of("--recipe", "digits", "--flip")
    assert digits.augmentation.horizontal_flip == 0.5


OF_SENTENCES = {"source": "en", "target": "de", "bad_lines": "skip"}


@pytest.mark.parametrize("name", SHORT)
def test_a_short_flag_is_the_setting_it_stands_for(settings_of, name):
    text, value = SHORT[name]
    assert at(settings_of(f"--{name.replace('_', '-')}", text), SHORT_NAMES[name]) == value
    assert SHORT.keys() | {"data", "fast_dev_run", "text", "probe", *OF_SENTENCES} == SHORT_NAMES.keys()


def test_labelled_images_for_a_probe_belong_to_tasks_without_labels(settings_of, vitrail, pictures):
    assert settings_of("--task", "dino", "--probe", "labels.csv").task.probe == "labels.csv"
    answer = vitrail("train", "--data", pictures, "--probe", "labels.csv")
    assert answer.code == 2 and "probe" in answer.err


def test_a_flag_without_a_value_says_yes(settings_of):
    assert settings_of("--fast-dev-run").training.fast_dev_run
    settings = settings_of("--training.compile", "--model.qk-norm", "--training.ema", "0.9")
    assert settings.training.compile
    assert settings.model.qk_norm
    assert settings.training.ema == 0.9


def test_values_of_dotted_flags_are_read_as_yaml():
    words = ("--a.b", "0.1", "--c=true", "--d", "null", "--e-f", "-5", "--g", "[1, 2]", "--h", "a: b: c", "--i=x=y", "--j")
    assert dotted_settings(words) == {
        "a.b": 0.1, "c": True, "d": None, "e_f": -5, "g": [1, 2], "h": "a: b: c", "i": "x=y", "j": True,
    }  # fmt: skip


@pytest.mark.parametrize("words", [["--time-limit", "1:30"], ["--training.time-limit", "1:30"], ["--config", "FILE"]])
def test_minutes_and_seconds_are_no_number_in_base_60(vitrail, pictures, tmp_path, words):
    file = tmp_path / "config.yaml"
    file.write_text("training:\n  time_limit: 1:30\n")
    words = [str(file) if word == "FILE" else word for word in words]
    answer = vitrail("train", "--data", pictures, "--out", tmp_path / "run", *words)
    assert answer.code == 2 and "training.time_limit cannot be '1:30'" in answer.err


def test_flags_stand_over_the_file_and_the_file_over_the_recipe(settings_of, tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text("training:\n  epochs: 3\n  seed: 4\n")
    recipe = settings_of("--recipe", "scratch")
    settings = settings_of("--recipe", "scratch", "--config", file, "--epochs", "5")
    assert (settings.training.epochs, settings.training.seed) == (5, 4)
    assert settings.training.batch_size == recipe.training.batch_size
    assert settings.model == recipe.model


# whole runs


def test_train_prints_the_result_on_stdout_and_progress_and_next_commands_on_stderr(vitrail, pictures, tiny_flags, tmp_path):
    folder = tmp_path / "run"
    answer = vitrail("train", "--data", pictures, "--out", folder, *tiny_flags)
    assert answer.code == 0, answer.err
    assert answer.out.startswith("test accuracy ")
    assert len(answer.out.splitlines()) == 1
    assert answer.err.count("epoch ") == 2
    assert answer.err.splitlines()[-5:] == [
        f"  vitrail evaluate {folder}",
        f"  vitrail predict {folder} IMAGES",
        f"  vitrail study {folder}",
        f"  vitrail export {folder}",
        f"  vitrail serve {folder}",
    ]
    assert "\x1b" not in answer.out + answer.err
    again = vitrail("evaluate", folder, "--json")
    assert f"{100 * json.loads(again.out)['top1']:.2f} %" in answer.out


def test_a_run_names_itself_after_its_data_when_it_is_given_no_folder(vitrail, pictures, tiny_flags, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert vitrail("train", "--data", pictures, *tiny_flags, "--fast-dev-run").code == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("pictures-")


def test_a_run_keeps_the_precision_that_the_machine_has_chosen(vitrail, pictures, tiny_flags, tmp_path):
    run = tmp_path / "run"
    answer = vitrail("train", "--data", pictures, *tiny_flags, "--fast-dev-run", "--precision", "auto", "--out", run)
    chosen = quickest_precision(pick_device())
    assert answer.code == 0 and f"precision {chosen}, the quicker one here" in answer.err
    assert RunFolder.open(run).settings.training.precision == chosen


@pytest.mark.parametrize(
    ("classes", "flags"),
    [
        (("red", "blue"), ()),
        (("red", "green", "blue"), ("--image-size", "12x8")),
    ],
    ids=["other classes", "images that are no square"],
)
def test_training_goes_on_from_an_earlier_run(vitrail, run, pictures, tmp_path, classes, flags):
    data = tmp_path / "data"
    data.mkdir()
    for name in classes:
        (data / name).symlink_to(pictures / name)
    answer = vitrail("train", "--data", data, "--out", tmp_path / "tuned", "--from", run.folder, "--fast-dev-run", *flags)
    assert answer.code == 0, answer.err
    config = yaml.safe_load((tmp_path / "tuned" / "config.yaml").read_text())
    assert config["model"]["dim"] == run.trained.model.config.dim
    assert config["model"]["num_classes"] == len(classes)
    assert config["start"] == str(run.folder)


def test_the_demo_trains_on_the_digits_and_tells_what_to_do_next(vitrail, tmp_path, monkeypatch):
    quick = {"training": {"fast_dev_run": True}, "model": {"depth": 1, "dim": 16}}
    monkeypatch.setattr("vitrail.config.request.read_recipe", lambda name: _merged(deep_merge, name, quick))
    answer = vitrail("demo", "--out", tmp_path / "demo", "--seed", "3")
    assert answer.code == 0, answer.err
    assert answer.out.startswith("test accuracy ")
    assert "report.html" in answer.err
    assert answer.err.splitlines()[-5].startswith("  vitrail evaluate ")
    config = yaml.safe_load((tmp_path / "demo" / "config.yaml").read_text())
    assert (config["data"]["source"], config["training"]["seed"]) == ("digits", 3)


def _merged(merge, name, quick):
    from vitrail.config.recipes import read_recipe

    return merge(read_recipe(name), quick)


@pytest.mark.parametrize(("number", "code"), [pytest.param(signal.SIGINT, 130, marks=pytest.mark.soak), (signal.SIGTERM, 143)])
def test_a_signal_stops_a_run_with_its_state_saved(vitrail, pictures, tiny_flags, tmp_path, number, code):
    folder = tmp_path / "run"
    tiny_flags[tiny_flags.index("--training.epochs") + 1] = "100000"
    words = ["train", "--data", str(pictures), "--out", str(folder), *tiny_flags]
    with subprocess.Popen(
        [sys.executable, "-m", "vitrail", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as training:
        assert training.stderr.readline().startswith("epoch ")
        training.send_signal(number)
        out, err = training.communicate()
    assert training.returncode == code
    assert out == ""
    assert "stopping after this step; a second time stops at once" in err.splitlines()
    said = ["error: interrupted; everything is saved", f"where: {folder}", f"what to do: python -m vitrail resume {folder}"]
    assert err.splitlines()[-3:] == said
    status = json.loads((folder / "status.json").read_text())
    assert (status["state"], status["resume"]) == ("interrupted", f"vitrail resume {folder}")
    assert (folder / "checkpoints" / f"step-{status['step']:09d}").is_dir()


def test_resume_finishes_a_run(vitrail, pictures, tiny_flags, tmp_path):
    from vitrail.runtime.observer import Observer
    from vitrail.runtime.signals import InterruptedRunError

    class Impatient(Observer):
        def step(self, epoch, sums):
            signal.raise_signal(signal.SIGTERM)

    folder = tmp_path / "run"
    with pytest.raises(InterruptedRunError):
        api.train(pictures, folder, observer=Impatient(), **dotted_settings(tuple(tiny_flags)))
    answer = vitrail("resume", folder)
    assert answer.code == 0, answer.err
    assert answer.out.startswith("test accuracy ")
    status = json.loads((folder / "status.json").read_text())
    assert (status["state"], status["resume"], status["epoch"]) == ("finished", None, 2)
    assert vitrail("evaluate", folder).code == 0


def test_resuming_a_finished_run_says_so_and_evaluates_nothing(vitrail, run, monkeypatch):
    before = {file: file.stat().st_mtime_ns for file in run.folder.rglob("*")}
    answer = vitrail("resume", run.folder)
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == f"finished: nothing to resume; vitrail resume {run.folder} --epochs N extends it\n"
    monkeypatch.setattr("vitrail.training.runs.run.evaluate", lambda *_, **__: pytest.fail("it evaluates"))
    again = api.resume(run.folder)
    assert (again.folder, again.split, again.scores) == (run.folder, run.split, run.scores)
    assert {file: file.stat().st_mtime_ns for file in run.folder.rglob("*")} == before


def test_the_next_command_for_a_model_that_has_hardly_learned_trains_it_for_longer(tmp_path, capsys):
    longer = f"vitrail resume {tmp_path} --epochs 28 --training.time-limit 20m"
    model = SimpleNamespace(uses=("predict {} IMAGES",))
    print_result(Run(tmp_path, model, "test", {"top1": 0.1, "loss": 2.3, "images": 9}, ("hardly trained",), longer))
    first, second, *others = capsys.readouterr().err.split("next:\n")[1].splitlines()
    assert first.endswith(longer.removeprefix("vitrail")) and " evaluate " in second and not others


def test_a_command_that_torchrun_starts_again_goes_on_with_its_run(vitrail, pictures, tiny, tmp_path, monkeypatch):
    words = [word for name, value in {**tiny, "training.epochs": 2}.items() for word in (f"--{name}", value)]
    command = ["train", "--data", pictures, "--out", tmp_path / "run", *words]
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")  # lost before there was a run
    first = vitrail(*command)
    assert first.code == 0
    file = tmp_path / "run" / "status.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"state": "running"}))
    assert vitrail(*command).out == first.out
    assert json.loads(file.read_text())["state"] == "finished"
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    assert vitrail(*command).code == 2

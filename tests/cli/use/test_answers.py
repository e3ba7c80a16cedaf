"""What commands answer: results on stdout, the rest on stderr, JSON in its promised shape."""

import io
import json
import shutil
import sys
from dataclasses import fields

import pytest
from PIL import Image

from vitrail.cli import progress
from vitrail.cli.console import result, result_json
from vitrail.cli.progress import StageProgress, counting
from vitrail.config.recipes import recipe_names
from vitrail.data.readers.sources import open_data
from vitrail.models.cost import cost
from vitrail.models.registry import NAMES, model_config
from vitrail.parts.cpu import kernels
from vitrail.parts.cpu.kernels import Kernels
from vitrail.training.runs import progress as training_progress
from vitrail.training.runs import setup as preparing
from vitrail.training.runs.progress import TrainingProgress

NUMBER = int | float


def parsed(answer):
    """The JSON document on stdout of a command that did well."""
    assert answer.code == 0, answer.err
    return json.loads(answer.out)


def renamed(pictures, folder, names):
    """A copy of the pictures whose classes have other names."""
    for old, new in names.items():
        shutil.copytree(pictures / old, folder / new)
    return folder


# evaluate


def test_evaluate_answers_in_the_promised_shape(vitrail, run):
    scores = parsed(vitrail("evaluate", run.folder, "--json"))
    assert scores.keys() == {"top1", "loss", "images", "split"}  # of so few classes, one of the five surest is always true
    assert all(isinstance(scores[key], NUMBER) for key in ("top1", "loss", "images"))
    assert scores["split"] == "test"
    assert isinstance(scores["images"], int)
    assert 0 <= scores["top1"] <= 1


@pytest.mark.parametrize("split", ["train", "all"])
def test_evaluate_takes_the_split_it_is_asked_for(vitrail, run, pictures, split):
    scores = parsed(vitrail("evaluate", run.folder, "--split", split, "--json"))
    assert scores["images"] == len(open_data(pictures).split(split))


def test_evaluate_answers_the_same_whatever_batch_size_and_workers(vitrail, run):
    plain = parsed(vitrail("evaluate", run.folder, "--split", "all", "--json"))
    other = parsed(vitrail("evaluate", run.folder, "--split", "all", "--json", "--batch-size", 5, "--workers", 1))
    assert other == pytest.approx(plain, abs=1e-6)


@pytest.mark.parametrize(
    "names",
    [
        {"red": "red", "blue": "blue"},
        {"blue": "0000", "green": "0001", "red": "0002"},
        {"red": "2", "blue": "blue"},
    ],
    ids=["some names", "all indices", "names and indices"],
)
def test_evaluate_matches_folders_to_labels_by_name_or_by_index(vitrail, run, pictures, tmp_path, names):
    data = renamed(pictures, tmp_path / "other", names)
    scores = parsed(vitrail("evaluate", run.folder, "--data", data, "--json"))
    labels = run.trained.labels
    guesses = {old: [labels.index(best[0][0]) for best in run.predict(sorted((pictures / old).iterdir()))] for old in names}
    hits = sum(guess == labels.index(old) for old in names for guess in guesses[old])
    assert scores["images"] == 8 * len(names)
    assert scores["top1"] == pytest.approx(hits / scores["images"])


def test_evaluate_of_a_model_folder_is_that_of_its_run(vitrail, run, pictures):
    from_run = parsed(vitrail("evaluate", run.folder, "--data", pictures, "--split", "all", "--json"))
    from_folder = parsed(vitrail("evaluate", run.folder / "best", "--data", pictures, "--json"))
    from_file = parsed(vitrail("evaluate", run.folder / "best" / "model.safetensors", "--data", pictures, "--json"))
    assert from_run == from_folder == from_file


def test_evaluate_for_people_prints_per_cent_on_stdout_with_the_split(vitrail, run):
    answer = vitrail("evaluate", run.folder)
    assert f"top-1   {100 * run.scores['top1']:.2f} %" in answer.out
    assert "split   test" in answer.out


# predict


def test_predict_answers_in_the_promised_shape(vitrail, run, pictures):
    image = pictures / "red" / "0.png"
    (answer,) = parsed(vitrail("predict", run.folder, image, "--json"))
    assert answer["image"] == str(image)
    scores = [p["score"] for p in answer["predictions"]]
    assert sorted(p["label"] for p in answer["predictions"]) == ["blue", "green", "red"]
    assert scores == sorted(scores, reverse=True)
    assert sum(scores) == pytest.approx(1, abs=1e-5)


def test_predict_takes_files_folders_and_globs_and_each_image_once(vitrail, run, pictures, monkeypatch):
    monkeypatch.chdir(pictures)
    answers = parsed(vitrail("predict", run.folder, "red/3.png", "green", "*/7.png", "red/3.png", "--json"))
    expected = ["red/3.png", *(f"green/{n}.png" for n in range(8)), "blue/7.png", "red/7.png"]
    assert [a["image"] for a in answers] == expected


@pytest.mark.parametrize("top", [1, 50])
def test_predict_shows_as_many_labels_as_it_is_asked_for(vitrail, run, pictures, top):
    (answer,) = parsed(vitrail("predict", run.folder, pictures / "red" / "0.png", "--top", top, "--json"))
    assert len(answer["predictions"]) == min(top, 3)


def test_bf16_answers_as_fp32_does_up_to_its_rounding(vitrail, run, pictures):
    plain = parsed(vitrail("predict", run.folder, pictures, "--json"))
    rounded = parsed(vitrail("predict", run.folder, pictures, "--json", "--precision", "bf16"))
    assert [answer["image"] for answer in plain] == [answer["image"] for answer in rounded] and plain != rounded
    for one, other in zip(plain, rounded, strict=True):
        scores, roundeds = ({p["label"]: p["score"] for p in answer["predictions"]} for answer in (one, other))
        assert roundeds == pytest.approx(scores, abs=0.05)
    exact = parsed(vitrail("evaluate", run.folder, "--json"))
    assert parsed(vitrail("evaluate", run.folder, "--json", "--precision", "bf16"))["loss"] == pytest.approx(
        exact["loss"], abs=0.05
    )


def test_predict_for_people_prints_a_line_per_image(vitrail, run, pictures):
    lines = vitrail("predict", run.folder, pictures / "red", "--top", 1).out.splitlines()
    assert len(lines) == 8
    assert all(line.startswith(str(pictures)) and line.endswith(" %") for line in lines)


def test_predict_accepts_other_kinds_and_sizes_of_images(vitrail, run, tmp_path):
    for name, mode, size in (("tall.jpg", "RGB", (9, 40)), ("grey.png", "L", (4, 4)), ("clear.webp", "RGBA", (30, 7))):
        Image.new(mode, size).save(tmp_path / name)
    assert len(parsed(vitrail("predict", run.folder, tmp_path, "--json"))) == 3


# summary


@pytest.mark.parametrize("name", ["vit_base_patch16_224"])
def test_summary_of_a_name_answers_in_the_promised_shape(vitrail, name):
    answer = parsed(vitrail("summary", name, "--json"))
    assert answer["model"] == name
    assert answer["parameters"] == 86_567_656
    assert answer["macs"] == pytest.approx(17.56e9, rel=0.01)
    assert all(layer.keys() >= {"name", "input", "output", "parameters", "macs"} for layer in answer["layers"])
    assert sum(layer["parameters"] for layer in answer["layers"]) == answer["parameters"]
    assert sum(layer["macs"] for layer in answer["layers"]) == answer["macs"]


def test_summary_takes_an_image_size_that_is_no_square(vitrail):
    answer = parsed(vitrail("summary", "ViT-Ti/16", "--image-size", "224x160", "--json"))
    expected = cost(model_config("ViT-Ti/16", image_size=(224, 160)))
    assert (answer["parameters"], answer["macs"]) == (expected.parameters, expected.macs)
    assert [1, 1 + 14 * 10, 192] in [layer["output"] for layer in answer["layers"]]


def test_summary_of_a_run_is_that_of_its_model(vitrail, run):
    answer = parsed(vitrail("summary", run.folder, "--json"))
    assert answer["parameters"] == sum(p.numel() for p in run.trained.model.parameters())
    assert answer["model"] == str(run.folder)


# models, recipes, doctor


def test_models_lists_every_name_with_parameters_and_multiply_adds(vitrail):
    rows = {row["model"]: row for row in parsed(vitrail("models", "--json"))}
    assert list(rows) == NAMES
    assert rows["ViT-L/16"]["parameters"] == 304_326_632
    assert rows["ViT-B/16"]["macs"] == pytest.approx(17.56e9, rel=0.01)
    table = vitrail("models")
    assert table.err == ""
    lines = [line for line in table.out.splitlines()[1:] if line]
    families = {row["family"] for row in rows.values()}
    assert [line.split()[0] for line in lines if line not in families] == NAMES
    assert [line for line in lines if line in families] == list(dict.fromkeys(row["family"] for row in rows.values()))
    assert rows["Swin-T"]["depth"] == [2, 2, 6, 2] and "96-192-384-768" in table.out
    assert "304,326,632" in table.out


def test_models_that_cannot_have_a_size_are_left_out_and_counted_unless_they_are_named(vitrail, monkeypatch):
    monkeypatch.setattr("vitrail.cli.look.models._totals", lambda name, config, counted: (1, 1))  # counting takes a minute
    answer = vitrail("models", "--image-size", "512", "--json")
    listed = {row["model"] for row in json.loads(answer.out)}
    images = {name for name in NAMES if hasattr(model_config(name), "image_size")}
    assert answer.code == 0 and "ViT-B/16" in listed and "ViT-H/14" not in listed
    assert f"left out: {len(images - listed)} models" in answer.err
    assert "14" in vitrail("models", "ViT-H/14", "--image-size", "512").err
    assert vitrail("models", "--image-size", "big").code == 2


def test_recipes_lists_every_recipe_with_what_to_expect(vitrail):
    answer = vitrail("recipes")
    assert (answer.code, answer.err) == (0, "")
    heads = [line for line in answer.out.splitlines() if not line.startswith(" ")]
    listed = dict(line.split(None, 1) for line in heads)
    assert list(listed) == recipe_names()
    assert all(len(about) > 20 for about in listed.values())
    assert answer.out.count("result: ") == len(listed)


@pytest.mark.parametrize("name", [*recipe_names()[::5], "finetune"])
def test_a_printed_recipe_is_a_configuration_file(vitrail, name, tmp_path, pictures):
    file = tmp_path / "recipe.yaml"
    file.write_text(vitrail("recipes", name).out)
    more = {"data": {"source": str(pictures)}} | ({"model": {"name": "ViT-S/16"}} if name == "finetune" else {})
    settings, _ = preparing.resolve_run(None if name != "finetune" else name, file, more)
    named, _ = preparing.resolve_run(name, None, more)
    assert settings == named


@pytest.fixture
def kept_kernels(monkeypatch):
    """What the tests compute with, although the doctor measures."""
    monkeypatch.setattr(kernels, "_used", kernels.kernels())


@pytest.mark.usefixtures("kept_kernels")
def test_doctor_reports_versions_and_that_a_model_trains(vitrail):
    values = parsed(vitrail("doctor", "--json"))
    assert values["trains"] is True
    assert values["packages"]["torch"].startswith("2.")
    assert values["cores"] > 0
    assert "command" not in values
    measured = 6 if values["kernels"]["bf16"] else 2  # attention in bf16 is measured where bf16 is the quicker way
    assert set(values["kernels"]) == {field.name for field in fields(Kernels)} and len(values["measured"]) == measured
    told = vitrail("doctor").out
    assert "torch 2." in told and "linear layer, bf16, 197 tokens" in told and "chosen kernels: explicit_learning" in told


@pytest.mark.parametrize(
    ("share", "told"),
    [
        (0.52, "take 52% of the cores' time; this machine is busy"),
        (0.02, "take 2% of the cores' time"),
        (None, "unknown on this system"),
    ],
)
@pytest.mark.usefixtures("kept_kernels")
def test_doctor_tells_how_threads_wait_and_what_others_take(vitrail, monkeypatch, share, told):
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    monkeypatch.setattr("vitrail.runtime.processor.Others.share", lambda _: share)
    values = parsed(vitrail("doctor", "--json"))
    assert values["others"] == share
    assert values["waiting"]["GOMP_SPINCOUNT"] == "7"
    said = dict(line.split(maxsplit=1) for line in vitrail("doctor").out.split("\n\n")[0].splitlines())
    assert said["others"] == told
    assert "GOMP_SPINCOUNT 7" in said["waiting"]


# all of them


def test_nothing_is_coloured_when_nobody_watches(vitrail, run, pictures, tmp_path, tiny_flags):
    answers = [
        vitrail("evaluate", run.folder),
        vitrail("predict", run.folder, pictures),
        vitrail("summary", run.folder),
        vitrail("recipes"),
        vitrail("evaluate", "nowhere"),
        vitrail("train", "--nonsense"),
        vitrail("train", "--help"),
    ]
    for answer in answers:
        assert "\x1b" not in answer.out + answer.err
        assert "\r" not in answer.out + answer.err


def test_models_measures_what_it_is_asked_for(vitrail):
    sizes = ["--image-size", "32", "--image-size", "48x64"]
    rows = parsed(vitrail("models", "ViT-Ti/16", *sizes, "--measure", "--batch-size", "2", "--json"))
    assert [row["image_size"] for row in rows] == [[32, 32], [48, 64]]
    assert all(row["images_per_second"] > 0 and row["training_bytes"] > 0 for row in rows)
    assert rows[0]["parameters"] < rows[1]["parameters"]  # by its positions
    assert "images/s" in vitrail("models", "ViT-Ti/16", "--image-size", "32", "--measure").out
    assert vitrail("models", "ViT-Ti/17x").code in (2, 4)


@pytest.mark.parametrize("shown", [lambda: counting("writing"), StageProgress, TrainingProgress])
def test_results_go_to_the_file_that_stdout_is_while_a_bar_is_shown_on_a_terminal(monkeypatch, capsys, shown):
    for module in (progress, training_progress):
        monkeypatch.setattr(module, "interactive", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    with shown() as bar:
        if isinstance(bar, TrainingProgress):
            bar.start(1, 10, 0)
        result("one line, which may be longer than a terminal is wide: " + "x" * 200)
    assert capsys.readouterr().out == "one line, which may be longer than a terminal is wide: " + "x" * 200 + "\n"


def test_json_is_json_whatever_letters_stdout_can_have(monkeypatch):
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="backslashreplace")
    monkeypatch.setattr(sys, "stdout", file)
    result_json({"class": "é😀"})
    file.flush()
    assert json.loads(file.buffer.getvalue()) == {"class": "é😀"}

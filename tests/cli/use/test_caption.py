"""``vitrail caption``, ``evaluate`` and ``train --task caption`` as people call them."""

import csv
import json

import pytest

from captioned import write_captions
from small_captioner import small_captioner
from vitrail import api
from vitrail.tasks.captioning.words import Caption, Word


def ok(vitrail, *words):
    answer = vitrail(*words)
    assert answer.code == 0, answer.err
    return answer


def failed(vitrail, code, *words):
    answer = vitrail(*words)
    assert answer.code == code, answer.err
    return answer


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_captions(tmp_path_factory.mktemp("captions"))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "captioner"
    small_captioner().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """A run that starts from a ViT."""
    vit = tmp_path_factory.mktemp("vit") / "run"
    api.train(
        "digits", out=vit, epochs=1,
        **{"model.image_size": 24, "model.patch_size": 8, "model.channels": 3, "model.dim": 16, "model.depth": 1,
           "model.heads": 2, "model.mlp_dim": 32, "data.train_share": 0.1},
    )  # fmt: skip
    out = tmp_path_factory.mktemp("runs") / "run"
    small = {
        "data.test_share": 0.2,
        "model.dim": 16,
        "model.heads": 2,
        "model.mlp_dim": 32,
        "model.decoder_depth": 1,
        "task.vocabulary": 290,
    }
    api.train(str(data), task="caption", start=str(vit), out=out, epochs=2, tune="head", **small)
    return out


def test_a_line_for_each_image_and_a_document_of_all(vitrail, model, data):
    images = [str(data.parent / f"{number:02}.png") for number in (3, 1)]
    lines = ok(vitrail, "caption", str(model), *images, "--no-repeat", "0").out.splitlines()
    found = json.loads(ok(vitrail, "caption", str(model), *images, "--json", "--no-repeat", "0").out)
    assert lines == [f"{one['image']}: {one['caption']}" for one in found]
    assert [one["image"] for one in found] == images
    for one in found:
        assert one["score"] < 0 and one["words"] and all(0 <= word["score"] <= 1 for word in one["words"])


def test_a_folder_shows_where_the_model_looked_for_each_word(vitrail, model, data, tmp_path):
    out = tmp_path / "looks"
    ok(vitrail, "caption", str(model), str(data.parent / "00.png"), "--attention", str(out))
    assert sorted(file.name for file in out.iterdir()) == ["0001-00.png", "index.html"]
    assert "data:image/png" in (out / "index.html").read_text()
    assert failed(vitrail, 2, "caption", str(model), str(data.parent / "00.png"), "--attention", str(out)).err.startswith(
        "error:"
    )


def test_a_caption_with_a_line_break_is_one_line(vitrail, model, data, monkeypatch):
    written = Caption("one\ncat", -1.0, (Word("one", 0.5), Word("cat", 0.5)))
    monkeypatch.setattr("vitrail.tasks.captioning.predictor.captions_of", lambda *given, **options: [written])
    image = str(data.parent / "00.png")
    assert ok(vitrail, "caption", str(model), image).out == f"{image}: one cat\n"
    assert json.loads(ok(vitrail, "caption", str(model), image, "--json").out)[0]["caption"] == "one\ncat"


def test_captions_stay_with_their_images_whatever_the_batches(vitrail, model, data):
    images = [str(data.parent / f"{number:02}.png") for number in range(7)]
    told = [ok(vitrail, "caption", str(model), *images, "--batch-size", str(size)).out for size in (1, 2, 7)]
    assert told[0] == told[1] == told[2] and len(told[0].splitlines()) == 7


def test_a_model_that_looks_nowhere_cannot_say_where(vitrail, data, tmp_path):
    small_captioner("Captioner-LSTM-Ti/16", attention="none").save_pretrained(tmp_path / "model")
    told = failed(
        vitrail, 2, "caption", str(tmp_path / "model"), str(data.parent / "00.png"), "--attention", str(tmp_path / "out")
    )
    assert "the model has no attention" in told.err and not (tmp_path / "out").exists() and told.out == ""


@pytest.mark.parametrize(
    "options",
    [
        ["--beam", "65"],
        ["--no-repeat", "-1"],
        ["--samples", "1025"],
        ["--samples", "8", "--beam", "1"],
    ],
)
def test_numbers_that_mean_nothing_are_refused(vitrail, model, data, options):
    told = failed(vitrail, 2, "caption", str(model), str(data.parent / "00.png"), *options)
    assert told.out == "" and f"where: {options[0]}" in told.err


def test_a_model_of_another_kind_is_refused(vitrail, run, data):
    told = failed(vitrail, 4, "caption", str(run.folder), str(data.parent / "00.png"))
    assert "no captioner" in told.err


def test_a_run_writes_a_report_and_is_evaluated_beside_both_floors(vitrail, trained):
    report = (trained / "report.html").read_text()
    assert "CIDEr-D" in report and "nearest training image" in report and (trained / "captions.csv").is_file()
    found = json.loads(ok(vitrail, "evaluate", str(trained), "--json").out)
    assert found["split"] == "test" and found["images"] == 7
    status = json.loads((trained / "status.json").read_text())
    assert {name: found[name] for name in ("cider_d", "bleu4", "loss")} == pytest.approx(
        {name: status["scores"][name] for name in ("cider_d", "bleu4", "loss")}, rel=1e-4
    )
    assert found["floors"].keys() == {"one_caption", "nearest_image"}
    text = ok(vitrail, "evaluate", str(trained), "--csv", str(trained.parent / "table.csv"))
    assert "without a captioner, one caption for all" in text.out and "captions of 10 beams, 32 samples" in text.err
    with (trained.parent / "table.csv").open(newline="", encoding="utf-8-sig") as table:
        assert len(list(csv.reader(table))) == 8  # a caption of noise may have a line break


def test_a_run_is_evaluated_on_other_images_beside_the_floors_of_its_own(vitrail, trained, data, tmp_path):
    other = write_captions(tmp_path, shapes=("circle",))
    own = json.loads(ok(vitrail, "evaluate", str(trained), "--data", str(data), "--split", "val", "--json").out)
    found = json.loads(ok(vitrail, "evaluate", str(trained), "--data", str(other), "--json").out)
    assert found["split"] == "all" and found["floors"]["one_caption"]["caption"] == own["floors"]["one_caption"]["caption"]
    assert found["floors"]["nearest_image"]["cider_d"] > 100, "it learned from most of these images"
    assert "floors" not in json.loads(ok(vitrail, "evaluate", str(trained), "--split", "train", "--json").out)
    folder = json.loads(ok(vitrail, "evaluate", str(trained / "best"), "--data", str(other), "--json").out)
    assert "floors" not in folder, "a model folder does not know what it learned from"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--balance", "loss"], "no classes and no teacher"),
        (["--augmentation.mixup", "0.5"], "does not go with captions"),
        (["--model", "ViT-Ti/16"], "is not a captioner"),
        (["--batch-size", "auto"], "does not go with captions"),
    ],
)
def test_what_does_not_go_with_captions_is_refused(vitrail, data, tmp_path, options, message):
    own = [] if "--model" in options else ["--model", "Captioner-Ti/16"]
    words = ["--task", "caption", "--data", str(data), "--tune", "all", *own, *options, "--out", str(tmp_path / "run")]
    told = failed(vitrail, 2, "train", *words)
    assert message in told.err and not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", [["predict"], ["export", "--to", "onnx"]])
def test_commands_that_want_labels_point_to_the_right_one(vitrail, model, data, command):
    images = [str(data.parent / "00.png")] if command[0] == "predict" else []
    told = failed(vitrail, 4, command[0], str(model), *images, *command[1:])
    assert "a captioner gives no labels" in told.err and "vitrail caption" in told.err


def test_a_captioner_is_summed_up_and_copied(vitrail, model, data, tmp_path):
    assert json.loads(ok(vitrail, "summary", str(model), "--json").out)["parameters"] > 0
    assert "layout vision-encoder-decoder" in ok(vitrail, "convert", str(model), str(tmp_path / "copy")).err
    image = str(data.parent / "00.png")
    assert ok(vitrail, "caption", str(tmp_path / "copy"), image).out == ok(vitrail, "caption", str(model), image).out
    small_captioner(cross_heads=1).save_pretrained(tmp_path / "one head")
    assert "layout vitrail" in ok(vitrail, "convert", str(tmp_path / "one head"), str(tmp_path / "own")).err
    assert "a folder, to hold its tokens" in failed(vitrail, 2, "convert", str(model), str(tmp_path / "x.safetensors")).err


def test_captions_that_tell_left_from_right_are_not_to_be_mirrored_and_commands_for_captioners_come_next(vitrail, data, tmp_path):
    def told(*more):
        small = ["--model.encoder.depth", "1", "--model.decoder-depth", "1", "--model.dim", "16", "--model.heads", "2"]
        small += ["--task.vocabulary", "290", "--image-size", "32", "--fast-dev-run"]
        words = ["--task", "caption", "--data", str(data), "--model", "Captioner-Ti/16", *small, *more]
        return ok(vitrail, "train", *words, "--out", str(tmp_path / f"run{len(more)}")).err

    assert "mention left or right, as of " in told()
    without = told("--no-flip")
    assert "mention left" not in without
    folder = tmp_path / "run1"
    assert without.splitlines()[-4:] == [
        f"  vitrail evaluate {folder}",
        f"  vitrail caption {folder} IMAGES --attention FOLDER",
        f"  vitrail serve {folder}",
        f"  vitrail summary {folder}",
    ]

"""What does not fit is told in one go; what is asked otherwise is changed; nothing is run and nothing half is left."""

import json

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from vitrail.errors import ConfigError, ModelFileError
from vitrail.weights.convert import convert, read_labels
from vitrail.weights.layouts import LAYOUTS
from vitrail.weights.reference import from_pretrained

LARGER = {"dim": 64, "heads": 1, "image_size": 16, "patch_size": 4, "channels": 3}


@pytest.fixture
def file(tmp_path, trained):
    """A small model in timm's layout, in a file that says nothing else."""
    convert(trained(**LARGER), tmp_path / "timm.safetensors", layout="timm")
    return tmp_path / "timm.safetensors"


def changed(file, edit):
    state = {name: tensor.clone() for name, tensor in load_file(file).items()}
    edit(state)
    save_file(state, file)
    return file


def refused(file, *words, **told):
    with pytest.raises(ModelFileError) as error:
        from_pretrained(file, **told)
    assert error.value.exit_code == 4 and error.value.where and error.value.hint
    assert all(word in str(error.value) for word in words), str(error.value)


def test_everything_that_does_not_fit_is_listed_together_with_the_nearest_layout(file):
    def edit(state):
        del state["blocks.1.norm1.bias"]
        state["blocks.0.mlp.fc1.bias"] = torch.zeros(7)
        state["stranger.weight"] = torch.zeros(2)

    refused(
        changed(file, edit),
        "nearest to timm",
        "missing: blocks.1.norm1.bias",
        "unexpected: stranger.weight",
        "wrong shape: blocks.0.mlp.fc1.bias (7), expected (32)",
    )


def test_weights_of_something_else_are_refused_with_some_of_their_keys(tmp_path):
    save_file({"lstm.weight": torch.zeros(3), "lstm.bias": torch.zeros(3)}, tmp_path / "x.safetensors")
    refused(tmp_path / "x.safetensors", "lstm.weight", "unknown layout")


def test_heads_that_weights_do_not_tell_are_asked_for(tmp_path, trained):
    convert(trained(), tmp_path / "told.safetensors", layout="timm")
    assert from_pretrained(tmp_path / "told.safetensors").config.heads == 2
    save_file(load_file(tmp_path / "told.safetensors"), tmp_path / "x.safetensors")
    refused(tmp_path / "x.safetensors", "number of heads is unknown", "--heads")
    assert from_pretrained(tmp_path / "x.safetensors", heads=2).config.heads == 2


def test_what_is_told_must_not_contradict_the_weights(file):
    refused(file, "depth is 2, not 5", depth=5)
    with pytest.raises(ConfigError, match="dept"):
        from_pretrained(file, dept=5)


def test_positions_that_form_no_square_ask_for_the_size_they_were_made_for(tmp_path, trained):
    convert(trained(**{**LARGER, "image_size": (16, 32)}), tmp_path / "x.safetensors", layout="timm")
    assert from_pretrained(tmp_path / "x.safetensors").config.grid == (4, 8)  # which the file that we wrote says itself
    save_file(load_file(tmp_path / "x.safetensors"), tmp_path / "x.safetensors")
    refused(tmp_path / "x.safetensors", "form no square", "image_size")
    assert from_pretrained(tmp_path / "x.safetensors", image_size=(16, 32)).config.grid == (4, 8)


def test_an_unknown_layout_names_the_nearest(file, tmp_path):
    with pytest.raises(ConfigError, match="'google'"):
        from_pretrained(file, layout="googel")
    with pytest.raises(ConfigError, match="'google'"):
        convert(from_pretrained(file), tmp_path / "x.npz", layout="googel")


# -- changes


def test_a_head_of_another_size_is_replaced_by_zeros_and_it_is_said(file, capsys):
    model = from_pretrained(file, num_classes=5)
    assert "3 classes replaced by 5" in capsys.readouterr().err
    assert model.labels == ["0", "1", "2", "3", "4"]
    assert not model(torch.randn(2, 3, 16, 16)).any()
    from_pretrained(file, num_classes=0)
    assert "3 classes left out, with the head" in capsys.readouterr().err
    same = from_pretrained(file, num_classes=3)
    assert same(torch.randn(2, 3, 16, 16)).any()


def zero_head(state):
    for name in state:
        if name.startswith("head"):
            state[name].zero_()


@pytest.mark.parametrize("layout", ["timm", "own"])
def test_a_head_of_zeros_is_reported_by_whatever_answers_with_it(layout, file, tmp_path, vitrail, capsys):
    model = from_pretrained(changed(file, zero_head))
    assert "the head is all zeros" in capsys.readouterr().err
    if layout == "own":
        model.save_pretrained(tmp_path / "own", layout="vitrail")
    path = tmp_path / "own" if layout == "own" else file
    Image.new("RGB", (16, 16)).save(tmp_path / "a.png")
    answer = vitrail("predict", path, tmp_path / "a.png")
    assert answer.code == 0 and answer.err.count("the head is all zeros") == 1 and "--from" in answer.err
    capsys.readouterr()
    for told in ({"num_classes": 7}, {"num_classes": 0}):
        from_pretrained(path, **told)
    assert "all zeros" not in capsys.readouterr().err


@pytest.mark.parametrize("channels", [2, 4])
def test_images_of_other_channels_are_refused_and_may_be_made_coloured_ones(channels, file):
    usual = from_pretrained(changed(file, lambda state: None)).preparation

    def edit(state):
        name = "patch_embed.proj.weight"
        state[name] = torch.cat([state[name], state[name]], dim=1)[:, :channels].contiguous()

    refused(changed(file, edit), f"images of {channels} channels", "channels=3")
    coloured = from_pretrained(file, channels=3)
    assert coloured.preparation == usual and coloured(torch.randn(1, 3, 16, 16)).any()


def test_one_channel_is_normalised_by_the_mean_of_all(tmp_path, trained):
    model = trained(channels=3, registers=1)
    model.preparation = model.preparation.changed(mean=(0.1, 0.2, 0.6), std=(0.2, 0.3, 0.4))
    model.save_pretrained(tmp_path / "model")
    preparation = from_pretrained(tmp_path / "model", channels=1).preparation
    assert preparation.mean == pytest.approx((0.3,)) and preparation.std == pytest.approx((0.3,))


# -- a file and what stands beside it


def test_a_folder_of_our_own_is_opened_without_a_word(tmp_path, trained, capsys):
    for number, fields in enumerate(({}, {"registers": 1})):
        trained(**fields).save_pretrained(tmp_path / str(number))
        from_pretrained(tmp_path / str(number))
    assert capsys.readouterr().err == ""


def test_settings_of_training_come_back_from_a_folder_of_transformers(tmp_path, trained):
    before = trained(patch_dropout=0.25, stochastic_depth=0.1, dropout=0.1, attention_dropout=0.2, head_dropout=0.3)
    before.save_pretrained(tmp_path / "model")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["model_type"] == "vit"
    assert from_pretrained(tmp_path / "model").config == before.config


@pytest.mark.parametrize(
    "damage",
    [
        {"num_attention_heads": 0}, {"num_attention_heads": "many"}, {"num_attention_heads": 10**9}, {"hidden_size": 10**12},
        {"num_hidden_layers": 10**9}, {"image_size": 10**9}, {"image_size": [1]}, {"patch_size": 0}, {"layer_norm_eps": "small"},
        {"hidden_act": "relu"}, {"hidden_act": ["gelu"]}, {"vitrail": {"depth": 3}}, {"vitrail": {"dropout": 7}},
        {"id2label": [1]}, {"id2label": {"0": "a"}}, {"problem_type": "regression"}, {"model_type": "bert"}, {"model_type": 7},
    ],
    ids=str,
)  # fmt: skip
def test_a_description_that_cannot_be_is_refused(damage, tmp_path, trained):
    trained().save_pretrained(tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **damage}))
    refused(tmp_path / "model")


def test_two_classes_of_one_name_are_told_apart_by_their_number(tmp_path, trained):
    before = trained()
    before.labels = ["crane", "dog", "crane"]
    before.save_pretrained(tmp_path / "model")
    assert from_pretrained(tmp_path / "model").labels == ["crane", "dog", "crane (2)"]
    (tmp_path / "names.txt").write_text("crane\n dog \n\ncrane\n")
    assert read_labels(tmp_path / "names.txt", 3) == ["crane", "dog", "crane (2)"]
    (tmp_path / "marked.txt").write_text("crane\ndog\n", encoding="utf-8-sig")  # as Windows editors write it
    assert read_labels(tmp_path / "marked.txt", 2) == ["crane", "dog"]
    with pytest.raises(ConfigError, match="3 labels for 4 classes"):
        read_labels(tmp_path / "names.txt", 4)
    with pytest.raises(ConfigError, match="cannot read"):
        read_labels(tmp_path / "missing.txt", 4)


# -- convert


def test_nothing_is_overwritten_and_a_file_says_what_it_is(file, tmp_path):
    model = from_pretrained(file)
    for out, layout, words in (
        (file, "timm", "exists"),
        (tmp_path / "x.safetensors", None, "needs a layout"),
        (tmp_path / "x.npz", "timm", "stored in .safetensors"),
        (tmp_path / "x", "torchvision", "no model folders"),
    ):
        with pytest.raises(ConfigError, match=words):
            convert(model, out, layout=layout)
    assert sorted(tmp_path.iterdir()) == [file]


def test_a_model_that_a_layout_cannot_hold_is_refused_with_the_reason(tmp_path, trained):
    for fields, layout, words in (
        ({"registers": 1}, "vit", "cannot hold registers"),
        ({"position": "learned-2d"}, "timm", "the layout requires position.embedding"),
        ({"pool": "mean"}, "vit", "the layout requires class_token"),
        ({"mlp": "gelu-tanh"}, "torchvision", "mlp is gelu-tanh, would be read as gelu"),
        ({"mlp": "swiglu"}, "torchvision", "no SwiGLU"),
        ({"norm_eps": 1e-3}, "google", "norm_eps"),
    ):
        with pytest.raises(ConfigError, match=words) as error:
            convert(trained(**fields), tmp_path / f"x{LAYOUTS[layout].suffix}", layout=layout)
        assert error.value.exit_code == 2 and error.value.hint
    assert not list(tmp_path.iterdir())


def test_the_command_converts_a_pickle_that_is_trusted(file, tmp_path, vitrail, monkeypatch):
    torch.save({"model": load_file(file)}, tmp_path / "x.pth")
    monkeypatch.chdir(tmp_path)
    without = vitrail("convert", "x.pth", "out")
    assert without.code == 4 and "vitrail convert x.pth x --trust-pickle" in without.err
    done = vitrail("convert", "x.pth", "out", "--trust-pickle")
    assert done.code == 0 and done.out.strip() == "out" and "recognised timm" in done.err
    images = torch.randn(1, 3, 16, 16)
    torch.testing.assert_close(from_pretrained(tmp_path / "out")(images), from_pretrained(file)(images))
    assert vitrail("convert", "x.pth", "out", "--trust-pickle").code == 2


@pytest.mark.parametrize("headless", [False, True])
def test_a_folder_of_transformers_around_a_model_of_timm_is_read_as_timms(headless, file, tmp_path):
    folder = tmp_path / "wrapped"
    folder.mkdir()
    tensors = {f"timm_model.{name}": t for name, t in load_file(file).items() if not (headless and name.startswith("head."))}
    save_file(tensors, folder / "model.safetensors")
    names = (
        {"num_classes": 2, "label_names": ["LABEL_0", "LABEL_1"]}
        if headless
        else {"num_classes": 3, "label_names": ["a", "b", "c"]}
    )
    kind = "TimmWrapperModel" if headless else "TimmWrapperForImageClassification"
    arguments = {"depth": 2, "img_size": 16, "patch_size": 4, "num_heads": 1}
    values = {"architecture": "vit_tiny_patch16_224", "architectures": [kind], "do_pooling": True, "model_args": arguments}
    values |= {"model_type": "timm_wrapper", "dtype": "float32", "transformers_version": "5.23.0", **names}
    (folder / "config.json").write_text(json.dumps(values))
    found = from_pretrained(folder)
    assert found.labels == ([] if headless else ["a", "b", "c"]) and found.config.heads == 1
    images = torch.randn(1, 3, 16, 16)
    expected = from_pretrained(file, num_classes=0 if headless else None)
    torch.testing.assert_close(found(images), expected(images))


def test_labels_for_numbers_that_are_no_classes_are_refused(trained, tmp_path, vitrail):
    model = trained(head="projection", num_classes=4)
    model.labels = []
    model.save_pretrained(tmp_path / "clip", layout="vitrail")
    (tmp_path / "labels.txt").write_text("a\nb\nc\nd\n")
    answer = vitrail("convert", tmp_path / "clip", tmp_path / "out", "--labels", tmp_path / "labels.txt")
    assert answer.code == 2 and "--labels" in answer.err and not (tmp_path / "out").exists()


@pytest.mark.parametrize("beside", ['{"model_type": "marian"}', '{"model_type": "vision-encoder-decoder"}', "{"])
def test_a_file_that_says_what_it_is_may_lie_beside_another_models_description(beside, file, tmp_path, vitrail):
    assert vitrail("convert", file, tmp_path / "told.safetensors", "--layout", "timm").code == 0
    (tmp_path / "config.json").write_text(beside)
    assert vitrail("convert", tmp_path / "told.safetensors", tmp_path / "out").code == 0
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_a_folder_of_our_own_says_itself_how_many_heads_there_are(run, tmp_path):
    from_pretrained(run.folder).save_pretrained(tmp_path / "own", layout="vitrail")
    with pytest.raises(ConfigError, match="already defines the model") as refused:
        from_pretrained(tmp_path / "own", heads=2)
    assert refused.value.hint == "leave out heads"

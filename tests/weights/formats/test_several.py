"""Several models in one file: the average is read unless another is asked for, and all of them are named."""

import json

import pytest
import torch
from safetensors.torch import save_file

from vitrail.errors import ModelFileError
from vitrail.weights.formats.checkpoint import Checkpoint


def state(value, blocks=1):
    names = ["norm.weight", *(f"blocks.{i}.{name}.weight" for i in range(blocks) for name in ("norm1", "norm2", "mlp"))]
    return {name: torch.full((4, 4), float(value)) for name in names}


def below(word, tensors):
    return {f"{word}.{name}": tensor for name, tensor in tensors.items()}


def read(file, key=None):
    """The value in all tensors of what is read."""
    with Checkpoint.opened(file, trust_pickle=True, key=key) as checkpoint:
        values = {float(tensor.flatten()[0]) for tensor in checkpoint.tensors.values()}
        assert {"norm.weight", "blocks.0.mlp.weight"} <= checkpoint.tensors.keys()
    (value,) = values
    return value


IN_A_PICKLE = {
    "model beside model_ema": {"model": state(1), "model_ema": state(2), "optimizer": {"a": state(3)}},
    "ema with wrappers": {"state_dict": state(1), "ema": {"module": below("module", state(2))}},
    "swa_model with a counter": {"model": state(1), "swa_model": {"n_averaged": torch.tensor(3), **below("module", state(2))}},
    "averaged_model": {"averaged_model": state(2), "model": state(1)},
    "EMA in capitals": {"net": state(1), "net_EMA": state(2)},
    "a teacher like its student": {"student": below("module", state(1)), "teacher": state(2)},
    "a smaller student of a larger teacher": {"student": state(2), "teacher": state(1, blocks=4)},
    "deeper": {"state": {"models": {"raw": state(1), "average": state(2)}}},
    "a small student of a very large teacher": {"student": state(2), "teacher": state(1, blocks=40)},
    "an ema of something else": {"model": state(2), "ema": {"decay": torch.ones(60)}},
}


@pytest.mark.parametrize("kind", IN_A_PICKLE)
def test_the_average_or_the_student_is_read_and_the_others_are_named(kind, tmp_path, capsys):
    torch.save(IN_A_PICKLE[kind], tmp_path / "x.pth")
    assert read(tmp_path / "x.pth") == 2
    said = capsys.readouterr().err
    assert "holds 2 models" in said and "--key" in said


@pytest.mark.parametrize(
    "names",
    [
        ("model", "ema_model"),
        ("online_model", "ema_model"),
        ("net", "ema.module"),
        ("ema.online_model", "ema.ema_model"),
        ("student", "teacher"),
        ("lit.model", "lit.model_ema"),
    ],
)
def test_the_average_is_read_where_words_before_the_names_tell_models_apart(names, tmp_path, capsys):
    counters = {"step": torch.tensor(7), f"{names[1].partition('.')[0]}.n_averaged": torch.tensor([3])}
    save_file(below(names[0], state(1)) | below(names[1], state(2)) | counters, tmp_path / "x.safetensors")
    assert read(tmp_path / "x.safetensors") == 2
    assert "holds 2 models" in capsys.readouterr().err
    assert read(tmp_path / "x.safetensors", names[0].rpartition(".")[2]) == 1
    assert capsys.readouterr().err == ""


def test_another_one_is_read_by_its_name(tmp_path):
    torch.save({"generator": state(1), "critic": state(2, blocks=3), "deep": {"x": state(3)}}, tmp_path / "x.pth")
    assert read(tmp_path / "x.pth") == 2  # of the most tensors
    assert [read(tmp_path / "x.pth", key) for key in ("generator", "critic", "deep", "deep.x", "x")] == [1, 2, 3, 3, 3]
    with pytest.raises(ModelFileError, match=r"no weights under 'teacher'[\s\S]*there are: critic, "):
        read(tmp_path / "x.pth", "teacher")
    save_file(state(1), tmp_path / "x.safetensors")
    assert read(tmp_path / "x.safetensors", ".") == 1
    with pytest.raises(ModelFileError, match="no weights under ''"):
        read(tmp_path / "x.safetensors", "")


@pytest.mark.parametrize("key", [None, "model"])
def test_a_model_is_chosen_among_those_in_all_files_of_an_index(key, tmp_path, capsys):
    parts = {"a.safetensors": below("model", state(1)), "b.safetensors": below("model_ema", state(2))}
    for name, tensors in parts.items():
        save_file(tensors, tmp_path / name)
    index = {"weight_map": {name: part for part, tensors in parts.items() for name in tensors}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert read(tmp_path, key) == (2 if key is None else 1)
    assert capsys.readouterr().err.count("holds 2 models") == (key is None)


@pytest.mark.parametrize(("name", "like"), [("target_embedding", "embedding"), ("norm_avg", "norm")])
def test_a_layer_is_no_model_whatever_it_is_called(name, like, tmp_path, capsys):
    save_file(state(1) | {f"{word}.weight": torch.ones(4, 4) for word in (name, like)}, tmp_path / "x.safetensors")
    with Checkpoint.opened(tmp_path / "x.safetensors") as checkpoint:
        assert {f"{name}.weight", f"{like}.weight"} <= checkpoint.tensors.keys()
    assert capsys.readouterr().err == ""


def test_nothing_is_said_of_a_file_with_one_model(tmp_path, capsys):
    torch.save({"model": state(1), "scores": {"a": torch.ones(1)}, "optim": {"b": state(2)}}, tmp_path / "x.pth")
    assert read(tmp_path / "x.pth") == 1 and capsys.readouterr().err == ""

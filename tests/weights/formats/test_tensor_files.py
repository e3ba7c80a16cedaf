"""Tensors are read from safetensors and .npz; pickles only where they are trusted, and then nothing of them is run."""

import datetime
import pickle
import uuid
import zipfile
from collections import OrderedDict, defaultdict
from decimal import Decimal
from pathlib import Path, PureWindowsPath
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from vitrail.errors import ModelFileError
from vitrail.weights.formats.several import one_model
from vitrail.weights.formats.tensor_files import (
    NAMES,
    dense,
    read_pickle,
    read_tensors,
    require_numbers,
    write_in_turn,
    write_tensors,
)
from vitrail.weights.naming import unwrapped

STATE = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(4)}


def refused(read, file, *words):
    with pytest.raises(ModelFileError) as error:
        read(file)
    assert error.value.exit_code == 4 and error.value.where and error.value.hint
    assert all(word in str(error.value) for word in words), str(error.value)


def read_trusted(file, key=None):
    return dense(one_model(read_pickle(file), file, key), [file])


def same(found):
    assert found.keys() == STATE.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in STATE.items())


class Trap:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return open, (str(self.mark), "w")


def test_both_kinds_of_files_give_their_tensors(tmp_path):
    save_file(STATE, tmp_path / "a.safetensors")
    np.savez(tmp_path / "b.npz", **{name: tensor.numpy() for name, tensor in STATE.items()})
    np.savez_compressed(tmp_path / "c.NPZ.npz", **{name: tensor.numpy() for name, tensor in STATE.items()})
    for name in ("a.safetensors", "b.npz", "c.NPZ.npz"):
        same(read_tensors(tmp_path / name))


@pytest.mark.parametrize("wrapper", ["module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"])
def test_what_wraps_a_part_is_dropped_from_the_middle_of_its_names_and_reported(wrapper, capsys):
    state = {f"blocks.0.{wrapper}.a": STATE["a"], f"blocks.{wrapper}.1.b": STATE["b"], "n_averaged": torch.tensor(5)}
    assert unwrapped(state).keys() == {"blocks.0.a", "blocks.1.b"}
    assert f"{wrapper}." in capsys.readouterr().err


def test_wrappers_stay_where_two_names_would_become_one():
    state = {"module.a": STATE["a"], "a": STATE["b"]}
    assert unwrapped(state).keys() == state.keys() and unwrapped({}) == {}


def test_an_archive_with_pickled_arrays_is_refused_and_not_run(tmp_path):
    mark = tmp_path / "mark"
    np.savez(tmp_path / "x.npz", a=np.array([Trap(mark)], dtype=object), b=np.zeros(3))
    refused(read_tensors, tmp_path / "x.npz", "damaged")
    assert not mark.exists()


def test_an_archive_that_unpacks_to_far_more_than_it_is_is_refused_unread(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", a=np.zeros(30_000_000, dtype=np.float32))
    refused(read_tensors, tmp_path / "x.npz", "unpacks to 120,")


def test_an_archive_of_other_things_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("../evil.npy", b"nothing")
        archive.writestr("readme.txt", b"nothing")
    refused(read_tensors, tmp_path / "x.npz")
    assert not (tmp_path.parent / "evil.npy").exists()


def test_numbers_that_are_not_finite_and_what_are_none_are_named():
    with pytest.raises(ModelFileError, match="a holds values that are not finite; b holds"):
        require_numbers({"a": torch.tensor([1.0, float("nan")]), "b": torch.tensor([float("-inf"), float("inf")])}, "x")
    with pytest.raises(ModelFileError, match=r"a has the type torch\.int64"):
        require_numbers({"a": torch.arange(3)}, "x")
    require_numbers({"text_model.embeddings.position_ids": torch.arange(77)[None]}, "x")
    require_numbers({"a": torch.tensor([3e38, 3e38]), "steps": torch.tensor(7)}, "x")  # a sum that is too large is no damage


# -- pickles that are trusted


@pytest.mark.parametrize(
    "content",
    [STATE, OrderedDict(STATE), {"state_dict": STATE, "epoch": 3}, {"model": STATE, "args": {"lr": 0.1}}, {"a": {"b": STATE}}],
    ids=["plain", "ordered", "state_dict", "model", "deeper"],
)
def test_a_state_dict_is_found_wherever_it_lies(content, tmp_path):
    torch.save(content, tmp_path / "x.pth")
    same(read_trusted(tmp_path / "x.pth"))


OTHERS = {name: torch.ones_like(tensor) for name, tensor in STATE.items()}


@pytest.mark.parametrize(
    "content",
    [
        {"student": OTHERS, "teacher": STATE},
        {"model": OTHERS, "model_ema": STATE},
        {"model": OTHERS, "ema_model": STATE},
        {"state_dict": OTHERS, "ema_state_dict": {"module": STATE}},
        {"optimizer": OTHERS, "model": STATE},
        {"optim_state": {**OTHERS, "more": torch.zeros(1)}, "model": STATE},
        {"schema": OTHERS, "a_model_ema": STATE},
    ],
    ids=lambda content: " ".join(content),
)
def test_averaged_weights_are_taken_before_others_and_no_state_of_an_optimizer(content, tmp_path):
    torch.save(content, tmp_path / "x.pth")
    same(read_trusted(tmp_path / "x.pth"))


BESIDE = {
    "number": np.float64(0.9),
    "array": np.arange(3),
    "dates": [datetime.datetime(2024, 1, 1), datetime.timedelta(1)],
    "paths": {"out": Path("x"), "windows": PureWindowsPath("y")},
    "random": np.random.default_rng(0).bit_generator.state,
    "history": defaultdict(list, {"loss": [0.5]}),
    "more": [uuid.UUID(int=1), Decimal("0.1"), SimpleNamespace(lr=1), frozenset({1}), range(3)],
}


@pytest.mark.parametrize("new", [True, False], ids=["archive", "before 1.6"])
@pytest.mark.parametrize("kind", BESIDE)
def test_plain_values_beside_the_weights_are_passed_over(kind, new, tmp_path):
    torch.save({"best": BESIDE[kind], "model": STATE}, tmp_path / "x.pth", _use_new_zipfile_serialization=new)
    same(read_trusted(tmp_path / "x.pth"))


def test_what_a_pickle_holds_besides_is_named(tmp_path):
    torch.save({"model": STATE, "thing": Trap(tmp_path / "mark")}, tmp_path / "x.pth")
    refused(read_trusted, tmp_path / "x.pth", "it holds io.open")
    torch.save({"model": STATE, "layer": torch.nn.Linear(2, 2)}, tmp_path / "x.pth")
    refused(read_trusted, tmp_path / "x.pth", "it holds torch.nn.modules.linear.Linear")


def test_names_that_share_memory_are_read_and_written_apart(tmp_path):
    whole = torch.arange(12.0)
    state = {"a": whole, "same": whole, "rows": whole[:6], "overlapping": whole[3:9]}
    torch.save(state, tmp_path / "x.pth")
    found = read_trusted(tmp_path / "x.pth")
    write_tensors(tmp_path / "x.safetensors", state)
    for tensors in (found, read_tensors(tmp_path / "x.safetensors")):
        assert all(torch.equal(tensors[name], tensor) for name, tensor in state.items())
    found["a"].zero_()
    assert torch.equal(found["same"], torch.arange(12.0)) and torch.equal(found["overlapping"], torch.arange(3.0, 9.0))


def test_shared_memory_that_would_become_far_more_than_the_file_is_refused(tmp_path):
    whole = torch.zeros(200_000)
    torch.save({f"name {i}": whole for i in range(9)}, tmp_path / "x.pth")
    refused(read_trusted, tmp_path / "x.pth", "claims 800,000 bytes")


def test_bfloat16_of_jax_and_numbers_in_another_order_of_bytes_are_read(tmp_path):
    numbers = STATE["a"].numpy()
    raw = (numbers.view("u4") >> 16).astype("u2").view("V2")
    np.savez(tmp_path / "x.npz", a=raw, b=numbers.astype(">f4"), c=numbers.astype(np.float16))
    found = read_tensors(tmp_path / "x.npz")
    assert found["a"].dtype == torch.bfloat16 and all(torch.equal(tensor.float(), STATE["a"]) for tensor in found.values())


@pytest.mark.parametrize(
    "array", [np.array(["a"]), np.zeros(2, "V1"), np.array(["2024"], "datetime64[Y]")], ids=lambda a: a.dtype
)
def test_an_array_of_no_numbers_is_refused_by_its_key(array, tmp_path):
    np.savez(tmp_path / "x.npz", a=np.zeros(3), strange=array)
    refused(read_tensors, tmp_path / "x.npz", "strange has an unsupported type")


def test_even_a_trusted_pickle_runs_nothing(tmp_path):
    mark = tmp_path / "mark"
    torch.save({"a": torch.zeros(2), "trap": Trap(mark)}, tmp_path / "x.pth")
    refused(read_trusted, tmp_path / "x.pth", "weights_only=True")
    (tmp_path / "y.bin").write_bytes(pickle.dumps(Trap(mark)))
    refused(read_trusted, tmp_path / "y.bin")
    assert not mark.exists()


@pytest.mark.parametrize("content", [[1, 2], {"epoch": 3}, "text", None], ids=repr)
def test_a_pickle_without_tensors_is_refused(content, tmp_path):
    torch.save(content, tmp_path / "x.pth")
    refused(read_trusted, tmp_path / "x.pth", "no dictionary of tensors")


@pytest.mark.parametrize("new", [True, False], ids=["archive", "before 1.6"])
def test_views_in_a_pickle_are_read_right_and_those_of_more_than_there_is_are_refused(new, tmp_path):
    whole = torch.arange(6.0)
    views = {"turned": whole.reshape(3, 2).T, "every other": whole[::2], "again": whole[1:2].expand(4, 3)}
    torch.save(views, tmp_path / "x.pth", _use_new_zipfile_serialization=new)
    found = read_trusted(tmp_path / "x.pth")
    assert all(torch.equal(found[name], view) and found[name].is_contiguous() for name, view in views.items())
    for sides in ((2**10, 2**10), (2**20, 2**20)):  # four megabytes, and four terabytes, of a file of a kilobyte
        torch.save({**STATE, "huge": torch.zeros(1).expand(sides)}, tmp_path / "x.pth", _use_new_zipfile_serialization=new)
        refused(read_trusted, tmp_path / "x.pth", "huge claims")


STRANGE = {
    "sparse": torch.eye(3).to_sparse(),
    "on the meta device": torch.zeros(3, device="meta"),
    "quantised": torch.quantize_per_tensor(torch.zeros(()), 0.1, 0, torch.qint8),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_tensors_of_a_pickle_that_are_no_plain_numbers_are_refused_by_name(kind, tmp_path):
    torch.save({**STATE, "strange": STRANGE[kind]}, tmp_path / "x.pth")
    refused(read_trusted, tmp_path / "x.pth", "strange is")


def test_a_pickle_that_unpacks_to_far_more_than_it_is_is_refused_unread(tmp_path):
    torch.save({"a": torch.zeros(10_000_000)}, tmp_path / "x.pth")
    with zipfile.ZipFile(tmp_path / "x.pth") as plain, zipfile.ZipFile(tmp_path / "y.pth", "w", zipfile.ZIP_DEFLATED) as packed:
        for entry in plain.infolist():
            packed.writestr(entry.filename, plain.read(entry))
    refused(read_trusted, tmp_path / "y.pth", "unpacks to 40,")


@pytest.mark.parametrize("shape", ["(((6,)", "(68719476736,)", "(-1,)"])
def test_an_array_whose_head_lies_is_refused(shape, tmp_path):
    np.savez(tmp_path / "x.npz", a=np.zeros(6, np.float32))
    content = (tmp_path / "x.npz").read_bytes()
    head = b"'shape': (6,), }"
    made = f"'shape': {shape}, }}".encode()
    changed = content.replace(head + b" " * (len(made) - len(head)), made)
    assert changed != content and len(changed) == len(content)
    (tmp_path / "x.npz").write_bytes(changed)
    refused(read_tensors, tmp_path / "x.npz", "damaged")


@pytest.mark.parametrize("kind", NAMES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 5), (1, 1, 7)], ids=str)
def test_tensors_written_in_turn_are_read_by_the_library(kind, shape, tmp_path):
    tensors = {"a": (torch.rand(shape) * 100).to(kind), "ä b.": torch.rand(4, 3).T, "last": torch.tensor(7)}
    like = {name: tensor.to("meta") for name, tensor in tensors.items()}
    write_in_turn(tmp_path / "a.safetensors", like, iter(tensors.values()))
    found = read_tensors(tmp_path / "a.safetensors")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor)


def test_fewer_tensors_than_announced_are_an_error(tmp_path):
    with pytest.raises(ValueError, match="shorter"):
        write_in_turn(tmp_path / "a.safetensors", {"a": torch.zeros(1), "b": torch.zeros(1)}, iter([torch.zeros(1)]))

"""A model folder gives back what was put in, appears whole, and cannot harm who loads it."""

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from vitrail.errors import ConfigError, ModelFileError
from vitrail.weights.convert import convert
from vitrail.weights.formats.checksums import write_sums
from vitrail.weights.formats.tensor_files import read_tensors
from vitrail.weights.model_folder import trained as trained_module
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.model_folder.trained import save_model
from vitrail.weights.reference import load_model

POSITIONS = ["none", "learned-1d", "learned-2d", "sincos-1d", "sincos-2d", "sincos-2d-simple", "relative", "rotary"]
VARIANTS = [
    *({"position": position} for position in POSITIONS),
    {"pool": "mean"},
    {"pool": "attention", "registers": 2},
    {"head": "mlp", "qk_norm": True},
    {"head": "lecture", "embedding": "linear"},
    {"embedding": "stem", "mlp": "swiglu"},
    {"block": "parallel", "layer_scale": 0.1, "qkv_bias": False},
    {"image_size": (24, 16), "patch_size": (8, 4), "channels": 3, "position": "rotary", "registers": 1},
]


def edit_json(file, **changes):
    values = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps({k: v for k, v in values.items() if v is not ...}))


def edit_tensors(folder, edit):
    file = folder / "model.safetensors"
    tensors = {k: v.clone() for k, v in load_file(file).items()}
    tensors = edit(tensors) or tensors
    save_file(tensors, file)


def refused(folder, *words):
    with pytest.raises(ModelFileError) as error:
        load_model(folder)
    assert error.value.exit_code == 4 and error.value.where and error.value.hint
    assert all(word in str(error.value) for word in words), str(error.value)


# -- what goes in comes out


@pytest.mark.parametrize("fields", VARIANTS, ids=str)
def test_a_loaded_model_gives_the_same_logits(fields, tmp_path, trained):
    before = trained(**fields)
    save_model(tmp_path / "model", before, card="")
    after = load_model(tmp_path / "model")
    config = before.model.config
    images = torch.randn(2, config.channels, *config.image_size)
    with torch.inference_mode():
        assert torch.equal(before.model(images), after.model(images))
    assert after.model.config == config and after.labels == before.labels and after.preparation == before.preparation


def test_a_loaded_model_is_ready_to_answer_and_to_be_trained_on(folder):
    model = load_model(folder).model
    assert not model.training
    assert all(p.requires_grad and p.device.type == "cpu" and p.dtype == torch.float32 for p in model.parameters())
    model(torch.zeros(1, 1, 16, 16)).sum().backward()


@pytest.mark.parametrize("fields", [{}, {"registers": 1}], ids=["transformers", "our own"])
@pytest.mark.parametrize("several", [False, True])
def test_whether_an_image_may_have_several_labels_comes_back(several, fields, tmp_path, trained):
    before = trained(**fields)
    before.multi_label = several
    save_model(tmp_path / "model", before, card="")
    assert load_model(tmp_path / "model").multi_label == several


def test_labels_come_back_in_order_even_when_there_are_many(tmp_path, trained):
    labels = [f"label {12 - i}" for i in range(12)]
    before = trained(num_classes=12)
    save_model(tmp_path / "model", TrainedModel(before.model, labels, before.preparation), card="")
    assert load_model(tmp_path / "model").labels == labels


def test_a_label_that_is_no_text_is_not_written(tmp_path, trained):
    odd = trained()
    odd.labels[0] = "g\udcff"
    with pytest.raises(ConfigError, match=r"label 'g\\udcff' is not valid UTF-8"):
        save_model(tmp_path / "model", odd, card="")
    assert not [*tmp_path.iterdir()]


def test_a_folder_holds_what_hugging_face_expects(folder):
    names = {"config.json", "model.safetensors", "preprocessor_config.json", "README.md"}
    assert {f.name for f in folder.iterdir()} == names
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["model_type"] == "vitrail" and config["architectures"] == ["ViT"]
    assert config["label2id"] == {label: int(i) for i, label in config["id2label"].items()}
    assert (folder / "README.md").read_text() == "# A model\n"


def test_a_model_on_the_way_of_training_is_saved_as_it_is(tmp_path, trained):
    before = trained()
    before.model.train()
    before.model(torch.zeros(1, 1, 16, 16)).sum().backward()
    save_model(tmp_path / "model", before, card="")
    assert before.model.training and before.model.norm.weight.grad is not None
    assert torch.equal(load_model(tmp_path / "model").model.norm.weight, before.model.norm.weight)


# -- whole or not at all


@pytest.mark.parametrize("function", ["write_json", "write_text", "write_tensors"])
def test_a_failed_write_leaves_the_old_folder_and_no_draft(function, folder, trained, monkeypatch):
    write_sums(folder)
    before = {f.name: f.read_bytes() for f in folder.iterdir()}
    written = getattr(trained_module, function)

    def full(file, *args):
        written(file, *args)
        raise OSError("no space left on device")

    monkeypatch.setattr(trained_module, function, full)
    with pytest.raises(OSError, match="no space"):
        save_model(folder, trained(seed=1), card="new")
    with pytest.raises(OSError, match="no space"):
        save_model(folder.parent / "another", trained(), card="new")
    assert {f.name: f.read_bytes() for f in folder.iterdir()} == before
    assert list(folder.parent.iterdir()) == [folder]


def test_a_new_model_takes_the_whole_place_of_the_old(folder, trained):
    (folder / "leftover.txt").write_text("old")
    write_sums(folder)
    after = trained(seed=1)
    save_model(folder, after, card="new")
    assert not (folder / "leftover.txt").exists() and list(folder.parent.iterdir()) == [folder]
    assert torch.equal(load_model(folder).model.norm.weight, after.model.norm.weight)


# -- damaged configurations


@pytest.mark.parametrize("file", ["config.json", "preprocessor_config.json", "model.safetensors"])
def test_a_missing_file_is_named(file, folder):
    (folder / file).unlink()
    refused(folder, file, "missing")


@pytest.mark.parametrize("file", ["config.json", "preprocessor_config.json"])
@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"\xff\xfe\x00", b"9" * 5000, b"[" * 100_000],
    ids=lambda c: repr(c[:8]),
)
def test_json_that_is_damaged_is_refused_by_name(file, content, folder):
    (folder / file).write_bytes(content)
    refused(folder, file)


def test_a_folder_where_a_file_should_be_is_refused(folder):
    for file in ("model.safetensors", "preprocessor_config.json", "config.json"):
        (folder / file).unlink()
        (folder / file).mkdir()
        refused(folder, file)


def test_an_unknown_key_is_refused_with_the_nearest(folder):
    edit_json(folder / "config.json", dept=2)
    refused(folder, "dept", "'depth'", "config.json")


@pytest.mark.parametrize(
    "damage",
    [
        {"model_type": "bert"}, {"architectures": ["Other"]}, {"architectures": "ViT"}, {"id2label": ...},
        {"id2label": ["cat", "dog", "ant"]}, {"id2label": {"0": "cat", "1": "dog"}},
        {"id2label": {"0": "cat", "1": "dog", "2": ["ant"]}}, {"dim": 0}, {"dim": "wide"}, {"dim": 16.5}, {"dim": None},
        {"heads": 3}, {"patch_size": 0}, {"image_size": [16]}, {"image_size": [16, "x"]}, {"image_size": {}}, {"image_size": 17},
        {"position": "somewhere"}, {"position": ["none"]}, {"dropout": 1.5}, {"layer_scale": float("inf")},
        {"norm_eps": float("nan")}, {"auto_map": {"AutoModel": "modeling.Evil"}},
    ],
    ids=str,
)  # fmt: skip
def test_a_configuration_that_cannot_be_is_refused(damage, folder):
    edit_json(folder / "config.json", **damage)
    refused(folder, "config.json")


def test_a_configuration_that_does_not_fit_the_weights_is_refused(folder):
    edit_json(folder / "config.json", dim=32)
    refused(folder, "(16,)", "(32,)")


@pytest.mark.parametrize(
    "absurd",
    [
        {"dim": 10**18}, {"dim": 2**63, "heads": 1}, {"mlp_dim": 10**12}, {"channels": 10**12}, {"num_classes": 10**9},
        {"registers": 10**12}, {"image_size": [8 * 10**6] * 2}, {"image_size": [10**9] * 2, "patch_size": [10**9] * 2},
    ],
    ids=str,
)  # fmt: skip
def test_absurd_sizes_are_refused_and_take_no_memory(absurd, folder):
    edit_json(folder / "config.json", **absurd)
    refused(folder)


@pytest.mark.parametrize(
    "absurd",
    [
        {"depth": 10**9},
        {"image_size": [8 * 10**6] * 2, "position": "sincos-1d"},
        {"image_size": [8 * 10**6] * 2, "position": "sincos-2d"},
        {"image_size": [8 * 10**6] * 2, "position": "rotary"},
        {"image_size": [8 * 10**4] * 2, "position": "relative"},
    ],
    ids=str,
)
def test_absurd_sizes_are_refused_before_a_model_is_built(absurd, folder, monkeypatch):
    monkeypatch.setattr("vitrail.models.empty.build", lambda config: pytest.fail("an absurd model would be built"))
    edit_json(folder / "config.json", **absurd)
    refused(folder)


def test_a_preparation_for_another_model_is_refused(folder):
    file = folder / "preprocessor_config.json"
    good = file.read_text()
    for damage in (
        {"image_mean": [0.5] * 3, "image_std": [0.5] * 3},
        {"crop_size": {"height": 32, "width": 32}, "size": {"height": 32, "width": 32}},
    ):
        edit_json(file, **damage)
        refused(folder)
        file.write_text(good)


# -- damaged weights


def test_every_key_that_does_not_fit_is_listed(folder):
    def edit(tensors):
        tensors["stranger"] = torch.zeros(2)
        tensors["norm.weight"] = torch.zeros(5)
        del tensors["class_token"]

    edit_tensors(folder, edit)
    refused(
        folder,
        "missing class_token",
        "unexpected stranger",
        "norm.weight is (5,), expected (16,)",
        "model.safetensors",
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite_are_refused(value, folder):
    def edit(tensors):
        tensors["norm.weight"][3] = value

    edit_tensors(folder, edit)
    refused(folder, "norm.weight")


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn], ids=str)
def test_weights_that_are_no_plain_numbers_are_refused(dtype, folder):
    edit_tensors(folder, lambda tensors: {k: v.to(dtype) for k, v in tensors.items()})
    refused(folder)


def test_truncated_weights_are_refused(folder):
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    for length in (0, 1, 7, 8, 9, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        refused(folder, "model.safetensors")


def test_foreign_bytes_are_refused(folder):
    random = np.random.default_rng(0)
    header = (2**62).to_bytes(8, "little")
    for content in (random.bytes(4000), header, header + b"{}", b"\x02" + bytes(7) + b"{}", pickle.dumps({"a": 1}), b"PK\3\4"):
        (folder / "model.safetensors").write_bytes(content)
        refused(folder, "model.safetensors")


# -- nothing runs


class Trap:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return open, (str(self.mark), "w")


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin", ".ckpt", ".pkl", ".PT", ".pickle"])
def test_pickles_are_refused_by_name_without_a_look_inside(suffix, tmp_path):
    file, mark = tmp_path / f"weights{suffix}", tmp_path / "mark"
    file.write_bytes(pickle.dumps(Trap(mark)))
    with pytest.raises(ModelFileError, match="is a pickle") as error:
        read_tensors(file)
    assert error.value.exit_code == 4 and not mark.exists()


def test_a_pickle_in_disguise_is_refused_and_not_run(folder):
    mark = folder / "mark"
    (folder / "model.safetensors").write_bytes(pickle.dumps(Trap(mark)))
    refused(folder, "model.safetensors")
    assert not mark.exists()


@pytest.mark.parametrize("layout", ["vitrail", "timm"])
def test_loading_a_folder_runs_nothing_and_opens_nothing_else(layout, tmp_path, trained):
    folder = tmp_path / "model"
    convert(trained(), folder, layout=layout)
    mark = folder / "mark"
    for name in ("pytorch_model.bin", "training_args.pt", "optimizer.pkl"):
        (folder / name).write_bytes(pickle.dumps(Trap(mark)))
    for name in ("modeling_vitrail.py", "__init__.py", "conftest.py", "json.py", "torch.py"):
        (folder / name).write_text(f"open({str(mark)!r}, 'w')\n")
    script = """if True:
        import sys
        from pathlib import Path
        from vitrail.weights.reference import load_model

        folder, events, watching = Path(sys.argv[1]), [], False
        forbidden = ("exec", "compile", "import", "marshal.", "pickle.", "subprocess.", "os.", "socket.", "ctypes.", "code.")

        def watch(event, args):
            if watching and (event.startswith(forbidden) or event == "open"):
                events.append((event, str(args[0]) if args else ""))

        load_model(folder)  # what torch itself imports on the way is not the folder's doing
        sys.addaudithook(watch)
        watching = True
        load_model(folder)
        watching = False
        for event in events:
            print(*event)
    """
    result = subprocess.run([sys.executable, "-c", script, folder], capture_output=True, text=True, cwd=folder.parent)
    assert result.returncode == 0, result.stderr
    opened = {line.removeprefix(f"open {folder}") for line in result.stdout.splitlines()}
    assert opened <= {"/config.json", "/preprocessor_config.json", "/model.safetensors", "/README.md", "/SHA256SUMS"}
    assert not mark.exists()

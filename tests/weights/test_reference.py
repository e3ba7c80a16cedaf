"""What may stand for a model, and what is said of everything else."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import ViTConfig, ViTForImageClassification

from vitrail.errors import ModelFileError
from vitrail.models.registry import model_config
from vitrail.weights.formats.checksums import write_sums
from vitrail.weights.model_folder.trained import save_model
from vitrail.weights.reference import config_of, from_pretrained, open_model


@pytest.fixture
def run(tmp_path, trained):
    """A run folder with a best model and a last one that differs."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "status.json").write_text("{}")
    for seed, name in enumerate(("best", "last")):
        save_model(folder / name, trained(seed=seed), card="")
    return folder


def same(a, b) -> bool:
    return torch.equal(a.model.norm.weight, b.model.norm.weight)


def refused(reference, *words, opening=open_model):
    with pytest.raises(ModelFileError) as error:
        opening(reference)
    assert error.value.exit_code == 4 and error.value.hint
    assert all(word in str(error.value) for word in words), str(error.value)


def test_a_model_folder_its_weights_and_text_all_name_the_model(folder):
    models = [open_model(r) for r in (folder, str(folder), f"{folder}/", folder / "model.safetensors")]
    assert all(same(models[0], model) for model in models)


def test_a_run_folder_means_its_best_model(run):
    assert same(open_model(run), open_model(run / "best")) and not same(open_model(run), open_model(run / "last"))


def test_a_run_without_a_best_model_says_how_to_go_on(tmp_path):
    (tmp_path / "status.json").write_text("{}")
    refused(tmp_path, "no model yet", "vitrail resume")


@pytest.mark.parametrize("name", ["ViT-G/14", "ViT-S/37", "vit_base_patch8_224", "ViT-CIFAR10-lecture"])
def test_an_architecture_is_no_model_until_it_is_trained(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(name, name, "train")


@pytest.mark.parametrize(
    "reference",
    ["missing", "missing.pt", "missing/model.safetensors", "ViT-X/16", "~no-such-user/run", "x" * 300, "nul\0byte", ""],
    ids=lambda r: r[:20].strip("\0") or "empty",
)
def test_what_names_nothing_is_refused(reference, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(reference)
    refused(reference, opening=config_of)


def test_a_folder_without_a_model_is_refused(tmp_path):
    refused(tmp_path, "config.json")


def test_weights_of_our_own_without_their_configuration_say_that_it_is_missing(folder):
    alone = folder.parent / "alone.safetensors"
    alone.write_bytes((folder / "model.safetensors").read_bytes())
    refused(alone, "config.json is missing")
    refused(folder / "config.json", "config.json")


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("x.pth.tar", "x.pth.tar x --trust-pickle"),
        ("my best.ckpt", "'my best.ckpt' 'my best' --trust-pickle"),
        ("v1.2.bin", "v1.2.bin v1.2 --trust-pickle"),
    ],
)
def test_the_command_that_reads_a_pickle_can_be_given_as_it_stands(name, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(b"\x80\x04.")
    refused(name, f"vitrail convert {command}")


def split(folder: Path, parts: int, write, name: str) -> list[Path]:
    """Put several files of weights in the place of a folder's one file."""
    tensors = [*load_file(folder / "model.safetensors").items()]
    (folder / "model.safetensors").unlink()
    files = [folder / name.format(number, parts) for number in range(1, parts + 1)]
    for number, file in enumerate(files):
        write(dict(tensors[number::parts]), file)
    return files


KINDS = [(save_file, "model-{:05}-of-{:05}.safetensors"), (torch.save, "pytorch_model-{:05}-of-{:05}.bin")]


@pytest.mark.parametrize(("write", "name"), KINDS)
@pytest.mark.parametrize("parts", [1, 2, 12])
def test_weights_in_several_files_are_read_together(parts, write, name, folder):
    whole = open_model(folder).model.state_dict()
    for file in (folder, *split(folder, parts, write, name)):
        found = from_pretrained(file, trust_pickle=write is torch.save).model.state_dict()
        assert found.keys() == whole.keys() and all(torch.equal(found[key], whole[key]) for key in whole)


def indexed(folder, names):
    """Split a folder's weights into files of these names, which an index lists."""
    files = [path.rename(folder / name) for path, name in zip(split(folder, len(names), *KINDS[0]), names, strict=True)]
    weight_map = {key: file.name for file in files for key in load_file(file)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return files


@pytest.mark.parametrize(
    "names", [["a.safetensors", "b.safetensors"], ["shard_2.safetensors", "shard_10.safetensors", "x.safetensors"]]
)
def test_parts_of_any_name_are_read_together_by_their_index(names, folder):
    whole = open_model(folder).model.state_dict()
    files = indexed(folder, names)
    save_file({"other": torch.zeros(2)}, folder / "consolidated.safetensors")
    for path in (folder, *files):
        found = open_model(path).model.state_dict()
        assert found.keys() == whole.keys() and all(torch.equal(found[key], whole[key]) for key in whole)
    files[-1].unlink()
    refused(folder, "of them are missing", files[-1].name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("faiss.index.json", "[1]"),
        ("x.index.json", "no JSON"),
        ("other.safetensors.index.json", '{"weight_map": {"a": "parts/other.safetensors"}}'),
    ],
)
def test_an_index_of_other_files_is_passed_over(name, text, folder):
    (folder / "model.safetensors").rename(folder / "vit.safetensors")
    (folder / name).write_text(text)
    assert open_model(folder / "vit.safetensors").labels


@pytest.mark.parametrize("name", ["../a.safetensors", "sub/a.safetensors", "/etc/a.safetensors", ""])
def test_an_index_that_names_files_elsewhere_is_refused(name, folder):
    indexed(folder, ["a.safetensors", "b.safetensors"])
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": name, "y": "b.safetensors"}}))
    refused(folder, "names a file that is not beside it")


def test_a_large_model_of_transformers_is_read_as_it_writes_it(tmp_path):
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 64}
    theirs = ViTForImageClassification(ViTConfig(image_size=32, patch_size=8, **sizes)).eval()
    theirs.save_pretrained(tmp_path, max_shard_size="30KB")
    assert len([*tmp_path.glob("model-*-of-*.safetensors")]) > 3 and (tmp_path / "model.safetensors.index.json").is_file()
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(open_model(tmp_path).model(images), theirs(images).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("write", "name"), KINDS)
def test_weights_of_which_a_file_is_missing_are_refused(write, name, folder):
    first, lost, last = split(folder, 3, write, name)
    lost.unlink()
    for model in (folder, first, last):
        with pytest.raises(ModelFileError, match=f"split into 3 files, and of them are missing: {lost.name}\n"):
            from_pretrained(model, trust_pickle=True)


def test_a_tensor_that_is_in_two_files_is_refused(folder):
    first, second = split(folder, 2, *KINDS[0])
    name, tensor = next(iter(load_file(first).items()))
    save_file({**load_file(second), name: tensor}, second)
    with pytest.raises(ModelFileError, match=f"{second.name} has tensors that another .* has, too: {name}\n"):
        open_model(folder)


def test_a_file_beside_those_that_belong_together_is_not_chosen_from_nor_are_two_sets(folder):
    files = split(folder, 2, *KINDS[0])
    for more in ("extra.safetensors", "model-00003-of-00003.safetensors", "other-00001-of-00002.safetensors"):
        save_file({}, folder / more)
        refused(folder, "several files of weights", more)
        (folder / more).unlink()
    assert open_model(files[1]).labels == open_model(folder).labels


def test_pickles_in_several_files_are_as_little_trusted_as_one(folder):
    files = split(folder, 2, *KINDS[1])
    refused(folder, f"{files[0].name} is a pickle", "--trust-pickle")
    refused(files[0], "is a pickle")


def test_every_file_of_the_weights_is_compared_with_its_sum(folder):
    for file in split(folder, 2, *KINDS[0]):
        write_sums(folder)
        save_file({key: tensor + 1 for key, tensor in load_file(file).items()}, file)
        refused(folder, f"{file.name} differs from its checksum in SHA256SUMS")


def test_a_file_without_tensors_says_so(tmp_path):
    save_file({}, tmp_path / "empty.safetensors")
    refused(tmp_path / "empty.safetensors", "holds no weights", opening=from_pretrained)


def test_the_command_exits_with_4_and_never_opens_a_pickle(tmp_path):
    file = tmp_path / "model.pt"
    file.write_bytes(pickle.dumps({}))
    script = """if True:
        import sys
        sys.addaudithook(lambda event, args: print("OPENED") if event == "open" and str(args[0]).endswith(".pt") else None)
        from vitrail.cli.app import main
        sys.argv = ["vitrail", "predict", sys.argv[1], "cat.jpg"]
        sys.exit(main())
    """
    result = subprocess.run([sys.executable, "-c", script, file], capture_output=True, text=True)
    assert result.returncode == 4 and "pickle" in result.stderr and not result.stdout
    assert "Traceback" not in result.stderr


def test_the_configuration_of_a_name_or_a_model_is_known(folder, run):
    assert config_of("ViT-Ti/16") == model_config("ViT-Ti/16") and config_of("vit_tiny_patch16_224").dim == 192
    assert config_of(folder) == open_model(folder).config and config_of(run) == open_model(run).config
    refused("ViT-Tii/16", "ViT-Ti/16", opening=config_of)


@pytest.mark.parametrize("reference", ["runs/nosuch", "photos/nosuch"])
def test_a_path_that_is_not_there_is_asked_of_no_hub(reference, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("vitrail.weights.locate.fetch", lambda found: pytest.fail(f"the hub was asked for {found}"))
    (tmp_path / "photos").mkdir()
    with pytest.raises(ModelFileError, match=f"no model at '{reference}'") as error:
        open_model(reference)
    assert f"{reference}@main" in error.value.hint


@pytest.mark.parametrize("reference", ["ann/flowers", "photos/flowers@main"])
def test_what_can_only_be_an_id_is_asked_of_the_hub(reference, tmp_path, monkeypatch):
    def asked(found):
        raise LookupError(found)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("vitrail.weights.locate.fetch", asked)
    (tmp_path / "photos").mkdir()
    with pytest.raises(LookupError, match=reference):
        open_model(reference)

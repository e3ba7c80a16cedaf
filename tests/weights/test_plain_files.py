"""What stands beside weights may be a stranger's: every read has a limit and wants a regular file."""

import contextlib
import json
import os
import socket
from contextlib import contextmanager

import pytest

import vitrail
from vitrail.data.preparation import Preparation
from vitrail.deploy.ctranslate2 import ExportedTranslator
from vitrail.errors import ConfigError, ModelFileError
from vitrail.training.configuration import read_yaml
from vitrail.weights.convert import read_labels
from vitrail.weights.folder import TrainedModel
from vitrail.weights.plain_files import read_json
from vitrail.weights.reference import open_model


def damage(file, kind):
    """Put something that never ends, never begins or is too large in the place of a file."""
    file.unlink(missing_ok=True)
    if kind == "device":
        file.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        with file.open("wb") as content:
            content.truncate(40 * 2**30)


@pytest.mark.parametrize("kind", ["device", "pipe", "folder", "40 GB"])
def test_no_read_goes_on_for_ever(kind, tmp_path):
    file = tmp_path / "file"
    damage(file, kind)
    reason = "42,949,672,960 bytes, more than" if kind == "40 GB" else "no regular file|Is a directory"
    with pytest.raises(ModelFileError, match=reason):
        read_json(file)
    with pytest.raises(ConfigError, match=reason):
        read_yaml(file)
    with pytest.raises(ConfigError, match=reason):
        read_labels(file, 2)


@pytest.mark.parametrize("kind", ["device", "pipe", "40 GB"])
@pytest.mark.parametrize("name", ["config.json", "preprocessor_config.json", "README.md"])
def test_no_file_of_a_model_folder_does_either(name, kind, build, tmp_path):
    folder = tmp_path / "model"
    TrainedModel(build(), ["a", "b", "c"], Preparation.standard((16, 16), 1)).save_pretrained(folder)
    damage(folder / name, kind)
    if name == "README.md":
        assert vitrail.open_model(folder).labels
    else:
        with pytest.raises(ModelFileError, match=f"{name} cannot be read"):
            vitrail.open_model(folder)


@pytest.mark.parametrize("text", ['{"id2label": {"0": "\\ud800"}}', b'{"id2label": {"0": "\xff"}}'])
def test_names_that_are_no_text_are_refused_when_they_are_read(text, tmp_path):
    file = tmp_path / "config.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ModelFileError, match=r"config\.json is not in UTF-8") as error:
        read_json(file)
    assert str(file) in str(error.value)


def test_letters_of_every_kind_are_read(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"name": "Körner 𝄞 🪟"}))  # the last two as pairs of halves
    assert read_json(file) == {"name": "Körner 𝄞 🪟"}


@pytest.mark.parametrize("name", ["model.pth.tar", "model.PTH", "pytorch_model.bin"])
def test_a_pickle_is_known_by_its_name(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ModelFileError, match="is a pickle"):
        open_model(tmp_path / name)


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
@pytest.mark.parametrize("name", ["w.safetensors", "w.npz", "w.pt", "model"])
def test_a_model_that_is_no_regular_file_is_refused_by_its_name(kind, name, tmp_path):
    with strange(tmp_path / name, kind), pytest.raises(ModelFileError, match=f"{name} is no regular file"):
        open_model(tmp_path / name)


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
@pytest.mark.parametrize("name", ["config.json", "model.bin", "shared_vocabulary.json", "vmap.txt"])
def test_no_file_of_a_folder_for_an_engine_is_waited_for(kind, name, tmp_path):
    (tmp_path / "translator.json").write_text("{}")
    with strange(tmp_path / name, kind), pytest.raises(ModelFileError, match=f"{name} is no regular file"):
        ExportedTranslator(tmp_path)


@contextmanager
def strange(file, kind):
    """Something that may never end in the place of a file."""
    if kind != "socket":
        damage(file, kind)
        yield
        return
    with socket.socket(socket.AF_UNIX) as listener, contextlib.chdir(file.parent):  # a path of a socket has at most 108 letters
        listener.bind(file.name)
        yield

"""What stands beside weights may be a stranger's: every read has a limit and wants a regular file."""

import contextlib
import io
import os
import socket
import zipfile
from contextlib import contextmanager

import pytest
import torch

import vitrail
from vitrail.config.yaml_files import read_yaml
from vitrail.data.images.preparation import Preparation
from vitrail.errors import ConfigError, ModelFileError
from vitrail.tasks.translation.ctranslate2 import ExportedTranslator
from vitrail.weights.convert import read_labels
from vitrail.weights.formats.safe_files import is_pickle, read_json
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import from_pretrained, open_model


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


@pytest.mark.parametrize("name", ["model.pth.tar", "model.PTH", "pytorch_model.bin", "SLOWFAST.pyth", "net.t7"])
def test_a_pickle_is_known_by_its_name(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ModelFileError, match="is a pickle"):
        open_model(tmp_path / name)


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
@pytest.mark.parametrize("name", ["w.safetensors", "w.npz", "w.pt", "model"])
def test_a_model_that_is_no_regular_file_is_refused_by_its_name(kind, name, tmp_path):
    with strange(tmp_path / name, kind), pytest.raises(ModelFileError, match=f"{name} is not a regular file"):
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


@pytest.mark.parametrize("new", [True, False], ids=["archive", "before 1.6"])
@pytest.mark.parametrize("name", ["model", "model_best.tar", "weights.model", "checkpoint.0"])
def test_a_pickle_is_known_by_its_content_where_its_name_tells_nothing(name, new, tmp_path, build):
    file, model = tmp_path / name, build(dim=64, heads=1, channels=3)
    torch.save({"model": model.state_dict()}, file, _use_new_zipfile_serialization=new)
    with pytest.raises(ModelFileError, match=r"is a pickle.*\n.*\n.*vitrail convert .* --trust-pickle"):
        open_model(file)
    with pytest.raises(ModelFileError, match="model folder"):  # it is opened, and lacks what weights of our own need
        from_pretrained(file, trust_pickle=True)


@pytest.mark.parametrize("content", [b"", b"PK\3\4", b"some text", b"\x80"])
def test_what_is_no_pickle_is_no_model(content, tmp_path):
    (tmp_path / "model").write_bytes(content)
    with pytest.raises(ModelFileError, match="model is not a model"):
        from_pretrained(tmp_path / "model", trust_pickle=True)


@pytest.mark.parametrize(("start", "value"), [(6, b"\x63"), (8, b"\0\x08")])
def test_an_archive_with_odd_entries_is_no_pickle_and_hinders_no_model_beside_it(start, value, tmp_path, trained):
    folder, content = tmp_path / "model", io.BytesIO()
    trained().save_pretrained(folder)
    (folder / "model.safetensors").rename(folder / "vit.safetensors")
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("x/notes.txt", "a")
    raw = bytearray(content.getvalue())
    entry = raw.find(b"PK\1\2")
    raw[entry + start : entry + start + len(value)] = value
    raw[raw.find(b"x/notes", entry)] = 0xFF  # no UTF-8, which the flags at 8 claim
    (folder / "notes").write_bytes(raw)
    assert open_model(folder).labels
    assert not is_pickle(folder / "notes")

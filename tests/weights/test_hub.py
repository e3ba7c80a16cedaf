"""The hub gives and takes model folders and nothing else; the other side is a small hub on this computer."""

import hashlib
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
import torch
from huggingface_hub import constants
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from hypothesis import example, given
from hypothesis import strategies as st

import vitrail
from marian_folder import random_marian, write_folder
from vitrail.errors import ConfigError, ModelFileError, VitrailError
from vitrail.models.registry import NAMES
from vitrail.tasks.translation.weights import open_translator
from vitrail.weights.convert import convert
from vitrail.weights.formats.pipeline import PIPELINE_FILES
from vitrail.weights.hub import cached, fetch, is_hub_id, push
from vitrail.weights.locate import translates
from vitrail.weights.model_folder.trained import save_model
from vitrail.weights.reference import load_model
from weights.hub_server import READER, WRITER, Hub

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content:DeprecationWarning")  # how huggingface_hub calls its own library

MODEL = {
    "config.json": b"{}",
    "preprocessor_config.json": b'{"a": 1}',
    "README.md": b"# A card\n",
    "model.safetensors": b"\0\1\2",
}
LISTED = ("config.json", "model.safetensors", "preprocessor_config.json")
SUMS = "".join(f"{hashlib.sha256(MODEL[name]).hexdigest()}  {name}\n" for name in LISTED)
SENT = {**MODEL, "SHA256SUMS": SUMS.encode()}
"""What is uploaded of it."""


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub that huggingface_hub talks to, with a cache of its own; nobody is logged in."""
    with Hub() as hub:
        use(monkeypatch, hub.url, tmp_path / "cache")
        yield hub


def use(monkeypatch, url, cache):
    """What the environment says is read when huggingface_hub is imported; here it is said later."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_OIDC_RESOURCE"):
        monkeypatch.delenv(name, raising=False)
    changes = {
        "ENDPOINT": url,
        "HUGGINGFACE_CO_URL_TEMPLATE": url + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_CACHE": str(cache),
        "HF_TOKEN_PATH": str(cache / "token"),
        "HF_STORED_TOKENS_PATH": str(cache / "stored_tokens"),
        "HF_HUB_OFFLINE": False,
        "HF_HUB_DISABLE_XET": True,
        "HF_HUB_DISABLE_IMPLICIT_TOKEN": False,
    }
    for name, value in changes.items():
        monkeypatch.setattr(constants, name, value)


@pytest.fixture
def logged_in(monkeypatch, hub):
    """The owner is logged in."""
    monkeypatch.setenv("HF_TOKEN", WRITER)


@pytest.fixture
def folder(tmp_path):
    """A model folder with its adapter, and with what must not leave the computer."""
    folder = tmp_path / "model"
    others = {
        "adapter/adapter_config.json": b"{}",
        "adapter/adapter_model.safetensors": b"\3",
        "adapter/notes.txt": b"mine",
        "optimizer.pt": b"pickle",
        ".env": b"SECRET",
        ".hidden.safetensors": b"\4",
        "checkpoints/model.safetensors": b"\5",
        "photos/cat.png": b"png",
    }
    for name, content in {**MODEL, **others}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def content(folder):
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def refused(reference, *words, kind=ModelFileError):
    with pytest.raises(kind) as error:
        fetch(reference)
    assert error.value.where == reference and error.value.hint
    assert all(word in str(error.value) for word in words), str(error.value)
    assert error.value.exit_code == 4
    return str(error.value)


# -- what is an id


PARTS = st.text("aB0_.-", min_size=1, max_size=6) | st.integers(90, 100).map("x".__mul__)


@given(PARTS, PARTS)
@example("org", "name.git")
@example("a--b", "name")
def test_an_id_is_what_huggingface_hub_takes_for_one(organisation, name):
    repository = f"{organisation}/{name}"
    try:
        validate_repo_id(repository)
    except HFValidationError:
        expected = False
    else:
        expected = True
    assert is_hub_id(repository) == is_hub_id(f"{repository}@v1.0") == expected


@pytest.mark.parametrize(
    "name", [*NAMES, "R50+B/16", "ViT-S/37", "ViT-S/37@main", "vit-b/16", "ViT-X/16", "vit_base_patch16_224"]
)
def test_an_architecture_is_no_id(name):
    assert not is_hub_id(name)


PATHS = (
    "name / a/ /a a/b/c ./a ../a a/.. ~/a .a/b a/.b /a/b a\b é/b runs/best.safetensors runs/model.PTH runs/a.npz@main runs/a.bin"
)
ODDITIES = "a/b@ a/b@.. a/b@c/d a/b@../c a/b@c@d a/b@c..d @c a/b@-c hf:a/b https://a/b"


@pytest.mark.parametrize("reference", [*PATHS.split(), *ODDITIES.split(), "", "a b/c", "a/b\n", "a/b@c\n"])
def test_paths_and_oddities_are_no_ids(reference):
    assert not is_hub_id(reference)


def test_only_an_id_is_fetched(hub):
    for reference in ("../secrets", "ViT-B/16", "runs/model.pt"):
        with pytest.raises(ModelFileError, match="not a hub id"):
            fetch(reference)
    assert hub.log == []


# -- from the hub


def test_only_what_a_model_folder_is_made_of_is_asked_for(hub):
    others = {
        "pytorch_model.bin": b"pickle",
        "model.pt": b"pickle",
        "tf_model.h5": b"h5",
        "modeling.py": b"print()",
        "other.safetensors": b"\7",
        "onnx/model.safetensors": b"\7",
        "onnx/config.json": b"{}",
        "[m]odel.safetensors": b"\7",
    }
    hub.add("ann/flowers", {**others, **MODEL})
    assert content(fetch("ann/flowers")) == MODEL
    assert hub.asked_for == MODEL.keys()


@pytest.mark.parametrize("name", ["weights.npz", "vit [small].safetensors", "UPPER.SAFETENSORS"])
def test_a_single_file_of_weights_may_have_any_name(hub, name):
    files = {"config.json": b"{}", name: b"\1"}
    hub.add("ann/flowers", {**files, "pytorch_model.bin": b"pickle", "sub/another.npz": b"\2"})
    assert content(fetch("ann/flowers")) == files
    assert hub.asked_for == files.keys()


def test_weights_in_several_files_are_fetched_together(hub, monkeypatch):
    parts = {f"model-0000{number}-of-00003.safetensors": bytes([number]) for number in (1, 2, 3)}
    hub.add("ann/large", {**parts, "config.json": b"{}", "model.safetensors.index.json": b"{}", "model.fp16.npy": b"\7"})
    folder = fetch("ann/large")
    assert content(folder) == {**parts, "config.json": b"{}"}
    assert cached("ann/large") == folder
    (folder / "model-00002-of-00003.safetensors").unlink()
    assert cached("ann/large") is None


WEIGHTS_OF_PIPELINE = "transformer/diffusion_pytorch_model.safetensors"
PIPELINE = (*PIPELINE_FILES, "README.md", WEIGHTS_OF_PIPELINE)


def test_a_pipeline_is_fetched_with_its_parts(hub, monkeypatch):
    files = {name: name.encode() for name in PIPELINE}
    others = ("vae/diffusion_pytorch_model.bin", "transformer/diffusion_pytorch_model.bin", "text_encoder/model.safetensors")
    hub.add("ann/images", {**files, **dict.fromkeys(others, b"x")})
    folder = fetch("ann/images")
    assert {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()} == files.keys() == hub.asked_for
    assert cached("ann/images") == folder
    (folder / WEIGHTS_OF_PIPELINE).unlink()
    assert cached("ann/images") is None


def test_a_revision_is_a_branch_or_a_commit(hub):
    repository = hub.add("ann/flowers", MODEL)
    first = repository.branches["main"]
    repository.commit({**MODEL, "model.safetensors": b"second"})
    repository.commit({**MODEL, "model.safetensors": b"third"}, "v1.0")

    def weights(reference):
        return (fetch(reference) / "model.safetensors").read_bytes()

    assert weights("ann/flowers") == b"second"
    assert weights("ann/flowers@v1.0") == b"third"
    assert weights(f"ann/flowers@{first}") == MODEL["model.safetensors"]


def test_a_newer_commit_is_fetched_and_what_did_not_change_is_not(hub):
    repository = hub.add("ann/flowers", MODEL)
    fetch("ann/flowers")
    repository.commit({**MODEL, "README.md": b"# Better\n"})
    hub.log.clear()
    assert content(fetch("ann/flowers")) == {**MODEL, "README.md": b"# Better\n"}
    assert [line.rpartition("/")[2] for line in hub.log if line.startswith("GET") and "/resolve/" in line] == ["README.md"]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["pytorch_model.bin", "config.json"], ["pickle", "pytorch_model.bin", "vitrail convert FILE OUT --trust-pickle"]),
        (["model.pth", "model.ckpt"], ["pickle", "model.ckpt; model.pth"]),
        (["model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"], ["several", "model-00003-of-00003"]),
        (
            ["pytorch_model-00001-of-00002.bin"],
            ["pytorch_model-00001-of-00002.bin pytorch_model-00002-of-"],
        ),
        (["a.safetensors", "b.npz"], ["several", "a.safetensors; b.npz"]),
        (
            ["model_index.json", "transformer/diffusion_pytorch_model.bin", "vae/diffusion_pytorch_model.bin"],
            ["pickle", "hf download ann/flowers --local-dir FOLDER, then vitrail convert FOLDER OUT --trust-pickle"],
        ),
        (["tf_model.h5", "config.json"], ["no weights", "tf_model.h5"]),
        (["sub/model.safetensors"], ["no weights"]),
        ([], ["empty"]),
    ],
)
def test_a_repository_without_one_readable_file_of_weights_is_refused_before_anything_is_downloaded(hub, files, words):
    hub.add("ann/flowers", dict.fromkeys(files, b"x"))
    refused("ann/flowers", *words)
    assert hub.asked_for == set()


def test_each_refusal_of_the_hub_has_its_own_words(hub, monkeypatch):
    hub.add("ann/flowers", MODEL)
    hub.add("ann/secret", MODEL, private=True)
    hub.add("ann/gated", MODEL, gated=True)
    unknown = refused("ann/nothing", "no public repository", "hf auth login")
    assert refused("ann/secret").replace("secret", "nothing") == unknown  # the hub does not tell them apart
    revision = refused("ann/flowers@v9", "no such revision")
    gated = refused("ann/gated", "request access")
    monkeypatch.setenv("HF_TOKEN", READER)
    missing = refused("ann/nothing", "that your token can access")
    assert refused("ann/gated") == gated
    assert content(fetch("ann/secret")) == MODEL
    monkeypatch.setenv("HF_TOKEN", "hf_expired")
    expired = refused("ann/flowers", "rejects the token", "hf auth login")
    assert len({unknown, revision, gated, missing, expired}) == 5


# -- without the hub


def switched_off(hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def stopped(hub, monkeypatch):
    hub.stop()


def broken(hub, monkeypatch):
    hub.broken = True


@pytest.mark.parametrize("lose", [switched_off, stopped, broken])
@pytest.mark.parametrize("files", [MODEL, {"weights.npz": b"\1"}], ids=["folder", "file"])
def test_what_is_in_the_cache_needs_no_hub(hub, monkeypatch, lose, files):
    repository = hub.add("ann/flowers", {**files, "pytorch_model.bin": b"pickle"})
    repository.commit({**files, "README.md": b"another"}, "v2")
    folders = [fetch("ann/flowers"), fetch("ann/flowers@v2")]
    lose(hub, monkeypatch)
    assert [fetch("ann/flowers"), fetch("ann/flowers@v2")] == folders
    assert content(folders[0]) == files and content(folders[1])["README.md"] == b"another"


@pytest.mark.parametrize(("lose", "word"), [(switched_off, "HF_HUB_OFFLINE"), (stopped, "refused"), (broken, "503")])
def test_what_is_not_in_the_cache_needs_the_hub(hub, monkeypatch, lose, word):
    hub.add("ann/flowers", MODEL)
    fetch("ann/flowers")
    lose(hub, monkeypatch)
    refused("ann/trees", word)
    refused("ann/flowers@v2", word)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "preprocessor_config.json"])
def test_a_model_that_is_in_the_cache_in_part_is_not_taken(hub, monkeypatch, name):
    hub.add("ann/flowers", MODEL)
    (fetch("ann/flowers") / name).unlink()
    switched_off(hub, monkeypatch)
    refused("ann/flowers", "not in the cache")


def test_other_weights_in_the_cache_do_not_stand_in_for_those_of_the_model(hub, monkeypatch):
    hub.add("ann/flowers", {**MODEL, "other.safetensors": b"\7"})
    (fetch("ann/flowers") / "model.safetensors").unlink()
    huggingface_hub.hf_hub_download("ann/flowers", "other.safetensors")
    switched_off(hub, monkeypatch)
    refused("ann/flowers", "not in the cache")


def test_a_refusal_is_believed_whatever_is_in_the_cache(hub):
    repository = hub.add("ann/flowers", MODEL)
    fetch("ann/flowers")
    repository.private = True
    refused("ann/flowers", "no public repository")


# -- to the hub


def test_what_is_uploaded_comes_back_byte_for_byte(hub, folder, logged_in):
    address = push(folder, "ann/flowers")
    sha = hub.repositories["ann/flowers"].branches["main"]
    assert address == f"{hub.url}/ann/flowers/commit/{sha}"
    assert content(fetch("ann/flowers")) == content(fetch(f"ann/flowers@{sha}")) == SENT


def test_a_model_that_went_through_the_hub_answers_as_before(hub, trained, tmp_path, logged_in):
    before = trained(registers=1)
    save_model(tmp_path / "saved", before, card="# A card\n")
    push(tmp_path / "saved", "ann/flowers")
    after = load_model(fetch("ann/flowers"))
    images = torch.randn(2, 1, 16, 16)
    with torch.inference_mode():
        assert torch.equal(after(images), before(images))
    assert (after.labels, after.preparation, after.card) == (before.labels, before.preparation, "# A card\n")


@pytest.mark.parametrize("layout", [None, "marian"])
def test_a_translator_that_went_through_the_hub_is_found_to_be_one_and_translates_as_before(
    hub, translator, tmp_path, logged_in, monkeypatch, layout
):
    trained = translator
    if layout:  # whose tokens are in other files
        write_folder(tmp_path / "marian", random_marian())
        trained = open_translator(tmp_path / "marian")
    trained.push_to_hub("ann/en-de")
    assert translates("ann/en-de") and translates("ann/en-de@main")
    switched_off(hub, monkeypatch)
    assert translates("ann/en-de")
    texts = ["one red cat", "dog"]
    expected = vitrail.translate(trained, texts, beams=1)
    assert vitrail.translate("ann/en-de", texts, beams=1) == expected
    convert(open_translator("ann/en-de"), tmp_path / "out")
    assert vitrail.translate(tmp_path / "out", texts, beams=1) == expected


def test_whether_a_model_of_the_hub_translates_is_asked_of_the_hub_and_of_nothing_else(hub, folder, logged_in, tmp_path):
    push(folder, "ann/flowers")
    assert not translates("ann/flowers")
    with pytest.raises(ModelFileError):
        translates("ann/nothing")
    asked = len(hub.asked_for)
    for reference in ("runs/nosuch", "ViT-B/16", "ViT-Ti/16", str(tmp_path / "none"), 7, None):
        assert not translates(reference)
    assert len(hub.asked_for) == asked


def test_only_the_model_files_are_uploaded_in_one_commit(hub, folder, logged_in):
    push(folder, "ann/flowers", message="The best yet")
    repository = hub.repositories["ann/flowers"]
    adapter = {"adapter/adapter_config.json": b"{}", "adapter/adapter_model.safetensors": b"\3"}
    assert repository.files("main") == {**SENT, **adapter, ".gitattributes": b""}
    assert repository.messages[1:] == ["The best yet"]
    assert set(hub.large.values()) == {MODEL["model.safetensors"], b"\3"}


def test_a_second_upload_changes_what_changed_and_keeps_what_others_added(hub, folder, logged_in):
    push(folder, "ann/flowers")
    repository = hub.repositories["ann/flowers"]
    repository.commit({**repository.files("main"), "figure.png": b"png"})
    (folder / "README.md").write_bytes(b"# Better\n")
    push(folder, "ann/flowers")
    files = repository.files("main")
    assert files["README.md"] == b"# Better\n" and files["figure.png"] == b"png" and len(repository.messages) == 4


def test_sums_of_an_earlier_upload_do_not_stay_and_a_damaged_folder_is_not_uploaded(hub, folder, logged_in):
    push(folder, "ann/flowers")
    (folder / "config.json").write_bytes(b'{"a": 1}')
    push(folder, "ann/flowers")
    sums = hub.repositories["ann/flowers"].files("main")["SHA256SUMS"]
    assert hashlib.sha256(b'{"a": 1}').hexdigest().encode() in sums
    (folder / "SHA256SUMS").write_bytes(SENT["SHA256SUMS"])
    (folder / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(ModelFileError, match=r"model\.safetensors differs from its checksum"):
        push(folder, "ann/flowers")


def test_a_branch_is_made_where_there_is_none(hub, folder, logged_in):
    hub.add("ann/flowers", {"README.md": b"old"})
    for weights in (b"first", b"second"):
        (folder / "model.safetensors").write_bytes(weights)
        push(folder, "ann/flowers", revision="v2")
    assert (fetch("ann/flowers@v2") / "model.safetensors").read_bytes() == b"second"
    assert hub.repositories["ann/flowers"].files("main") == {"README.md": b"old"}


def test_a_private_model_is_never_put_where_everybody_sees_it(hub, folder, logged_in):
    push(folder, "ann/secret", private=True)
    push(folder, "ann/secret", private=True)
    push(folder, "ann/public")
    assert [hub.repositories[name].private for name in ("ann/secret", "ann/public")] == [True, False]
    (folder / "README.md").write_bytes(b"secret")
    with pytest.raises(ConfigError, match="is public"):
        push(folder, "ann/public", private=True)
    assert hub.repositories["ann/public"].files("main")["README.md"] == MODEL["README.md"]


def test_who_is_not_logged_in_is_told_how_before_any_connection(hub, folder):
    with pytest.raises(ConfigError, match="hf auth login"):
        push(folder, "ann/flowers")
    assert hub.log == []


def test_a_refused_upload_says_why(hub, folder, monkeypatch):
    hub.add("bob/trees", MODEL)
    for token, word in ((READER, "has no permission"), ("hf_expired", "rejects the token")):
        monkeypatch.setenv("HF_TOKEN", token)
        for name in ("bob/trees", "bob/new"):
            with pytest.raises(VitrailError, match=word) as error:
                push(folder, name)
            assert error.value.exit_code == 1 and error.value.where == name and error.value.hint
    stopped(hub, monkeypatch)
    with pytest.raises(VitrailError, match="refused"):
        push(folder, "bob/trees")


@pytest.mark.parametrize("name", ["flowers", "ann/flowers@v2", "ViT-B/16", "../flowers", "a/b/c"])
def test_a_model_is_pushed_only_to_an_id(hub, folder, logged_in, name):
    with pytest.raises(ConfigError, match="org/name"):
        push(folder, name)
    assert hub.log == []


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_folder_that_is_no_model_is_not_uploaded(hub, folder, logged_in, name):
    (folder / name).unlink()
    with pytest.raises(ModelFileError, match="not a model folder"):
        push(folder, "ann/flowers")
    assert hub.log == []


# -- the library behind it


def test_without_the_library_the_extra_is_named(monkeypatch, folder):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for call in (lambda: fetch("ann/flowers"), lambda: push(folder, "ann/flowers")):
        with pytest.raises(ConfigError, match=r"pip install 'vitrail\[hf\]'"):
            call()


def test_the_environment_says_where_the_hub_and_the_cache_are_and_nothing_is_connected_to_before(tmp_path):
    program = (
        "import sys, vitrail.weights.hub as hub\n"
        "assert hub.is_hub_id('ann/flowers') and 'huggingface_hub' not in sys.modules\n"
        "print(hub.fetch('ann/flowers'))"
    )
    with Hub() as hub:
        hub.add("ann/flowers", MODEL)
        environment = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found = Path(done.stdout.strip())
    assert found.is_relative_to(tmp_path) and content(found) == MODEL
    assert "%|" not in done.stderr  # no progress bar where there is no terminal

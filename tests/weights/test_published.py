"""Published models by name: what is in the list, and that only such a name fetches, once."""

import sys
from pathlib import Path

import pytest

from vitrail.cli.app import main
from vitrail.errors import ConfigError, ModelFileError
from vitrail.weights import locate as locating
from vitrail.weights.hub import is_hub_id
from vitrail.weights.layouts.timm.models import MODELS
from vitrail.weights.locate import locate, require_possible
from vitrail.weights.model_folder.card import model_card
from vitrail.weights.model_folder.trained import save_model
from vitrail.weights.published import PUBLISHED, published
from vitrail.weights.reference import open_model

TINY = "timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k"


@pytest.fixture
def hub(monkeypatch, tmp_path, trained):
    """A hub whose only model is small, and the list of what was fetched from it; no folder here is called like a model."""
    monkeypatch.chdir(tmp_path)
    folder, fetched = tmp_path / "cache", []
    save_model(folder, trained(), card="")

    def fetch(repository):
        fetched.append(repository)
        return folder

    monkeypatch.setattr(locating, "fetch", fetch)
    monkeypatch.setattr(locating, "cached", lambda repository: folder if repository in fetched else None)
    return fetched


def test_every_name_is_an_id_of_the_hub_with_a_licence_and_a_size():
    for name, model in PUBLISHED.items():
        assert model.name == name and is_hub_id(model.repository) and not is_hub_id(name)
        assert model.licence in ("Apache-2.0", "MIT", "CC-BY-NC-4.0") and 20 < model.megabytes < 2000
        owner, _, tagged = model.repository.partition("/")
        if owner == "timm" and tagged.startswith("vit_"):
            assert tagged.partition(".")[0] in MODELS
    assert len({model.repository for model in PUBLISHED.values()}) == len(PUBLISHED)


@pytest.mark.parametrize(
    ("name", "repository"),
    [
        ("ViT-Ti/16", TINY),
        ("vit_tiny_patch16_224", TINY),
        ("vit_tiny_patch16_224.augreg_in21k_ft_in1k", TINY),
        ("vit_small_patch16_224", PUBLISHED["ViT-S/16"].repository),
        ("vit_small_patch16_224.dino", PUBLISHED["DINO-S/16"].repository),
        ("DINOv2-S/14", "facebook/dinov2-small"),
        ("resnet50", "timm/resnet50.a1_in1k"),
    ],
)
def test_a_name_is_fetched_once_and_says_what_and_under_which_licence(hub, capsys, name, repository):
    first = open_model(name)
    assert hub == [repository] and first.labels
    told = capsys.readouterr().err.splitlines()[0]
    assert told.startswith("fetching") and repository in told and "MB" in told and "Apache-2.0" in told
    open_model(name)
    assert hub == [repository] and "fetching" not in capsys.readouterr().err


def test_weights_that_another_program_fetched_alone_do_not_do(hub, tmp_path):
    open_model("ViT-Ti/16")
    (tmp_path / "cache" / "config.json").rename(tmp_path / "config.json")
    with pytest.raises(ModelFileError, match=r"config\.json is missing") as error:  # the hub has it no more
        locate("ViT-Ti/16")
    assert len(hub) == 2 and "save config.json" in error.value.hint


def test_what_is_here_by_a_name_stands_before_what_is_published(hub, trained, tmp_path):
    save_model(tmp_path / "ViT-Ti" / "16", trained(seed=1), card="")
    assert locate("ViT-Ti/16") == tmp_path.relative_to(tmp_path) / "ViT-Ti" / "16" and not hub


def test_nothing_but_the_name_itself_makes_a_connection(hub, capsys):
    for name in PUBLISHED:
        require_possible(name)
    main(["models", "--pretrained"])
    main(["summary", "ViT-Ti/16"])
    main(["models", "ViT-Ti/16", "--json"])
    assert not hub and "CC-BY-NC-4.0" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["DINO-S/14", "DeiT-T/16", "SigLIP-B16"])
def test_a_name_that_is_not_in_the_list_is_asked_of_no_hub(hub, name):
    with pytest.raises(ModelFileError, match="did you mean") as error:
        locate(name)
    assert not hub and "vitrail models --pretrained" in error.value.hint


def test_without_the_network_or_the_extra_the_error_says_where_to_put_the_files(hub, monkeypatch):
    def unreachable(repository):
        raise ModelFileError(f"cannot fetch {repository}: no route", where=repository, hint="check the network")

    monkeypatch.setattr(locating, "fetch", unreachable)
    with pytest.raises(ModelFileError, match="no route") as error:
        locate("ViT-Ti/16")
    by_hand = f"save config.json and model.safetensors from https://huggingface.co/{TINY}/tree/main in a folder"
    assert error.value.where == "ViT-Ti/16" and "check the network" in error.value.hint and by_hand in error.value.hint
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match=r"pip install 'vitrail\[hf\]'") as error:
        locate("ViT-Ti/16")
    assert by_hand in error.value.hint


def test_the_card_of_a_model_that_was_fine_tuned_from_a_name_links_to_it():
    card = model_card(name="bees", labels=["ant", "bee"], base_model="ViT-Ti/16")
    assert f"base_model: {TINY}" in card and f"(https://huggingface.co/{TINY})" in card


def test_the_documentation_lists_them():
    page = (Path(__file__).parents[2] / "docs" / "weights.md").read_text(encoding="utf-8")
    for model in PUBLISHED.values():
        assert f"| `{model.name}` | {model.megabytes:,} | {model.licence} | {model.about} | [{model.repository}]" in page


def test_a_name_of_none_of_them_is_none():
    assert published("ViT-H/14") is None and published("") is None


@pytest.mark.parametrize("words", [["ViT-B/16"], ["--image-size", "384"], ["--measure"]])
def test_the_list_of_trained_models_takes_no_other_choice(vitrail, words):
    answer = vitrail("models", *words, "--pretrained")
    assert answer.code == 2 and "lists all pretrained models" in answer.err

"""What a run of captioning makes of its settings."""

import pytest
import torch

from captioned import write_captions
from small_captioner import small_captioner
from vitrail.config.configuration import nested
from vitrail.config.request import Request
from vitrail.data.images.preparation import Preparation
from vitrail.errors import ConfigError
from vitrail.models.configs.captioner import encoder_config
from vitrail.models.registry import create_model
from vitrail.training.images import preparation_of
from vitrail.training.run_data import run_data
from vitrail.training.runs import setup as preparing
from vitrail.weights.model_folder.folder import TrainedModel

captions = run_data("caption")
VIT = {"image_size": 16, "patch_size": 4, "dim": 16, "depth": 1, "heads": 2, "mlp_dim": 24}


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({}, (0.3, 2, 1, "second-last")),
        ({"model.dropout": 0.1, "model.cross_heads": 4, "model.patches_behind": "last"}, (0.1, 2, 4, "last")),
        ({"model.decoder_depth": 3}, (0.3, 3, 1, "second-last")),
    ],
)
def test_a_vit_becomes_a_captioner_with_what_the_recipe_and_the_flags_say_of_its_decoder(tmp_path, told, expected):
    vit = create_model("ViT-Ti/16", num_classes=2, **VIT)
    TrainedModel(vit, ("a", "b"), Preparation.standard((16, 16))).save_pretrained(tmp_path / "vit")
    (tmp_path / "data").mkdir()
    data = write_captions(tmp_path / "data")
    words = {"data": str(data), "start": str(tmp_path / "vit"), "task": "caption", **told}
    model = preparing.resolve_run(None, None, nested(words))[0].model
    assert (model.dropout, model.decoder_depth, model.cross_heads, model.patches_behind) == expected
    assert model.encoder.dim == 16 and model.encoder.dropout == 0


KINDS = {
    "class token": {},
    "patches of 8": {"patch_size": 8},
    "distilled": {"distillation_token": True},
}
DECODERS = {
    "Captioner-Ti/16": {"dim": 256, "decoder_depth": 2, "heads": 4, "mlp_dim": 1024, "norm": "pre"},
    "Captioner-B/16": {"dim": 512, "decoder_depth": 6, "heads": 8, "mlp_dim": 2048, "norm": "pre"},
    "Captioner-LSTM-Ti/16": {"dim": 256, "hidden_dim": 512, "attention": "additive", "depth": 1},
}


def asked(folder, told, *, file="", **fields):
    """What is asked of a run that starts from a small ViT, by flags and perhaps a file."""
    torch.manual_seed(0)
    vit = create_model("ViT-Ti/16", num_classes=2, **{**VIT, **fields}).eval()
    for parameter in vit.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    TrainedModel(vit, ("a", "b"), Preparation.standard((16, 16))).save_pretrained(folder / "vit")
    (folder / "data").mkdir()
    (folder / "own.yaml").write_text(file)
    words = {"data": str(write_captions(folder / "data")), "start": str(folder / "vit"), "task": "caption", **told}
    return ("caption" if file else None), (folder / "own.yaml" if file else None), nested(words)


@pytest.mark.parametrize(("kind", "name"), zip(KINDS, DECODERS, strict=True))
def test_a_named_captioner_that_starts_from_a_vit_has_that_vit_as_its_encoder_and_the_decoder_of_its_name(tmp_path, kind, name):
    settings, start = preparing.resolve_run(*asked(tmp_path, {"model": name}, **KINDS[kind]))
    fields = settings.model.model_dump()
    assert {field: fields[field] for field in DECODERS[name]} == DECODERS[name]
    assert settings.model.encoder == encoder_config(start.model.config)
    model, pixels = captions.start_model(settings, start, None).eval(), torch.randn(2, 3, 16, 16)
    assert model(pixels, torch.tensor([[1, 5], [1, 6]])).shape == (2, 2, 8000)
    torch.testing.assert_close(model.encoder.encode(pixels), start.model.encode(pixels))


@pytest.mark.parametrize("told", [{"image_size": 24}, {}])
def test_a_size_of_images_beside_the_encoder_stands_over_that_of_the_vit_whether_above_the_name_or_below_it(tmp_path, told):
    file = "" if told else "model: {image_size: 24}"
    settings, _ = preparing.resolve_run(*asked(tmp_path, {"model": "Captioner-LSTM-Ti/16", **told}, file=file))
    assert settings.model.encoder.image_size == (24, 24) and settings.model.encoder.patch_size == (4, 4)


def test_an_encoder_of_another_shape_than_the_vit_is_refused_by_name_as_well(tmp_path):
    told = {"model": "Captioner-LSTM-Ti/16", "model.encoder.heads": 4}
    settings, start = preparing.resolve_run(*asked(tmp_path, told))
    with pytest.raises(ConfigError, match="does not fit: heads "):
        captions.start_model(settings, start, None)


def test_a_file_may_name_the_captioner_and_flags_name_another(tmp_path):
    file = "model: {name: Captioner-LSTM-Ti/16, alignment_dim: 64, encoder: {dropout: 0.1}}"
    flags = asked(tmp_path, {"model.hidden_dim": 128}, file=file)
    model = preparing.resolve_run(*flags)[0].model
    assert (model.alignment_dim, model.hidden_dim, model.encoder.dim, model.encoder.dropout) == (64, 128, 16, 0.1)
    recipe, config, told = flags
    told = {**told, "model": {"name": "Captioner-B/16"}}
    model = preparing.resolve_run(recipe, config, told)[0].model
    assert (model.dim, model.encoder.dim, model.encoder.dropout) == (512, 16, 0)


def test_a_captioner_to_start_from_sees_images_as_it_did(tmp_path):
    trained = small_captioner()
    trained.preparation = trained.preparation.changed(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))
    trained.save_pretrained(tmp_path / "captioner")
    words = {"data": "captions.csv", "start": str(tmp_path / "captioner"), "task": "caption"}
    settings, _ = preparing.resolve_run(None, None, nested(words))
    found = preparation_of(settings)
    assert (found.mean, found.std) == ((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))


def test_samples_without_beams_to_choose_from_are_refused():
    told = {"data": "captions.csv", "model": "Captioner-Ti/16", "task": {"name": "caption", "samples": 8, "beams": 1}}
    with pytest.raises(ConfigError, match=r"task\.beams is 1") as error:
        Request.read(None, None, nested(told)).settings()
    assert error.value.where == "task.samples" and "--task.samples 0" in error.value.hint
    for fine in ({"samples": 8, "beams": 2}, {"samples": 0, "beams": 1}):
        assert (
            Request.read(None, None, nested({**told, "task": {"name": "caption", **fine}})).settings().task.beams == fine["beams"]
        )


def test_a_captioner_to_start_from_brings_its_tokens_and_the_run_says_how_many(tmp_path):
    trained = small_captioner()
    trained.save_pretrained(tmp_path / "captioner")
    (tmp_path / "data").mkdir()
    data = str(write_captions(tmp_path / "data"))
    words = {"data": data, "start": str(tmp_path / "captioner"), "task": {"name": "caption", "vocabulary": 270}}
    settings, start = preparing.resolve_run(None, None, nested(words))
    settings = captions.complete(settings, captions.open_source(settings, start=start), start)
    assert settings.task.vocabulary == settings.model.vocabulary == len(trained.tokenizer) != 270

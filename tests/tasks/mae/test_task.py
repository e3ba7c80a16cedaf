"""Masked autoencoding against transformers' ViTMAE, and what holds of it by itself."""

import json
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import ViTMAEConfig, ViTMAEForPreTraining

import vitrail
from vitrail import api
from vitrail.data.images.preparation import Preparation
from vitrail.data.readers.unlabelled import open_unlabelled
from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.registry import build, create_model, model_config
from vitrail.tasks.mae.settings import ReconstructionSettings
from vitrail.tasks.mae.task import Decoder, Reconstruction

pytestmark = pytest.mark.usefixtures("unreported")

ENCODER = {"dim": 16, "depth": 2, "heads": 2, "mlp_dim": 24, "num_classes": 0, "position": "sincos-2d"}
DECODER = {"decoder_dim": 8, "decoder_depth": 2, "decoder_heads": 2}


def task_of(*, image_size=(8, 12), channels=3, model=None, **fields) -> Reconstruction:
    torch.manual_seed(0)
    given = {"image_size": image_size, "channels": channels, "patch_size": 4, **ENCODER, **(model or {})}
    encoder = build(model_config("ViT-Ti/16", **given))
    preparation = Preparation.standard(image_size, channels)
    return Reconstruction(encoder, preparation, ReconstructionSettings(**{**DECODER, **fields})).eval()


DECODER_KEYS = {
    "embedding": "decoder_embed",
    "mask_token": "mask_token",
    "norm": "decoder_norm",
    "head": "decoder_pred",
    "attention.norm": "layernorm_before",
    "mlp.norm": "layernorm_after",
    "attention.layer.output": "attention.o_proj",
    "mlp.layer.expand": "mlp.fc1",
    "mlp.layer.contract": "mlp.fc2",
}


def with_weights_of(theirs: ViTMAEForPreTraining, folder, config: ReconstructionSettings) -> Reconstruction:
    """Our task with the weights of a model of transformers: the encoder as we read it, the decoder by hand."""
    theirs.save_pretrained(folder)
    trained = vitrail.open_model(folder)
    task = Reconstruction(trained.model, trained.preparation, config).eval()
    state = {name.removeprefix("decoder."): tensor for name, tensor in theirs.state_dict().items() if name.startswith("decoder.")}
    ours = {}
    for name in task.decoder.state_dict():
        kind, _, end = name.rpartition(".")
        if name == "mask_token":
            ours[name] = state["mask_token"]
        elif kind.startswith("blocks."):
            _, number, inner = kind.split(".", 2)
            block = f"decoder_layers.{number}"
            if inner == "attention.layer.qkv":
                parts = [next(t for key, t in state.items() if key.startswith(block) and f".{part}" in key and key.endswith(end))
                         for part in ("q", "k", "v")]  # fmt: skip
                ours[name] = torch.cat(parts)
            else:
                ours[name] = state[f"{block}.{theirs_of(state, block, inner)}.{end}"]
        else:
            ours[name] = state[f"{DECODER_KEYS[kind]}.{end}"]
    task.decoder.load_state_dict(ours)
    return task


def theirs_of(state, block: str, inner: str) -> str:
    """The name of a layer in whatever version of transformers is installed."""
    names = {
        "attention.norm": ("layernorm_before",),
        "mlp.norm": ("layernorm_after",),
        "attention.layer.output": ("attention.o_proj", "attention.output.dense"),
        "mlp.layer.expand": ("mlp.fc1", "intermediate.dense"),
        "mlp.layer.contract": ("mlp.fc2", "output.dense"),
    }
    return next(name for name in names[inner] if f"{block}.{name}.weight" in state)


@pytest.mark.parametrize("normalize", [True, False], ids=["normalized patches", "pixels"])
@pytest.mark.parametrize("ratio", [0.75, 0.5, 0.9])
def test_the_loss_is_that_of_transformers_for_the_same_noise(tmp_path, normalize, ratio):
    torch.manual_seed(1)
    theirs = ViTMAEForPreTraining(
        ViTMAEConfig(
            image_size=16, patch_size=4, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
            decoder_hidden_size=8, decoder_num_hidden_layers=2, decoder_num_attention_heads=2, decoder_intermediate_size=32,
            mask_ratio=ratio, norm_pix_loss=normalize,
        )
    ).eval()  # fmt: skip
    for parameter in theirs.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.2)
    theirs.decoder.initialize_weights(16)  # of the positions, which a new model has at zero
    ours = with_weights_of(theirs, tmp_path, ReconstructionSettings(**DECODER, mask_ratio=ratio, normalize_patches=normalize))
    ours.decoder.norm.eps = theirs.config.layer_norm_eps
    images, noise = torch.randn(3, 3, 16, 16), torch.rand(3, 16)
    expected = theirs(images, noise=noise)
    drawn, masked = ours.reconstruct(images, noise)
    torch.testing.assert_close(masked, expected.mask)
    torch.testing.assert_close(drawn, expected.logits, rtol=1e-5, atol=1e-5)
    assert ours.loss(images, noise).mean().item() == pytest.approx(expected.loss.item(), rel=1e-6)


@pytest.mark.parametrize(
    ("name", "heads", "count"), [("ViT-B/16", 16, 111_655_680), ("ViT-L/16", 16, 329_239_296), ("ViT-H/14", 16, 656_613_964)]
)
def test_the_paper_s_models_have_their_number_of_trained_parameters(name, heads, count):
    with torch.device("meta"):
        config = model_config(name, position="sincos-2d", num_classes=0)
        parts = (build(config), Decoder(config, ReconstructionSettings(decoder_heads=heads)))
    assert sum(parameter.numel() for part in parts for parameter in part.parameters()) == count


@settings(max_examples=20, deadline=None)
@given(rows=st.integers(1, 4), columns=st.integers(2, 5), channels=st.sampled_from([1, 3]), ratio=st.floats(0.1, 0.9))
def test_what_the_encoder_does_not_see_changes_no_token_and_what_it_sees_is_drawn_as_it_is(rows, columns, channels, ratio):
    task = task_of(image_size=(4 * rows, 4 * columns), channels=channels, mask_ratio=ratio)
    images, noise = torch.randn(2, channels, 4 * rows, 4 * columns), torch.rand(2, rows * columns)
    drawn, masked = task.reconstruct(images, noise)
    assert masked.sum(dim=1).tolist() == [rows * columns - max(1, int(rows * columns * (1 - ratio)))] * 2
    hidden = masked[..., None].expand(-1, -1, 16 * channels)
    other = task.images_of(torch.where(hidden > 0, 9.0, task.patches_of(images)))
    torch.testing.assert_close(task.reconstruct(other, noise)[0], drawn)
    seen, whole = task.drawn(images, noise)
    kept = masked == 0
    torch.testing.assert_close(task.patches_of(whole)[kept], task.patches_of(images)[kept])
    assert not task.patches_of(seen)[~kept].any()


def test_a_reconstruction_has_the_mean_and_deviation_of_its_patches_back():
    task = task_of(mask_ratio=0.5)
    true = torch.randn(1, 3, 8, 12) * 0.1 + 2
    task.decoder.head.weight.data.zero_()
    task.decoder.head.bias.data.zero_()  # draws the mean of every patch
    noise = torch.rand(1, 6)
    _, whole = task.drawn(true, noise)
    _, masked = task.reconstruct(true, noise)
    hidden = masked[0] > 0
    means = task.patches_of(true)[0, hidden].mean(dim=1, keepdim=True)
    torch.testing.assert_close(task.patches_of(whole)[0, hidden], means.expand(-1, 48))


@pytest.mark.parametrize(
    ("name", "fields", "what"),
    [
        ("Mixer-S/32", {"image_size": 32}, "a plain ViT"),
        ("ResNet-18", {"image_size": 32}, "a plain ViT"),
        ("ViT-Ti/16", {"pool": "attention"}, "no attention pooling"),
        ("ViT-Ti/16", {"final_norm": "pooled", "pool": "mean"}, "final norm on all tokens"),
        ("ViT-Ti/16", {"embedding": "stem"}, "embedded one by one"),
        ("ViT-Ti/16", {"patch_dropout": 0.5}, "no patch dropout"),
        ("ViT-Ti/16", {"image_size": 16}, "two patches or more"),
    ],
)
def test_an_encoder_that_cannot_be_masked_is_refused(name, fields, what):
    model = create_model(name, num_classes=0, **fields)
    with pytest.raises(ConfigError, match=what):
        Reconstruction(model, Preparation.standard((32, 32)), ReconstructionSettings(**DECODER))


RUN = {
    "task": "mae", **{f"task.{name}": value for name, value in DECODER.items()}, "model.image_size": 8, "model.patch_size": 2,
    "model.dim": 16, "model.depth": 1, "model.heads": 2, "model.mlp_dim": 32, "training.batch_size": 8,
}  # fmt: skip


@pytest.fixture(scope="module")
def drawn(pictures, tmp_path_factory):
    """A run on images without labels, which lie in folders that mean nothing."""
    settings = {**RUN, "training.epochs": 12, "optimizer.lr": 0.01, "training.ema": 0.5}
    return api.train(pictures, tmp_path_factory.mktemp("mae") / "run", **settings)


def test_a_run_learns_to_draw_and_keeps_an_encoder_that_gives_vectors(drawn):
    lines = (drawn.folder / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line)["val_loss"] for line in lines]
    assert rows[-1] < 0.9 * rows[0] and drawn.scores["loss"] == pytest.approx(min(rows), rel=1e-5)
    assert drawn.trained.labels == [] and drawn.trained.config.num_classes == 0
    assert (drawn.folder / "best" / "beside.safetensors").is_file()
    page = (drawn.folder / "report.html").read_text()
    assert "Reconstructions" in page and not (drawn.folder / "classification_report.txt").exists()
    assert "the patches that the encoder sees: 12 of 16 are masked (75 %)" in page


@pytest.mark.usefixtures("reported")
def test_the_report_tells_how_many_patches_are_masked_and_not_how_many_were_asked_for(pictures, tmp_path):
    run = api.train(pictures, tmp_path / "run", **RUN, **{"training.epochs": 1, "task.mask_ratio": 0.9})
    assert "15 of 16 are masked (94 %)" in (run.folder / "report.html").read_text()


def test_its_encoder_starts_a_classifier(drawn, pictures, tmp_path):
    tuned = api.train(pictures, tmp_path / "tuned", start=str(drawn.folder), **{"training.epochs": 1, "training.batch_size": 8})
    assert tuned.trained.labels == ["blue", "green", "red"] and tuned.trained.config.position == "sincos-2d"


def test_a_folder_of_loose_images_is_learned_from_and_a_tenth_is_kept_for_validation(pictures, tmp_path):
    (tmp_path / "photos" / "deep").mkdir(parents=True)
    for number, file in enumerate(sorted(pictures.rglob("*.png"))):
        place = tmp_path / "photos" / ("deep" if number % 2 else "") / f"{number}.png"
        place.write_bytes(file.read_bytes())
    run = api.train(tmp_path / "photos", tmp_path / "run", **RUN, **{"training.epochs": 1})
    assert (run.split, run.scores["images"]) == ("val", 3)
    assert np.isfinite(run.scores["loss"])


def test_a_patch_of_one_number_is_drawn_as_it_is_and_not_divided_by_its_deviation():
    pixel = {"image_size": (4, 4), "channels": 1, "model": {"patch_size": 1}}
    with pytest.raises(ConfigError, match="one number") as error:
        task_of(**pixel)
    assert "--task.normalize-patches false" in error.value.hint
    for fine in ({**pixel, "normalize_patches": False}, {**pixel, "channels": 3}):
        task = task_of(**fine)
        assert task.loss(torch.randn(2, fine["channels"], 4, 4), torch.rand(2, 16)).isfinite().all()


def test_what_has_no_meaning_without_labels_is_refused(pictures, tmp_path):
    sizes = {"schedule.first_image_size": 4}, {"schedule.last_image_size": 4}
    for wrong in ({"balance": "loss"}, {"balance": "sampling"}, *sizes, {"augmentation.mixup": 1}):
        with pytest.raises(ConfigError):
            api.train(pictures, tmp_path / "run", **RUN, **wrong)


def test_the_pictures_of_a_run_are_not_learned_from(pictures, tmp_path):
    run = tmp_path / "photos" / "deep" / "run"
    (run / "plots").mkdir(parents=True)
    for file in (run / "plots" / "curves.png", tmp_path / "photos" / "deep" / "mine.png"):
        file.write_bytes(next(pictures.rglob("*.png")).read_bytes())
    for file in ("status.json", "config.yaml"):
        (run / file).write_text("{}")
    assert [item.name for item in open_unlabelled(tmp_path / "photos").split("all")] == ["deep/mine.png"]


def test_a_damaged_decoder_and_settings_of_another_task_are_sentences(drawn, tmp_path):
    broken = shutil.copytree(drawn.folder, tmp_path / "broken")
    tensors = load_file(broken / "best" / "beside.safetensors")
    tensors.popitem()
    save_file(tensors, broken / "best" / "beside.safetensors")
    with pytest.raises(ModelFileError, match="the weights do not fit"):
        api.evaluate(broken)
    with pytest.raises(ConfigError, match="mask_ratio is a setting of another task"):
        api.train("digits", tmp_path / "run", **{"task.mask_ratio": 0.5})
    with pytest.raises(ConfigError, match="evaluated in Python"):
        api.evaluate(drawn.folder, precision="bf16")

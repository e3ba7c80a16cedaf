"""Folders of VAEs, and runs of latents that cannot be: a sentence each, before anything is written."""

import json
import shutil
from importlib.metadata import PackageNotFoundError

import pytest
import torch

from tiny_vae import CHANNELS, FACTOR, SCALE, SHIFT, write_vae
from vitrail.config.configuration import nested
from vitrail.data.images.preparation import Preparation
from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.configs.dit import DiTConfig
from vitrail.models.registry import build
from vitrail.tasks.diffusion.latents import vae_folder
from vitrail.tasks.diffusion.latents.autoencoder import decoded
from vitrail.tasks.diffusion.latents.vae_folder import vae_of_run
from vitrail.tasks.diffusion.sampling.making import open_diffusion, sample
from vitrail.tasks.diffusion.weights import TrainedDiffusion
from vitrail.training.run_data import run_data_of
from vitrail.training.runs import setup
from vitrail.training.runs.create_task import create_task

SMALL = ["--model.dim", 16, "--model.depth", 1, "--model.heads", 2, "--model.mlp_dim", 32, "--model.patch_size", 4]


@pytest.fixture(scope="module")
def vae(tmp_path_factory):
    return write_vae(tmp_path_factory.mktemp("vae") / "vae")


@pytest.fixture
def changed(vae, tmp_path):
    """Return a function that copies the VAE and changes fields of its configuration."""

    def copy(**fields):
        folder = shutil.copytree(vae, tmp_path / "changed")
        values = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**values, **fields}))
        return folder

    return copy


def test_a_folder_says_its_factor_channels_and_scale(vae):
    found = vae_of_run(str(vae))
    assert (found.factor, found.colors, found.channels) == (FACTOR, 3, CHANNELS)
    assert (found.scale, found.shift, found.image_size) == (SCALE, SHIFT, 16)
    assert found.latent_size((16, 32), (4, 4)) == (8, 16)
    with pytest.raises(ConfigError, match=r"images of 20×30 pixels have no whole patches.*2×2 pixels.*4×4 latents") as error:
        found.latent_size((20, 30), (4, 4))
    assert "nearest is 16x32" in error.value.hint


def test_scale_and_shift_have_the_defaults_of_diffusers(changed):
    found = vae_of_run(str(changed(shift_factor=None)))
    assert found.shift == 0
    values = json.loads((found.path / "config.json").read_text())
    del values["scaling_factor"]
    (found.path / "config.json").write_text(json.dumps(values))
    assert vae_of_run(str(found.path)).scale == 0.18215


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"_class_name": "VQModel"}, "holds 'VQModel'"),
        ({"latents_mean": [0.0] * 4}, "latents_mean is set"),
        ({"block_out_channels": 3}, "damaged"),
        ({"scaling_factor": "x"}, "damaged"),
        ({"scaling_factor": 0}, "scale cannot be"),
        ({"in_channels": 5}, "channels"),
        ({"latent_channels": 3}, "cannot be distinguished from pixels"),
    ],
)
def test_other_vaes_and_damaged_ones_are_refused(fields, what, changed):
    with pytest.raises(ModelFileError, match=what):
        vae_of_run(str(changed(**fields)))


def test_a_pickle_is_refused_with_the_command_that_converts_it(changed):
    folder = changed()
    (folder / "diffusion_pytorch_model.safetensors").rename(folder / "diffusion_pytorch_model.bin")
    with pytest.raises(ModelFileError, match="is a pickle") as error:
        vae_of_run(str(folder))
    assert "use_safetensors=False" in error.value.hint
    (folder / "diffusion_pytorch_model.bin").unlink()
    with pytest.raises(ModelFileError, match="safetensors is missing"):
        vae_of_run(str(folder))


def test_weights_that_do_not_fit_or_are_damaged_are_refused(changed):
    folder = changed(layers_per_block=2)
    with pytest.raises(ModelFileError, match="do not fit the VAE's configuration"):
        decoded(vae_of_run(str(folder)), torch.zeros(1, CHANNELS, 2, 2))
    (folder / "diffusion_pytorch_model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(ModelFileError, match="the VAE cannot be read"):
        decoded(vae_of_run(str(folder)), torch.zeros(1, CHANNELS, 2, 2))


def test_a_missing_diffusers_is_named_with_its_extra(vae, monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(vae_folder, "version", missing)
    with pytest.raises(ConfigError, match="diffusers, which is not installed") as error:
        vae_of_run(str(vae))
    assert "vitrail[diffusers]" in error.value.hint


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (["--task.latents", "nowhere"], 2, "no VAE folder 'nowhere'"),
        (["--image-size", 20], 2, "images of 20×20 pixels have no whole patches"),
        (["--augmentation.crop", "pad"], 2, "only the horizontal flip is made\nwhere: augmentation.crop"),
        (["--augmentation.hue", 0.1], 2, "only the horizontal flip is made\nwhere: augmentation.hue"),
        (["--augmentation.policy", "trivial"], 2, "where: augmentation.policy"),
        (["--augmentation.vertical-flip", 0.5], 2, "where: augmentation.vertical_flip"),
        (["--model.channels", 16], 2, "the VAE makes latents of 4 channels, and the model takes 16\nwhere: --model.channels"),
        (["--schedule.first-image-size", 8], 2, "images of one size"),
    ],
)
def test_a_run_that_cannot_be_is_refused_before_anything_is_written(words, code, what, vae, pictures, vitrail, tmp_path):
    usual = {"--task.latents": vae, "--image-size": 16}
    given = [part for name, value in usual.items() if name not in words for part in (name, value)]
    answer = vitrail(
        "train",
        "--task",
        "diffusion",
        "--data",
        pictures,
        "--model",
        "DiT-S/2",
        *SMALL,
        *given,
        *words,
        "--out",
        tmp_path / "run",
    )
    assert answer.code == code and what in answer.err and not (tmp_path / "run").exists()


def test_a_pipeline_in_place_of_its_vae_is_refused_with_the_folder_inside(vae, tmp_path):
    shutil.copytree(vae, tmp_path / "pipe" / "vae")
    with pytest.raises(ModelFileError, match="no VAE folder") as error:
        vae_of_run(str(tmp_path / "pipe"))
    assert str(tmp_path / "pipe" / "vae") in error.value.hint


@pytest.fixture(scope="module")
def model(vae, pictures):
    """A fresh model of latents with its VAE, as a run has it at first, and the settings of the run."""
    fields = {"model.dim": 16, "model.depth": 1, "model.heads": 2, "model.mlp_dim": 32, "model.patch_size": 4}
    asked = {"data": str(pictures), "task": "diffusion", "task.latents": str(vae), "model.name": "DiT-S/2", "image_size": 16}
    settings, _ = setup.resolve_run(None, None, nested({**asked, **fields}))
    inputs = run_data_of(settings)
    source = inputs.open_source(settings)
    settings = inputs.complete(settings, source, None)
    trained = TrainedDiffusion(inputs.start_model(settings, None, source), source.classes, settings.preparation)
    trained.latents = str(vae)
    return trained, settings, inputs, source


def test_a_model_whose_vae_is_gone_or_another_is_refused_with_the_flag_that_names_it(model, vae, vitrail, tmp_path):
    trained, settings, inputs, source = model
    gone = TrainedDiffusion(trained.model, trained.labels, trained.preparation)
    gone.latents = str(tmp_path / "gone")
    gone.save_pretrained(tmp_path / "model")
    answer = vitrail("sample", tmp_path / "model", "--count", 1, "--steps", 1, "--out", tmp_path / "samples")
    assert answer.code == 2 and f"no VAE folder '{tmp_path / 'gone'}'" in answer.err and "--latents FOLDER" in answer.err
    assert not (tmp_path / "samples").exists()
    other = write_vae(tmp_path / "other", latent_channels=8)
    with pytest.raises(ConfigError, match="latents of 8 channels, and the model takes 4"):
        open_diffusion(tmp_path / "model", latents=other)
    assert open_diffusion(tmp_path / "model", latents=vae).latents == str(vae)
    with pytest.raises(ConfigError, match="latents of 8 channels, and the model takes 4") as error:
        inputs.complete(settings.changed(task=settings.task.changed(latents=str(other))), source, gone)
    assert error.value.where == "--model.channels"


def test_a_vae_of_other_pixels_decides_the_size_of_the_images(model, tmp_path):
    larger = write_vae(
        tmp_path / "larger", block_out_channels=(8, 8, 8), down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3, in_channels=1, out_channels=1,
    )  # fmt: skip
    trained = TrainedDiffusion(model[0].model, model[0].labels, model[0].preparation)
    opened = open_diffusion(trained, latents=larger)
    assert (opened.preparation.image_size, opened.preparation.channels) == ((32, 32), 1)
    (picture,) = sample(opened, count=1, steps=1)
    assert (picture.size, picture.mode) == ((32, 32), "L")


def test_small_images_and_small_settings_get_a_line(model):
    _, settings, inputs, source = model
    assert any("smaller than the model's 16×16" in line for line in inputs.warnings(settings, source))
    assert inputs.advice(settings, source) is None
    small = settings.changed(preparation=settings.preparation.at((8, 8)))
    assert "the VAE was trained with 16: add --image-size 16" in inputs.advice(small, source)


def test_a_transform_of_ones_own_is_refused(model):
    _, settings, inputs, source = model
    task = create_task(settings, inputs.start_model(settings, None, source), settings.preparation, source)
    with pytest.raises(ConfigError, match="images are encoded once") as error:
        task.dataset(source.split("train"), settings.augmentation, transform=lambda picture: picture)
    assert error.value.where == "transform"


def test_a_model_of_pixels_takes_no_vae(vae):
    config = DiTConfig(image_size=8, channels=3, dim=16, depth=1, heads=2, mlp_dim=32, num_classes=0)
    with pytest.raises(ConfigError, match="the model makes pixels"):
        open_diffusion(TrainedDiffusion(build(config), [], Preparation.standard((8, 8))), latents=vae)

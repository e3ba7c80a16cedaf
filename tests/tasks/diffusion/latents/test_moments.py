"""Latents: diffusers' own moments and images, flips, resumed runs, and the whole way by commands."""

import json
import pickle
import shutil
import signal

import numpy as np
import pytest
import torch
from PIL import Image

from tiny_vae import CHANNELS, FACTOR, SCALE, SHIFT, write_vae
from vitrail import api
from vitrail.config.configuration import nested
from vitrail.data.loading.loader import EpochLoader
from vitrail.errors import ModelFileError
from vitrail.models.registry import build
from vitrail.runtime.observer import Observer
from vitrail.runtime.signals import InterruptedRunError
from vitrail.tasks.diffusion.latents import autoencoder
from vitrail.tasks.diffusion.latents import moments as latents
from vitrail.tasks.diffusion.latents.vae_folder import vae_of_run
from vitrail.tasks.diffusion.sampling.making import open_diffusion, sample, sample_batches
from vitrail.tasks.diffusion.sampling.options import Sampling
from vitrail.training.run_data import run_data_of
from vitrail.training.runs import setup
from vitrail.training.runs.create_task import create_task
from vitrail.training.runs.run_folder import RunFolder
from vitrail.weights.formats.safe_files import read_json

TINY = {
    "task": "diffusion", "model.name": "DiT-S/2", "model.image_size": 16, "model.patch_size": 4, "model.dim": 16,
    "model.depth": 1, "model.heads": 2, "model.mlp_dim": 32, "model.learned_variance": False, "model.objective": "flow",
    "training.epochs": 2, "training.batch_size": 8, "augmentation.horizontal_flip": 0.5, "optimizer.lr": 0.01,
    "schedule.warmup_epochs": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def vae(tmp_path_factory):
    return write_vae(tmp_path_factory.mktemp("vae") / "vae")


@pytest.fixture(scope="module")
def theirs(vae):
    """The same VAE, as diffusers opens it."""
    from diffusers import AutoencoderKL

    return AutoencoderKL.from_pretrained(vae).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def ask(vae, pictures):
    return {"data": str(pictures), "task.latents": str(vae), **TINY}


@pytest.fixture(scope="module")
def made_run(ask, tmp_path_factory):
    return api.train(out=tmp_path_factory.mktemp("run") / "run", **ask)


def task_and_items(ask):
    settings, start = setup.resolve_run(None, None, nested(ask))
    inputs = run_data_of(settings)
    source = inputs.open_source(settings)
    settings = inputs.complete(settings, source, start)
    task = create_task(settings, build(settings.model.config), inputs.preparation_of(settings, source), source)
    return task, source.split("train"), settings


def stored(run, task, items):
    """The latents of a run, where its task is created anew."""
    rows = {item.name: number for number, item in enumerate(items)}
    for name, flipped in (("latents", False), ("flipped", True)):
        file = run.folder / "features" / f"{name}.npy"
        task.latents.stored[flipped] = latents._Stored(file, list(rows))
    return task


def test_moments_latents_and_images_are_those_of_diffusers(vae, theirs, monkeypatch):
    images, noise = torch.rand(5, 3, 16, 16) * 2 - 1, torch.randn(5, CHANNELS, 8, 8)
    own, expected = vae_of_run(str(vae)), theirs.encode(images).latent_dist
    moments = autoencoder.moments_of(own, images)
    assert moments.dtype == torch.float16 and expected.std.min() > 0.1
    torch.testing.assert_close(moments.float(), torch.cat([expected.mean, expected.std], dim=1), atol=1e-6, rtol=1e-3)
    drawn = (expected.mean + expected.std * noise - SHIFT) * SCALE
    torch.testing.assert_close(autoencoder.drawn_latents(own, moments, noise), drawn, atol=1e-3, rtol=1e-3)
    whole = autoencoder.decoded(own, drawn)
    torch.testing.assert_close(whole, theirs.decode(drawn / SCALE + SHIFT).sample, atol=1e-5, rtol=1e-5)
    monkeypatch.setattr(autoencoder, "PIXELS", 2 * 16 * 16)
    torch.testing.assert_close(autoencoder.decoded(own, drawn), whole, atol=1e-5, rtol=1e-5)


def test_a_run_keeps_the_moments_of_every_image_and_of_the_mirror_images_to_learn_from(made_run, ask, theirs):
    task, items, settings = task_and_items(ask)
    assert settings.model.config.image_size == (16 // FACTOR,) * 2 and settings.preparation.image_size == (16, 16)
    known = {name: np.load(made_run.folder / "features" / f"{name}.npy") for name in ("latents", "flipped")}
    assert len(known["flipped"]) == len(items) < len(known["latents"])
    for number in (0, len(items) - 1):
        pixels = task.preparation(items[number].image)
        for name, image in (("latents", pixels), ("flipped", pixels.flip(3))):
            moments = theirs.encode(image).latent_dist
            expected = torch.cat([moments.mean, moments.std], dim=1)[0]
            torch.testing.assert_close(torch.tensor(known[name][number]).float(), expected, atol=1e-3, rtol=1e-3)


def test_latents_are_flipped_as_the_images_would_be_and_drawn_anew_in_every_epoch(made_run, ask):
    task, items, settings = task_and_items(ask)
    keys = [(epoch, number) for epoch in (0, 1) for number in range(len(items))]
    encoded_now = task.dataset(items, settings.augmentation, seed=3).batch(keys)
    assert encoded_now["images"].dtype == torch.uint8
    from_run = stored(made_run, task, items).dataset(items, settings.augmentation, seed=3).batch(keys)
    assert from_run["images"].dtype == torch.float16
    torch.testing.assert_close(task.images(from_run), task.images(encoded_now), atol=2e-3, rtol=2e-3)
    first, second = from_run["images"].split(len(items))
    assert 0 < (first == second).flatten(1).all(dim=1).sum() < len(items)  # some are flipped in one of the two epochs
    assert (from_run["posterior"][: len(items)] != from_run["posterior"][len(items) :]).any(dim=(1, 2, 3)).all()


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_and_batch_sizes_change_no_sample(workers, made_run, ask):
    task, items, settings = task_and_items(ask)
    dataset = stored(made_run, task, items).dataset(items, settings.augmentation, seed=3)
    whole = dataset.batch([(1, number) for number in range(len(items))])
    loader = EpochLoader(dataset, 5, shuffle=False, workers=workers)
    batches = list(loader.epoch(1))
    loader.close()
    assert all(torch.equal(torch.cat([batch[name] for batch in batches]), tensor) for name, tensor in whole.items())
    again = pickle.loads(pickle.dumps(task.latents))
    assert len(pickle.dumps(again)) < 5_000 and np.array_equal(
        again.moments(items[0].name, flipped=True), task.latents.moments(items[0].name, flipped=True)
    )


class Stopping(Observer):
    def epoch(self, row):
        raise KeyboardInterrupt


def test_a_run_that_goes_on_is_the_unbroken_one_and_encodes_nothing_again(made_run, ask, tmp_path, unreported, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        api.train(out=tmp_path / "run", observer=Stopping(), **ask)
    counted, encode = [], latents.moments_of
    monkeypatch.setattr(latents, "moments_of", lambda vae, images: counted.append(len(images)) or encode(vae, images))
    resumed = api.resume(tmp_path / "run")
    ours, unbroken = resumed.trained.model.state_dict(), made_run.trained.model.state_dict()
    assert all(torch.equal(tensor, unbroken[name]) for name, tensor in ours.items())
    assert sum(counted) <= 2 * resumed.scores["images"]  # those of the report alone: for its loss and its floor


def test_a_pass_that_is_stopped_goes_on_where_it_was(ask, made_run, tmp_path, unreported):
    class Breaking(Observer):
        what = ""

        def begin(self, what, images):
            self.what, self.seen = what, 0

        def advance(self, images):
            self.seen += images
            if self.what == "encoding images" and self.seen > 10:
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(InterruptedRunError):
        api.train(out=tmp_path / "run", observer=Breaking(), **ask)
    assert read_json(tmp_path / "run" / "features" / "latents.json")["batches"] == 2
    resumed = api.resume(tmp_path / "run")
    for name in ("latents", "flipped"):
        ours, whole = (np.load(run.folder / "features" / f"{name}.npy") for run in (resumed, made_run))
        assert np.array_equal(ours, whole)


def test_another_vae_is_refused_and_one_that_has_moved_is_named_anew(ask, tmp_path, unreported):
    place, run = write_vae(tmp_path / "vae"), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        api.train(out=run, observer=Stopping(), **{**ask, "task.latents": str(place)})
    place.rename(tmp_path / "moved")
    with pytest.raises(Exception, match="there is no VAE folder") as error:
        api.resume(run)
    assert f"vitrail resume {run} --task.latents FOLDER" in str(error.value)
    write_vae(place, seed=1)
    with pytest.raises(ModelFileError, match="not those that the run was begun with"):
        api.resume(run)
    shutil.rmtree(place)
    resumed = api.resume(run, **{"task.latents": str(tmp_path / "moved")})
    assert resumed.trained.latents == str(tmp_path / "moved")
    assert api.resume(run).folder == resumed.folder


def test_commands_sample_and_evaluate_through_the_vae(made_run, theirs, vae, vitrail, tmp_path):
    answer = vitrail("sample", made_run.folder, "--count", 3, "--steps", 2, "--batch-size", 2, "--out", tmp_path / "samples")
    assert answer.code == 0, answer.err
    trained = open_diffusion(made_run.folder)
    assert trained.latents == str(vae) and ("latents", str(vae)) in trained.rows
    made = torch.cat(list(sample_batches(trained, range(3), [0, 1, 2], Sampling(2))))
    expected = trained.preparation.pictures(theirs.decode(made / SCALE + SHIFT).sample)
    for number, picture in enumerate(expected):
        own = np.asarray(Image.open(tmp_path / "samples" / f"000{number}.png"), int)
        assert own.shape == (16, 16, 3) and np.abs(own - np.asarray(picture, int)).max() <= 1
    answer = vitrail("evaluate", made_run.folder, "--count", 8, "--steps", 2, "--json")
    assert answer.code == 0, answer.err
    scores = json.loads(answer.out)
    assert scores["loss"] == pytest.approx(made_run.scores["loss"], rel=1e-4) and scores["floor"]
    assert "Samples" in (made_run.folder / "report.html").read_text()


def test_a_sample_may_begin_with_the_latents_of_a_photograph(made_run, theirs, pictures):
    trained, photograph = open_diffusion(made_run.folder), next(pictures.rglob("*.png"))
    mean = theirs.encode(trained.preparation(photograph)).latent_dist.mean
    torch.testing.assert_close(trained.prepared(photograph), (mean - SHIFT) * SCALE, atol=1e-3, rtol=1e-3)
    (image,) = sample(trained, classes=["red"], count=1, start=photograph, strength=0.5, steps=4)
    assert image.size == (16, 16)


def test_a_run_starts_from_a_model_of_latents_with_its_vae_and_its_size(made_run, pictures, tmp_path, unreported):
    started = api.train(str(pictures), tmp_path / "run", start=str(made_run.folder), task="diffusion", epochs=1)
    settings, trained = RunFolder.open(started.folder).settings, made_run.trained
    assert (settings.model.config.image_size, settings.preparation.image_size) == ((8, 8), (16, 16))
    assert settings.task.latents == trained.latents
    larger = {"start": str(made_run.folder), "task": "diffusion", "data": str(pictures), "image_size": 24}
    assert task_and_items(larger)[2].model.config.image_size == (12, 12)


def test_the_settings_of_a_run_are_those_of_another_like_it(made_run, tmp_path, unreported):
    again = api.train(out=tmp_path / "run", config=made_run.folder / "config.yaml")
    assert RunFolder.open(again.folder).settings == RunFolder.open(made_run.folder).settings
    ours, theirs = (run.trained.model.state_dict() for run in (again, made_run))
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


def test_without_time_to_encode_all_images_they_are_encoded_in_every_step(ask, tmp_path, unreported):
    run = api.train(out=tmp_path / "run", **{**ask, "training.time_limit": 1e-3})
    assert latents.NO_TIME in (run.folder / "train.log").read_text() and run.scores["loss"]

"""``vitrail convert`` for models that make images: what their files do not say is given by flags."""

import json

import torch
from safetensors.torch import load_file
from tiny_dit import of_diffusers, save_pipeline, save_vae, trained

from vitrail.weights.convert import convert
from vitrail.weights.reference import from_pretrained


def test_an_authors_pickle_becomes_a_folder_that_names_its_vae(vitrail, tmp_path):
    convert(trained(), tmp_path / "dit.safetensors", layout="dit")
    torch.save(load_file(tmp_path / "dit.safetensors"), tmp_path / "dit.pt")
    save_vae(tmp_path / "vae")
    words = ("convert", tmp_path / "dit.pt", tmp_path / "out", "--heads", "4", "--latents", tmp_path / "vae")
    refused = vitrail(*words)
    assert refused.code == 4 and "--trust-pickle" in refused.err
    done = vitrail(*words, "--trust-pickle")
    assert done.code == 0 and "recognised its authors' DiT" in done.err
    assert json.loads((tmp_path / "out/config.json").read_text())["latents"] == str(tmp_path / "vae")
    found = from_pretrained(tmp_path / "out")
    assert found.latents == str(tmp_path / "vae") and found.preparation.image_size == (16, 16)


def test_a_vae_is_for_latents_and_must_be_there(vitrail, tmp_path):
    convert(trained(channels=3), tmp_path / "pixels")
    nowhere = vitrail("convert", tmp_path / "pixels", tmp_path / "out", "--latents", tmp_path / "nowhere")
    assert nowhere.code == 2 and "there is no VAE" in nowhere.err
    save_vae(tmp_path / "vae")
    pixels = vitrail("convert", tmp_path / "pixels", tmp_path / "out", "--latents", tmp_path / "vae")
    assert pixels.code == 2 and "the model makes no latents" in pixels.err
    assert not (tmp_path / "out").exists()


def test_the_shift_of_a_pipeline_is_given(vitrail, tmp_path):
    save_pipeline(tmp_path / "pipeline")
    assert vitrail("convert", tmp_path / "pipeline", tmp_path / "out", "--time-shift", "0").code == 0
    assert from_pretrained(tmp_path / "out").config.time_shift == 0
    wrong = vitrail("convert", tmp_path / "pipeline", tmp_path / "wrong", "--time-shift", "2")
    assert wrong.code != 0 and "time_shift" in wrong.err
    own = vitrail("convert", tmp_path / "out", tmp_path / "wrong", "--time-shift", "1")
    assert own.code == 2 and "already defines the model" in own.err


def test_a_model_is_written_for_diffusers_and_not_over_what_is_there(vitrail, tmp_path):
    of_diffusers(in_channels=3, out_channels=3).save_pretrained(tmp_path / "theirs")
    done = vitrail("convert", tmp_path / "theirs", tmp_path / "out", "--layout", "diffusers")
    assert done.code == 0 and "layout diffusers" in done.err
    assert vitrail("convert", tmp_path / "theirs", tmp_path / "out", "--layout", "diffusers").code == 2
    alone = vitrail("convert", tmp_path / "out", tmp_path / "authors.safetensors", "--layout", "dit")
    assert alone.code == 2 and "time_shift is 1, would be read as 0" in alone.err

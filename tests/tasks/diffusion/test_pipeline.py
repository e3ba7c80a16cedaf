"""Sampling with a pipeline of diffusers: the same images as its own scheduler's, on the same noise."""

import pytest
import torch
from diffusers import DDIMScheduler, DiTPipeline
from tiny_dit import save_pipeline, save_vae, trained

from vitrail.errors import ConfigError, ModelFileError
from vitrail.tasks.diffusion.process import Process
from vitrail.tasks.diffusion.sampling.making import class_indices, open_diffusion, sample_batches
from vitrail.tasks.diffusion.sampling.options import Sampling
from vitrail.weights.convert import convert

SEEDS = [3, 4, 5]


@torch.no_grad()
def by_diffusers(whole, noise, labels, steps, guidance):
    """Latents by their transformer and scheduler, as their pipeline has them."""
    scheduler, x = whole.scheduler, noise
    scheduler.set_timesteps(steps)
    null = torch.full_like(labels, whole.transformer.config.num_embeds_ada_norm)
    for time in scheduler.timesteps:
        times = time.expand(len(x))
        own, free = (whole.transformer(x, times, each).sample[:, :4] for each in (labels, null))
        x = scheduler.step(free + guidance * (own - free), time, x).prev_sample
    return x


@pytest.mark.parametrize("guidance", [1.0, 3.0])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"prediction_type": "v_prediction", "beta_schedule": "squaredcos_cap_v2"},
        {"timestep_spacing": "trailing", "num_train_timesteps": 200, "beta_start": 5e-4, "beta_end": 0.1},
    ],
    ids=str,
)
def test_a_pipeline_makes_the_latents_of_diffusers(options, guidance, tmp_path):
    whole = save_pipeline(tmp_path, DDIMScheduler(clip_sample=False, **options))
    found = open_diffusion(tmp_path)
    noise = torch.stack([torch.randn(4, 8, 8, generator=torch.Generator().manual_seed(seed)) for seed in SEEDS])
    labels = torch.tensor([0, 2, 4])
    expected = by_diffusers(whole, noise, labels, 25, guidance)
    latents = torch.cat(list(sample_batches(found, SEEDS, labels.tolist(), Sampling(25, guidance), batch_size=2)))
    assert expected.std() > 0.1
    torch.testing.assert_close(latents, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("spacing", "classes"), [("leading", 5), ("trailing", 5), ("leading", 1000), ("leading", 0)])
def test_their_whole_pipeline_makes_the_images_of_a_model_of_ours(spacing, classes, tmp_path):
    vae, model = save_vae(tmp_path / "vae"), trained(time_shift=1, spacing=spacing, num_classes=classes)
    model.latents = str(tmp_path / "vae")
    convert(model, tmp_path / "out", layout="diffusers")
    whole = DiTPipeline.from_pretrained(tmp_path / "out")
    whole.set_progress_bar_config(disable=True)
    draws = [torch.Generator().manual_seed(seed) for seed in SEEDS]
    labels = [0, 2, 4] if classes else [None] * 3
    options = {"generator": draws, "num_inference_steps": 20, "output_type": "np"}
    expected = whole([label or 0 for label in labels], guidance_scale=3.0, **options).images
    guidance = 3.0 if classes else 1.0
    latents = torch.cat(list(sample_batches(open_diffusion(tmp_path / "out"), SEEDS, labels, Sampling(20, guidance))))
    with torch.no_grad():
        images = vae.eval().decode(latents / vae.config.scaling_factor).sample
    pixels = (images / 2 + 0.5).clamp(0, 1).permute(0, 2, 3, 1)
    assert expected.shape == (3, 16, 16, 3) and pixels.std() > 0.01
    torch.testing.assert_close(pixels, torch.from_numpy(expected), atol=1e-4, rtol=0)


def test_a_class_is_named_by_any_of_the_names_in_its_label(tmp_path):
    save_pipeline(tmp_path, labels=["tench, Tinca tinca", "crane, wading bird", "crane", "hen", "a,b"])
    found = open_diffusion(tmp_path)
    chosen = ["Tinca tinca", "wading bird", "crane", "a,b"]
    assert class_indices(found, chosen, 4) == [0, 1, 2, 4]
    with pytest.raises(ConfigError, match="bird"):
        class_indices(found, ["bird"], 1)


def test_the_authors_guide_three_channels_alone(tmp_path):
    save_pipeline(tmp_path)
    found = open_diffusion(tmp_path)
    one = Sampling(2, 3.0), Sampling(2, 3.0, guided_channels=3), Sampling(2, 3.0, guided_channels=4)
    whole, three, four = (next(sample_batches(found, SEEDS, [0, 1, 2], sampling)) for sampling in one)
    torch.testing.assert_close(whole, four, atol=0, rtol=0)
    assert (whole - three)[:, 3].abs().min() > 0


def test_latents_that_no_vae_decodes_are_refused_before_any_work(tmp_path):
    convert(trained(), tmp_path / "out")
    with pytest.raises(ModelFileError, match="latents of 4 channels, and nothing names the VAE") as refusal:
        open_diffusion(tmp_path / "out")
    assert refusal.value.hint == "vitrail convert MODEL OUT --latents VAE_FOLDER"


@pytest.mark.parametrize("spacing", ["leading", "trailing", "linspace"])
@pytest.mark.parametrize("steps", [1, 7, 50, 999, 1000])
def test_times_are_those_of_diffusers(spacing, steps):
    scheduler = DDIMScheduler(timestep_spacing=spacing)
    scheduler.set_timesteps(steps)
    times = Process(spacing=spacing).spaced(steps)
    if (spacing, steps) == ("linspace", 1):
        assert times == [999]  # where diffusers asks for the clean image's time
    else:
        assert times == scheduler.timesteps.tolist()

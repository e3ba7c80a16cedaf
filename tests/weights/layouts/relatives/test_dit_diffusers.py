"""diffusers' DiT, alone and in a pipeline: read and written with the same outputs, or refused by name."""

import json

import pytest
import torch
from diffusers import DDIMScheduler, DDPMScheduler, DiTPipeline, DiTTransformer2DModel, PNDMScheduler
from safetensors.torch import load_file, save_file
from tiny_dit import LABELS, batch, edited, of_diffusers, ours, save_pipeline, save_vae, theirs, trained

from vitrail.errors import ConfigError, ModelFileError
from vitrail.tasks.diffusion.weights import TrainedDiffusion
from vitrail.weights.convert import convert
from vitrail.weights.reference import from_pretrained

FIELDS = {"time_shift": 1}
TABLE = "transformer_blocks.{}.norm1.emb.class_embedder.embedding_table.weight"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"norm_eps": 1e-6, "num_layers": 1},
        {"in_channels": 3, "out_channels": 3, "sample_size": 12, "patch_size": 4},
        {"in_channels": 1, "out_channels": None, "num_embeds_ada_norm": 0},
        {"num_attention_heads": 2, "attention_head_dim": 16, "num_embeds_ada_norm": 1000},
    ],
    ids=str,
)
def test_their_folder_is_read_with_their_outputs(fields, tmp_path, capsys):
    model = of_diffusers(**fields)
    model.save_pretrained(tmp_path / "theirs")
    found = from_pretrained(tmp_path / "theirs")
    assert "recognised diffusers' DiT" in (said := capsys.readouterr().err) and "time_shift 1" in said
    inputs = batch(found.config)
    torch.testing.assert_close(ours(found.model, *inputs), theirs(model, *inputs), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"mlp_norm_eps": 1e-5, "betas": "cosine", "objective": "velocity", "spacing": "leading"},
        {"channels": 3, "learned_variance": False, "patch_size": 4, "steps": 200, "spacing": "trailing"},
        {"num_classes": 0},
        {"num_classes": 1000},
    ],
    ids=str,
)
def test_a_folder_of_ours_is_opened_by_diffusers_and_read_again(fields, tmp_path):
    model = trained(**FIELDS, **fields)
    model.latents = str(tmp_path / "vae") if model.config.channels == 4 else None
    if model.latents:
        save_vae(tmp_path / "vae")
    assert convert(model, tmp_path / "out", layout="diffusers") == "diffusers"
    other, report = DiTTransformer2DModel.from_pretrained(tmp_path / "out/transformer", output_loading_info=True)
    assert not any(report.values()), report
    images, times, labels = inputs = batch(model.config)
    expected = ours(model.model, *inputs)
    torch.testing.assert_close(theirs(other.eval(), *inputs), expected, atol=1e-5, rtol=1e-5)
    nothing = torch.full_like(labels, 1000)  # what their pipeline always takes for no class
    none = torch.full_like(labels, model.config.num_classes)
    torch.testing.assert_close(
        theirs(other, images, times, nothing), ours(model.model, images, times, none), atol=1e-5, rtol=1e-5
    )
    for folder in (tmp_path / "out", tmp_path / "out/transformer"):
        again = from_pretrained(folder)
        assert again.model.config == model.config and again.labels == model.labels
        torch.testing.assert_close(ours(again.model, *inputs), expected, atol=0, rtol=0)
    again = from_pretrained(tmp_path / "out")
    assert again.preparation == model.preparation
    assert again.latents == (str(tmp_path / "out/vae") if model.latents else None)


def test_their_pipeline_is_read_with_labels_scheduler_and_the_place_of_its_vae(tmp_path):
    scheduler = DDIMScheduler(
        400, beta_schedule="squaredcos_cap_v2", prediction_type="v_prediction", clip_sample=False, timestep_spacing="trailing"
    )
    labels = ["tench, Tinca tinca", "crane", "crane"]
    whole = save_pipeline(tmp_path / "pipeline", scheduler, labels, num_embeds_ada_norm=3)
    found = from_pretrained(tmp_path / "pipeline")
    assert isinstance(found, TrainedDiffusion)
    assert found.labels == ["tench, Tinca tinca", "crane", "crane (2)"]
    fields = {"betas": "cosine", "objective": "velocity", "steps": 400, "spacing": "trailing"}
    assert {name: getattr(found.config, name) for name in fields} == fields
    assert found.latents == str(tmp_path / "pipeline/vae")
    inputs = batch(found.config)
    torch.testing.assert_close(ours(found.model, *inputs), theirs(whole.transformer, *inputs), atol=1e-5, rtol=1e-5)
    found.save_pretrained(tmp_path / "own")
    again = from_pretrained(tmp_path / "own")
    assert (again.config, again.labels, again.latents) == (found.config, found.labels, found.latents)
    assert again.preparation == found.preparation
    assert found.preparation.image_size == (16, 16) and found.preparation.channels == 3  # which the VAE halves


def test_a_pipeline_of_ours_is_opened_by_diffusers_whole(tmp_path):
    model = trained(**FIELDS)
    save_vae(tmp_path / "vae")
    model.latents = str(tmp_path / "vae")
    convert(model, tmp_path / "out", layout="diffusers")
    whole = DiTPipeline.from_pretrained(tmp_path / "out")
    assert whole.labels == {label: number for number, label in enumerate(model.labels)}
    whole.set_progress_bar_config(disable=True)
    images = whole([0, 4], guidance_scale=3.0, num_inference_steps=2, output_type="np").images
    assert images.shape == (2, 16, 16, 3)


def test_the_shift_of_the_time_can_be_said(tmp_path):
    """Weights of the authors in this format were trained with 0, and their library computes 1."""
    model = of_diffusers()
    model.save_pretrained(tmp_path / "theirs")
    found = from_pretrained(tmp_path / "theirs", time_shift=0)
    for block in model.transformer_blocks:
        block.norm1.emb.time_proj.downscale_freq_shift = 0
    inputs = batch(found.config)
    torch.testing.assert_close(ours(found.model, *inputs), theirs(model, *inputs), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "values",
    [
        {"_class_name": "PixArtTransformer2DModel"}, {"norm_elementwise_affine": True}, {"activation_fn": "geglu"},
        {"attention_bias": False}, {"norm_type": "ada_norm"}, {"caption_channels": 8}, {"sliding_window": 4},
        {"only_cross_attention": True}, {"out_channels": 5},
    ],
    ids=str,
)  # fmt: skip
def test_a_config_that_is_not_done_is_refused_by_name(values, tmp_path):
    of_diffusers().save_pretrained(tmp_path)
    edited(tmp_path / "config.json", **values)
    with pytest.raises(ModelFileError, match=next(iter(values))):
        from_pretrained(tmp_path)


def test_the_config_of_a_conversion_before_2024_is_read(tmp_path):
    model = of_diffusers()
    model.save_pretrained(tmp_path)
    older = {
        "_class_name": "Transformer2DModel", "_diffusers_version": "0.12.0.dev0", "cross_attention_dim": None,
        "num_vector_embeds": None, "only_cross_attention": False, "use_linear_projection": False,
    }  # fmt: skip
    edited(tmp_path / "config.json", **older)
    values = json.loads((tmp_path / "config.json").read_text())
    del values["norm_eps"]
    (tmp_path / "config.json").write_text(json.dumps(values))
    found = from_pretrained(tmp_path)
    inputs = batch(found.config)
    torch.testing.assert_close(ours(found.model, *inputs), theirs(model, *inputs), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "values",
    [
        {"clip_sample": True}, {"beta_end": 0.012}, {"beta_start": 0.00085}, {"beta_schedule": "scaled_linear"},
        {"trained_betas": [0.1, 0.2]}, {"prediction_type": "sample"}, {"steps_offset": 1}, {"set_alpha_to_one": False},
        {"thresholding": True}, {"rescale_betas_zero_snr": True}, {"num_train_timesteps": 1}, {"timestep_spacing": "log"},
        {"solver_order": 2}, {"_class_name": "UniPCMultistepScheduler"},
    ],
    ids=str,
)  # fmt: skip
def test_a_scheduler_that_is_not_done_is_refused_by_name(values, tmp_path):
    save_pipeline(tmp_path)
    edited(tmp_path / "scheduler/scheduler_config.json", **values)
    with pytest.raises(ModelFileError, match=next(iter(values))):
        from_pretrained(tmp_path)


def test_what_a_scheduler_leaves_out_is_as_in_diffusers(tmp_path):
    save_pipeline(tmp_path, DDPMScheduler(clip_sample=False))
    assert from_pretrained(tmp_path).config.spacing == "leading"
    file = tmp_path / "scheduler/scheduler_config.json"
    file.write_text(json.dumps({"_class_name": "DDIMScheduler", "clip_sample": False}))
    config = from_pretrained(tmp_path).config
    assert (config.spacing, config.steps, config.betas, config.objective) == ("leading", 1000, "linear", "noise")
    file.write_text(json.dumps({"_class_name": "DDIMScheduler"}))
    with pytest.raises(ModelFileError, match="clip_sample is True"):
        from_pretrained(tmp_path)
    PNDMScheduler().save_pretrained(tmp_path / "scheduler")
    with pytest.raises(ModelFileError, match="PNDMScheduler"):
        from_pretrained(tmp_path)
    edited(tmp_path / "model_index.json", _class_name="PixArtAlphaPipeline")
    with pytest.raises(ModelFileError, match="PixArtAlphaPipeline"):
        from_pretrained(tmp_path)


def test_embedders_that_differ_from_block_to_block_are_refused(tmp_path):
    of_diffusers().save_pretrained(tmp_path)
    file = tmp_path / "diffusion_pytorch_model.safetensors"
    state, name = load_file(file), TABLE.format(1)
    save_file({**state, name: state[name] + 1}, file)
    with pytest.raises(ModelFileError, match="embedding of time and class in block 1 is another"):
        from_pretrained(tmp_path)
    save_file({**state, name: torch.zeros(7, 32)}, file)
    with pytest.raises(ModelFileError, match=TABLE.format(1)):
        from_pretrained(tmp_path)
    del state[name]
    save_file(state, file)
    with pytest.raises(ModelFileError, match=TABLE.format(1)):
        from_pretrained(tmp_path)


def test_names_for_some_classes_of_a_table_are_refused(tmp_path):
    save_pipeline(tmp_path, labels=LABELS[:3])
    with pytest.raises(ModelFileError, match="6 different rows, and the files name 3 classes"):
        from_pretrained(tmp_path)


def test_pickles_of_a_pipeline_are_refused_with_the_command(tmp_path):
    save_pipeline(tmp_path / "pipeline")
    file = tmp_path / "pipeline/transformer/diffusion_pytorch_model.safetensors"
    torch.save(load_file(file), file.with_suffix(".bin"))
    expected = from_pretrained(tmp_path / "pipeline")
    file.unlink()
    with pytest.raises(ModelFileError, match="pickle") as refusal:
        from_pretrained(tmp_path / "pipeline")
    assert f"vitrail convert {tmp_path / 'pipeline'}" in refusal.value.hint
    found = from_pretrained(tmp_path / "pipeline", trust_pickle=True)
    assert found.config == expected.config and found.latents == expected.latents
    torch.testing.assert_close(found.model.label.weight, expected.model.label.weight)


@pytest.mark.parametrize(
    "fields",
    [
        {"time_shift": 0}, {"image_size": (8, 16)}, {"patch_size": (2, 4)}, {"mlp_dim": 64}, {"time_dim": 128},
        {"norm_eps": 1e-5}, {"null_class": False}, {"num_classes": 1001}, {"objective": "flow", "learned_variance": False},
    ],
    ids=str,
)  # fmt: skip
def test_what_diffusers_cannot_build_is_not_written(fields, tmp_path):
    with pytest.raises(ConfigError, match="diffusers' DiT has no"):
        convert(trained(**{**FIELDS, **fields}), tmp_path / "out", layout="diffusers")
    assert not list(tmp_path.iterdir())


def test_a_vae_that_is_not_there_is_an_error_and_nothing_is_written(tmp_path):
    model = trained(**FIELDS)
    model.latents = str(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="nowhere"):
        convert(model, tmp_path / "out", layout="diffusers")
    assert not list(tmp_path.iterdir())

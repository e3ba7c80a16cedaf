"""Small DiTs with random weights, ours and diffusers', and inputs of theirs."""

import json

import torch
from diffusers import AutoencoderKL, DDIMScheduler, DiTPipeline, DiTTransformer2DModel
from residual_networks import random_weights

from vitrail.data.images.preparation import Preparation
from vitrail.models.registry import create_model
from vitrail.tasks.diffusion.weights import TrainedDiffusion

TINY = {"dim": 32, "depth": 2, "heads": 4, "mlp_dim": 128, "image_size": 8, "patch_size": 2, "num_classes": 5}
THEIRS = {"num_attention_heads": 4, "attention_head_dim": 8, "out_channels": 8, "num_layers": 2, "sample_size": 8,
          "num_embeds_ada_norm": 5}  # fmt: skip
LABELS = [f"class {number}" for number in range(5)]


def trained(**fields) -> TrainedDiffusion:
    """A model of ours with labels; pictures are eight times as large as latents."""
    model = random_weights(create_model("DiT-S/2", **{**TINY, **fields}))
    c = model.config
    preparation = Preparation.standard(c.image_size, c.channels) if c.channels in (1, 3) else Preparation.standard((64, 64))
    return TrainedDiffusion(model, [f"class {number}" for number in range(c.num_classes)], preparation)


def batch(config):
    """Noisy images, times, and classes, none among them."""
    images = torch.randn(3, config.channels, *config.image_size, generator=torch.Generator().manual_seed(0))
    return images, torch.tensor([0.0, 321.0, 999.0]), torch.tensor([0, min(2, config.num_classes), config.num_classes])


@torch.no_grad()
def ours(model, images, times, labels):
    """The output of a model of ours, with classes or without."""
    return model(images, times, labels) if model.config.num_classes else model(images, times)


@torch.no_grad()
def theirs(model, images, times, labels):
    """The output of diffusers' model."""
    return model(images, timestep=times, class_labels=labels).sample


def of_diffusers(**fields) -> DiTTransformer2DModel:
    """A model of theirs with one embedding of time and class, as theirs are converted."""
    model = random_weights(DiTTransformer2DModel(**{**THEIRS, **fields}))
    first, *others = model.transformer_blocks
    for block in others:
        block.norm1.emb.load_state_dict(first.norm1.emb.state_dict())
    return model


def save_vae(folder, **fields) -> AutoencoderKL:
    """A VAE of four latent channels, which halves an image's sides."""
    usual = {
        "block_out_channels": (8, 8), "latent_channels": 4, "norm_num_groups": 4,
        "down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2,
    }  # fmt: skip
    model = AutoencoderKL(**{**usual, **fields})
    model.save_pretrained(folder)
    return model


def save_pipeline(folder, scheduler=None, labels=LABELS, **fields) -> DiTPipeline:
    """A whole pipeline of theirs."""
    scheduler = DDIMScheduler(clip_sample=False) if scheduler is None else scheduler
    whole = DiTPipeline(of_diffusers(**fields), save_vae(folder / "vae"), scheduler, dict(enumerate(labels)))
    whole.save_pretrained(folder)
    edited(folder / "model_index.json", id2label=dict(enumerate(labels)))  # published ones have it, saving leaves it out
    whole.set_progress_bar_config(disable=True)
    return whole


def edited(file, **values) -> None:
    """Change values in a file of JSON."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))

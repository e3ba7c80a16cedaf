"""A tiny VAE with random weights, saved as diffusers saves one."""

from pathlib import Path
from typing import Any

import torch

FACTOR, CHANNELS, SCALE, SHIFT = 2, 4, 0.5, 0.25


def write_vae(folder: Path, *, seed: int = 0, **fields: Any) -> Path:
    """Write an `AutoencoderKL` whose latents have half of an image's height and width; its deviations are not small."""
    from diffusers import AutoencoderKL

    usual = {
        "down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2,
        "block_out_channels": (8, 8), "norm_num_groups": 4, "latent_channels": CHANNELS, "sample_size": 16,
        "scaling_factor": SCALE, "shift_factor": SHIFT,
    }  # fmt: skip
    torch.manual_seed(seed)
    AutoencoderKL(**{**usual, **fields}).save_pretrained(folder)
    return folder

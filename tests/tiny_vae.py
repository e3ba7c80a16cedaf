"""A tiny VAE with random weights and a scale of its own, saved as diffusers saves one."""

from pathlib import Path
from typing import Any

import torch
from tiny_dit import save_vae

FACTOR, CHANNELS, SCALE, SHIFT = 2, 4, 0.5, 0.25


def write_vae(folder: Path, *, seed: int = 0, **fields: Any) -> Path:
    """Write an `AutoencoderKL` whose latents have half of an image's height and width; its deviations are not small."""
    torch.manual_seed(seed)
    save_vae(folder, **{"scaling_factor": SCALE, "shift_factor": SHIFT, "sample_size": 16, **fields})
    return folder

"""Masks of a Masked Diffusion Transformer, one for each training image."""

from typing import Any

import numpy as np


def draw_mask(config: Any, random: np.random.Generator) -> np.ndarray:
    """Return a random mask over the patches of an image, bool (N,), True where a patch is masked.

    The masked fraction is drawn with it, uniformly from the model's interval. The authors draw one fraction for a batch, whose
    images then all see as many patches. Here they may differ, so a mask depends on the image's own random numbers alone.
    """
    order = random.permutation(config.grid[0] * config.grid[1])
    return order >= config.seen(config.mask_ratio + config.mask_spread * random.random())

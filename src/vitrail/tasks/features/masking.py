"""Tasks that mask patches of an image."""

import math
from inspect import signature
from typing import Any

from vitrail.errors import ConfigError
from vitrail.models.base import ImageModel
from vitrail.models.registry import USUAL


def require_maskable(model: ImageModel, task: str) -> Any:
    """Return the configuration of a model whose patches can be masked; raises `ConfigError`, which names the ``task``."""
    config: Any = model.config
    faults = {
        "a plain ViT": "masked" not in signature(getattr(model, "encode", model.forward)).parameters,
        "patches that are embedded one by one": getattr(config, "embedding", "conv") not in ("conv", "linear"),
        "a size of images that is whole patches": getattr(config, "crop_remainder", False),
        "a final norm on all tokens": getattr(config, "final_norm", "") == "pooled",
        "no attention pooling": str(getattr(config, "pool", "")).startswith("attention"),
        "no distillation token": getattr(config, "distillation_token", False),
        "no patch dropout": bool(getattr(config, "patch_dropout", 0)),
        "no token merging": any(config.merged),
        "two patches or more": math.prod(getattr(config, "grid", (2,))) < 2,
    }
    missing = [what for what, fault in faults.items() if fault]
    if missing:
        raise ConfigError(f"{task} needs {missing[0]}", where="model", hint=f"take another, such as {USUAL}")
    return config

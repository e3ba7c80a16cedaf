"""A small captioner with random weights, and one that a run has trained."""

import torch
from torch import nn

from vitrail.data.images.preparation import Preparation
from vitrail.data.text.tokenizer import Tokenizer
from vitrail.models.registry import build, model_config
from vitrail.tasks.captioning.weights import TrainedCaptioner

ENCODER = {"patch_size": 8, "dim": 16, "depth": 1, "heads": 2, "mlp_dim": 32}
SIZES = {"dim": 16, "decoder_depth": 2, "heads": 2, "mlp_dim": 32}


def small_captioner(name: str = "Captioner-Ti/16", **fields) -> TrainedCaptioner:
    """For images of 24 pixels, with nine patches."""
    torch.manual_seed(0)
    tokenizer = Tokenizer.learned(["a red circle on the left", "there is a square, and it is blue"], 290)
    sizes = SIZES if name.startswith("Captioner-Ti") else {"dim": 16, "hidden_dim": 24}
    config = model_config(name, vocabulary=len(tokenizer), **{"image_size": 24, "encoder": ENCODER, **sizes, **fields})
    model = build(config).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return TrainedCaptioner(model, tokenizer, Preparation.standard((24, 24)))

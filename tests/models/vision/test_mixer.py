"""The MLP-Mixer is timm's, and its costs are its authors'."""

import re

import pytest
import timm
import torch

from vitrail.errors import ConfigError
from vitrail.models.configs.mixer import MixerConfig
from vitrail.models.registry import create_model, model_config
from vitrail.models.vision.mixer import Mixer

THEIRS = {
    "embedding.projection": "stem.proj",
    "norm": "norm",
    "head.linear": "head",
    "tokens.norm": "norm1",
    "tokens.layer.expand": "mlp_tokens.fc1",
    "tokens.layer.contract": "mlp_tokens.fc2",
    "channels.norm": "norm2",
    "channels.layer.expand": "mlp_channels.fc1",
    "channels.layer.contract": "mlp_channels.fc2",
}


def like_timms(theirs: torch.nn.Module, **fields) -> Mixer:
    """Our Mixer with the weights of one of timm's."""
    ours, state = Mixer(MixerConfig(**fields)), theirs.state_dict()
    own = {}
    for name in ours.state_dict():
        block = re.match(r"blocks\.\d+\.", name)
        prefix = block[0] if block else ""
        layer, _, parameter = name.removeprefix(prefix).rpartition(".")
        own[name] = state[f"{prefix}{THEIRS[layer]}.{parameter}"]
    ours.load_state_dict(own)
    return ours.eval()


@pytest.mark.parametrize("size", [(32, 32), (24, 40)])
@pytest.mark.parametrize("channels", [1, 3])
def test_logits_are_timms(size, channels):
    torch.manual_seed(0)
    theirs = timm.models.mlp_mixer.MlpMixer(
        img_size=size, patch_size=8, num_blocks=3, embed_dim=48, mlp_ratio=(0.5, 4.0), num_classes=7, in_chans=channels
    ).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    ours = like_timms(
        theirs, image_size=size, patch_size=8, channels=channels, num_classes=7, dim=48, depth=3, token_dim=24, channel_dim=192
    )
    images = torch.randn(4, channels, *size)
    torch.testing.assert_close(ours(images), theirs(images), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["Mixer-S/16", "Mixer-B/32"])
def test_the_sizes_are_timms(name):
    with torch.device("meta"):
        ours, theirs = create_model(name), timm.create_model({"Mixer-S/16": "mixer_s16_224", "Mixer-B/32": "mixer_b32_224"}[name])
    assert sorted(tuple(p.shape) for p in ours.parameters()) == sorted(tuple(p.shape) for p in theirs.parameters())
    assert model_config({"Mixer-S/16": "mixer_s16_224", "Mixer-B/32": "mixer_b32_224"}[name]) == model_config(name)


def test_another_size_of_images_is_refused_with_a_sentence():
    model = create_model("Mixer-S/16", image_size=32, dim=16, depth=1)
    with pytest.raises(ConfigError, match=r"images have shape \(1, 3, 48, 48\), the model takes \(batch, 3, 32, 32\)"):
        model(torch.zeros(1, 3, 48, 48))
    with pytest.raises(ConfigError, match="a Mixer takes only images of 32×32"):
        model.at_any_size()


def test_more_patches_than_a_matrix_of_them_has_room_for_are_refused():
    with pytest.raises(ConfigError, match="number of patches"):
        MixerConfig.read({"image_size": 2**10, "patch_size": 2})

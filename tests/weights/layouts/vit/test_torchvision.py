"""torchvision's VisionTransformer with random weights."""

from functools import partial

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torchvision.models.vision_transformer import VisionTransformer, interpolate_embeddings

from vitrail.weights.convert import convert
from vitrail.weights.reference import from_pretrained


def build(size: int = 32, **fields) -> nn.Module:
    return VisionTransformer(size, 8, num_layers=2, num_heads=2, hidden_dim=128, mlp_dim=96, num_classes=5, **fields)


@pytest.mark.parametrize("fields", [{}, {"representation_size": 128}], ids=str)
def test_logits_are_torchvisions(fields, randomized, kept, recognised, agree):
    theirs = randomized(build(**fields))
    ours = recognised(kept(theirs.state_dict()), "torchvision")
    agree(ours, theirs)
    assert ours.preparation.resize_size == (36, 36) and ours.preparation.resampling == "bilinear"


def test_the_names_of_its_first_version_are_known(randomized, kept, recognised, agree):
    theirs = randomized(build())
    older = {
        name.replace("mlp.0.", "mlp.linear_1.").replace("mlp.3.", "mlp.linear_2."): tensor
        for name, tensor in theirs.state_dict().items()
    }
    agree(recognised(kept(older), "torchvision"), theirs)


@pytest.mark.parametrize("size", [48, 24, 16])
def test_at_another_resolution_positions_are_interpolated_as_torchvision_does(size, randomized, kept, recognised, agree):
    theirs = randomized(build())
    ours = recognised(kept(theirs.state_dict()), "torchvision", image_size=size)
    resized = build(size).eval()
    resized.load_state_dict(interpolate_embeddings(size, 8, dict(theirs.state_dict())))
    agree(ours, resized, size=(size, size))


def test_what_is_written_is_read_by_torchvision(randomized, kept, tmp_path, agree):
    theirs = randomized(build())
    convert(from_pretrained(kept(theirs.state_dict())), tmp_path / "out.safetensors", layout="torchvision")
    again = build().eval()
    again.load_state_dict(load_file(tmp_path / "out.safetensors"))
    agree(again, theirs)


def test_another_epsilon_cannot_be_written(randomized, kept, tmp_path):
    theirs = randomized(build(norm_layer=partial(nn.LayerNorm, eps=1e-3)))
    ours = from_pretrained(kept(theirs.state_dict()), norm_eps=1e-3)
    assert torch.is_tensor(ours.model.norm.weight)
    with pytest.raises(Exception, match=r"norm_eps is 0\.001, would be read as 1e-06"):
        convert(ours, tmp_path / "out.safetensors", layout="torchvision")
    assert not (tmp_path / "out.safetensors").exists()

"""PVT is transformers' where that works, takes images of any size, and no pass changes it."""

import pytest
import torch
import torch.nn.functional as F
import transformers

from random_weights import randomize
from translated import like
from vitrail.errors import ConfigError
from vitrail.models.configs.pvt import PVTConfig
from vitrail.models.vision.pvt import PVT
from vitrail.parts.positions.interpolation import ANTIALIASED

SMALL = {"dims": (8, 16, 24, 32), "depths": (1, 1, 2, 1), "heads": (1, 2, 2, 4), "mlp_ratios": (2, 3, 2, 2), "num_classes": 5}


def small(**fields) -> PVT:
    torch.manual_seed(0)
    return randomize(PVT(PVTConfig(**{**SMALL, "image_size": 64, **fields})), std=0.2)


def transformers_like(image_size: int) -> torch.nn.Module:
    config = transformers.PvtConfig(
        image_size=image_size, hidden_sizes=SMALL["dims"], depths=SMALL["depths"], num_attention_heads=SMALL["heads"],
        mlp_ratios=SMALL["mlp_ratios"], num_labels=5,
    )  # fmt: skip
    return transformers.PvtForImageClassification(config)


@pytest.mark.parametrize("image_size", [224, 100])
def test_logits_are_transformers_with_its_epsilon(image_size):
    theirs = transformers_like(image_size)
    ours, images = like(theirs, "pvt", heads=SMALL["heads"]), torch.randn(2, 3, image_size, image_size).double()
    assert ours.config.image_size == (image_size, image_size) and ours.config.grid_norm_eps == 1e-6
    expected = theirs(images).logits
    torch.testing.assert_close(ours(images), expected, rtol=0, atol=1e-10 * expected.abs().max().item())
    assert (expected[0] - expected[1]).abs().max() > 1e-3


def test_epsilons_are_the_authors():
    found = {
        name: module.eps for name, module in PVT(PVTConfig(**SMALL, image_size=32)).named_modules() if hasattr(module, "eps")
    }
    coarser = {name for name, eps in found.items() if eps == 1e-5}
    assert coarser == {name for name in found if "embedding.norm" in name or "reduction.norm" in name} and len(coarser) == 8
    assert {found[name] for name in found.keys() - coarser} == {1e-6}


@pytest.mark.parametrize("size", [(448, 448), (896, 896), (96, 160), (77, 101), (20, 300)])
def test_any_size_is_answered_as_by_a_model_made_for_it(size):
    """At 448 and 896 pixels the authors' classifier crashes, and transformers' at any size but its own."""
    model, images = small(), torch.randn(1, 3, *size).double()
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    own = torch.randn(2, 3, 64, 64).double()
    before, found = model(own), model(images)
    assert torch.equal(model(own), before)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())
    other = PVT(model.config.changed(image_size=size)).double().eval()
    resized = PVT.adapted(weights, model.config, other.config, ANTIALIASED)
    other.load_state_dict(resized)
    torch.testing.assert_close(other(images), found)
    for stage, (rows, columns) in enumerate(other.config.grids()):
        name = f"stages.{stage}.embedding.position.embedding"
        table, prefix, side = weights[name], int(stage == 3), max(1, 64 // model.strides[stage])
        grid = F.interpolate(table[prefix:].T.reshape(1, -1, side, side), (rows, columns), mode="bilinear")
        expected = torch.cat([table[:prefix], grid.flatten(2)[0].T])
        torch.testing.assert_close(resized[name], expected)


def test_features_are_grids_without_the_class_token():
    model, images = small(), torch.randn(2, 3, 100, 64).double()
    maps = model.feature_maps(images)
    assert model.strides == (4, 8, 16, 32)
    assert [tuple(x.shape) for x in maps] == [(2, 8, 25, 16), (2, 16, 12, 8), (2, 24, 6, 4), (2, 32, 3, 2)]
    last = model.stages[3]
    tokens = last(maps[2].permute(0, 2, 3, 1))
    torch.testing.assert_close(maps[3].flatten(2).mT, tokens[:, 1:])
    torch.testing.assert_close(model.vectors(images), model.norm(tokens)[:, 0])


def test_a_reduced_last_stage_is_refused():
    with pytest.raises(ConfigError, match="reductions end in 2, but a class token is among the tokens of the last stage"):
        PVTConfig(reductions=(8, 4, 2, 2))

"""PVT v2 is timm's and transformers', at any size of images, and no pass changes it."""

import pytest
import timm
import torch
import transformers

from translated import like
from vitrail.errors import ConfigError
from vitrail.models.configs.pvt_v2 import PVTv2Config
from vitrail.models.registry import model_config
from vitrail.models.vision.pvt_v2 import PVTv2

HEADS = (1, 2, 2, 4)


def timms(**arguments) -> torch.nn.Module:
    small = {"embed_dims": (8, 16, 24, 32), "depths": (1, 2, 1, 1), "num_heads": HEADS, "mlp_ratios": (3, 2, 2.7, 4)}
    return timm.models.pvt_v2.PyramidVisionTransformerV2(**small, **{"num_classes": 7, **arguments})


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    """In double precision, so that nothing but rounding is left of a difference; and no answer is like another."""
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10 * expected.abs().max().item())
    assert (expected[0] - expected[1]).abs().max() > 1e-3 * expected.abs().max()


@pytest.mark.parametrize("linear", [False, True])
def test_logits_are_timms_at_any_size_in_any_order(linear):
    theirs = timms(linear=linear)
    ours = like(theirs, "timm-pvt-v2", heads=HEADS)
    assert ours.config.pooled == linear
    weights = {name: tensor.clone() for name, tensor in ours.state_dict().items()}
    seen = [torch.randn(2, 3, *size).double() for size in ((224, 224), (256, 192), (200, 168), (64, 64), (77, 101))]
    first = ours(seen[0])
    for images in seen:
        close(ours(images), theirs(images))
    assert torch.equal(ours(seen[0]), first)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in ours.state_dict().items())


@pytest.mark.parametrize("linear", [False, True])
def test_logits_are_transformers(linear):
    config = transformers.PvtV2Config(
        hidden_sizes=[8, 16], depths=[1, 2], num_attention_heads=[2, 4], sr_ratios=[4, 1], mlp_ratios=[2, 3],
        patch_sizes=[5, 3], strides=[3, 2], num_encoder_blocks=2, num_labels=4, linear_attention=linear,
    )  # fmt: skip
    theirs = transformers.PvtV2ForImageClassification(config)
    ours = like(theirs, "pvt-v2", heads=(2, 4), strides=(3, 2))
    images = torch.randn(2, 3, 64, 50).double()
    close(ours(images), theirs(images).logits)


def test_features_are_timms_maps_with_their_strides():
    theirs = timms()
    ours = like(theirs, "timm-pvt-v2", heads=HEADS)
    images = torch.randn(2, 3, 100, 64).double()
    found, expected = ours.feature_maps(images), theirs.forward_intermediates(images, intermediates_only=True)
    assert ours.strides == (4, 8, 16, 32) and [tuple(x.shape[2:]) for x in found] == [(25, 16), (13, 8), (7, 4), (4, 2)]
    for ours_map, their_map in zip(found, expected, strict=True):
        close(ours_map, their_map)


@pytest.mark.parametrize("fields", [{}, {"pooled": True}])
@pytest.mark.parametrize("size", [(20, 12), (1, 1), (300, 9)])
def test_images_that_are_smaller_than_a_reduction_are_answered(fields, size):
    model = PVTv2(PVTv2Config(dims=(8, 8, 8, 8), heads=HEADS, depths=(1, 1, 1, 1), num_classes=3, **fields)).eval()
    assert model(torch.randn(2, 3, *size)).isfinite().all()


@pytest.mark.parametrize("name", timm.list_models("pvt_v2_*"))
def test_names_of_timms_are_its_sizes(name):
    config = model_config(name)
    theirs = timm.create_model(name, device="meta")
    told = [(b.attn.num_heads, b.attn.sr.stride[0] if b.attn.sr else 1) for stage in theirs.stages for b in stage.blocks]
    heads, reductions = (
        [number for number, depth in zip(numbers, config.depths, strict=True) for _ in range(depth)]
        for numbers in (config.heads, (1,) * 4 if config.pooled else config.reductions)
    )
    assert told == list(zip(heads, reductions, strict=True))


def test_numbers_for_another_count_of_stages_are_refused():
    with pytest.raises(ConfigError, match="4 stages in depths, 2 in strides"):
        PVTv2Config(strides=(4, 2))
    with pytest.raises(ConfigError, match="a stride of 4 leaves gaps between patches of 3"):
        PVTv2Config.read({"patch_sizes": (3, 3, 3, 3)})
    with pytest.raises(ConfigError, match="4 stages in depths, 3 in reductions"):
        PVTv2Config(reductions=(4, 2, 1))

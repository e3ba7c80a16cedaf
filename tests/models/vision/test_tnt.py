"""TNT is timm's, the current and the legacy one, and takes images of any size in whole patches."""

import pytest
import timm
import torch

from random_weights import randomize
from vitrail.errors import ConfigError
from vitrail.models.configs.tnt import TNTConfig
from vitrail.models.vision.tnt import TNT
from vitrail.parts.positions.interpolation import resize_positions
from vitrail.study.maps.attention import attention_map, relevance_map, rollout_map
from vitrail.study.maps.captures import capture
from vitrail.study.maps.distance import mean_attention_distances
from vitrail.study.maps.embedding import position_similarity
from vitrail.weights.layouts import LAYOUTS
from vitrail.weights.transfer import transfer

TINY = {"image_size": 64, "dim": 24, "word_dim": 8, "depth": 2, "heads": 3, "word_heads": 2, "num_classes": 7}


def tiny(**fields) -> TNT:
    """A model in single precision, every parameter away from where it starts."""
    return randomize(TNT(TNTConfig(**{**TINY, **fields})), std=0.4).float()


def of_timm(ours: TNT, size=(64, 64)) -> torch.nn.Module:
    """Theirs with the weights of ours."""
    c = ours.config
    sizes = {"embed_dim": c.dim, "inner_dim": c.word_dim, "depth": c.depth, "num_heads_outer": c.heads, "legacy": c.legacy}
    theirs = timm.models.tnt.TNT(img_size=size, num_heads_inner=c.word_heads, num_classes=c.num_classes, **sizes).eval()
    state = ours.state_dict()
    grid = (size[0] // 16, size[1] // 16)
    state["position.embedding"] = resize_positions(state["position.embedding"], c.grid, grid, prefix=1)
    theirs.load_state_dict(LAYOUTS["timm-tnt"].write(state, c))
    return theirs


@pytest.mark.parametrize("legacy", [False, True])
@torch.no_grad()
def test_logits_are_timms(legacy):
    """At other sizes than the model's own, too, where timm builds another model with resized positions."""
    ours = tiny(legacy=legacy, image_size=224)
    for size in ((224, 224), (96, 160)):
        images = torch.randn(2, 3, *size)
        expected, found = of_timm(ours, size)(images), ours(images)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * expected.abs().max().item())
        assert (expected[0] - expected[1]).abs().max() > 1e-3 * expected.abs().max()


def test_gradients_are_timms():
    ours, images = tiny().double(), torch.randn(2, 3, 64, 64, dtype=torch.float64)
    theirs = of_timm(ours).double()
    ours(images).square().sum().backward()
    theirs(images).square().sum().backward()
    expected = {name: p.grad for name, p in theirs.named_parameters()}
    for name, gradient in LAYOUTS["timm-tnt"].write({n: p.grad for n, p in ours.named_parameters()}, ours.config).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-6, atol=1e-8)


@torch.no_grad()
def test_passes_over_images_of_any_size_change_nothing():
    model, images = tiny(), torch.randn(2, 3, 64, 64)
    before, first = {name: tensor.clone() for name, tensor in model.state_dict().items()}, model(images)
    assert model(torch.randn(1, 3, 16, 80)).shape == (1, 7) and model.encode(torch.randn(1, 3, 32, 48)).shape == (1, 7, 24)
    assert torch.equal(model(images), first)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    with model.every_token():
        torch.testing.assert_close(model(images), first)


def test_parts_of_a_patch_are_refused_with_a_sentence():
    with pytest.raises(ConfigError, match="image width"):
        tiny()(torch.zeros(1, 3, 64, 60))


@torch.no_grad()
def test_weights_for_images_of_another_size_answer_as_the_model_does_at_that_size():
    source, target = tiny(), tiny(image_size=(32, 96))
    transfer(source, target, keep_head=True)
    images = torch.randn(2, 3, 32, 96)
    torch.testing.assert_close(target(images), source(images))


def test_attention_among_patches_is_what_study_looks_at():
    """Words look at words of their own patch alone, which no map of the image shows."""
    model, images = tiny(), torch.randn(2, 3, 64, 64)
    with (
        torch.no_grad(),
        capture(model, "blocks.*.attention.weights", "blocks.1.output", "blocks.0.inner.attention.weights") as seen,
    ):
        model(images)
    assert seen["blocks.1.attention.weights"].shape == (2, 3, 17, 17)
    assert seen["blocks.0.inner.attention.weights"].shape == (2 * 16, 2, 16, 16)
    torch.testing.assert_close(model.norm(seen["blocks.1.output"])[:, 0], model.vectors(images))
    for of in (attention_map, rollout_map, relevance_map):
        found = of(model, images)
        assert found.shape == (2, 4, 4) and found.isfinite().all() and found.std() > 0
    assert mean_attention_distances(model, images).shape == (2, 3)
    assert position_similarity(model).shape == (4, 4, 4, 4)


@pytest.mark.parametrize(
    ("fields", "told"),
    [({"image_size": 60}, "image height"), ({"word_stride": 5}, "word_stride"), ({"word_heads": 3}, "word_dim")],
)
def test_what_does_not_fit_is_refused(fields, told):
    with pytest.raises(ConfigError, match=told):
        TNTConfig.read({**TINY, **fields})

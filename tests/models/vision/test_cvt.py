"""CvT is transformers', its authors' with the other activation, and takes images of any size."""

import pytest
import torch
import transformers
from transformers.models.cvt.modeling_cvt import CvtIntermediate

from random_weights import randomize
from vitrail.errors import ConfigError
from vitrail.models.configs.cvt import CvTConfig
from vitrail.models.inference import for_inference
from vitrail.models.vision.cvt import CvT
from vitrail.weights.layouts import LAYOUTS

TINY = {"dims": (8, 24, 32), "depths": (1, 2, 3), "heads": (1, 3, 4), "num_classes": 7}


class QuickGELU(torch.nn.Module):
    """The authors' activation."""

    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


def tiny(**fields) -> CvT:
    """A model in single precision, every parameter and statistic away from where it starts."""
    model = randomize(CvT(CvTConfig(**{**TINY, **fields})), std=0.4).float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.sub_(0.5 * name.endswith("bias"))  # lest they say more than the image
    return model


def of_transformers(ours: CvT) -> torch.nn.Module:
    """Theirs with the weights of ours, and with its activation."""
    c = ours.config
    sizes = {"embed_dim": c.dims, "depth": c.depths, "num_heads": c.heads, "num_labels": c.num_classes}
    theirs = transformers.CvtForImageClassification(transformers.CvtConfig(**sizes)).eval()
    theirs.load_state_dict(LAYOUTS["cvt"].write(ours.state_dict(), c))
    if c.activation == "quick-gelu":
        for module in theirs.modules():
            if isinstance(module, CvtIntermediate):
                module.activation = QuickGELU()
    return theirs


@pytest.mark.parametrize("activation", ["gelu", "quick-gelu"])
@torch.no_grad()
def test_logits_are_those_of_transformers_and_with_quick_gelu_the_authors(activation):
    ours = tiny(activation=activation)
    theirs = of_transformers(ours)
    for size in ((224, 224), (96, 136), (57, 33)):
        images = torch.nn.functional.interpolate(torch.randn(2, 3, 5, 4), size=size)  # noise alone is alike everywhere
        expected, found = theirs(images).logits, ours(images)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * expected.abs().max().item())
        assert (expected[0] - expected[1]).abs().max() > 1e-3 * expected.abs().max()


def test_gradients_and_statistics_of_training_are_those_of_transformers():
    """Scores, class token and norms of a batch, too; the last block's queries of patches have no say, there as here."""
    ours = tiny(activation="gelu").double()
    theirs = of_transformers(ours).double().train()
    for module in theirs.modules():
        if type(module).__name__ == "CvtDropPath":
            module.drop_prob = 0.0
    images, ours = torch.randn(3, 3, 64, 48, dtype=torch.float64), ours.train()
    ours(images).square().sum().backward()
    theirs(images).logits.square().sum().backward()
    layout, expected = LAYOUTS["cvt"], {name: p.grad for name, p in theirs.named_parameters()}
    for name, gradient in layout.write({name: p.grad for name, p in ours.named_parameters()}, ours.config).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-6, atol=1e-8)
    for name, tensor in layout.write(ours.state_dict(), ours.config).items():
        torch.testing.assert_close(tensor, theirs.state_dict()[name])


@torch.no_grad()
def test_passes_over_images_of_any_size_change_nothing():
    model, images = tiny(), torch.randn(2, 3, 64, 64)
    before, first = {name: tensor.clone() for name, tensor in model.state_dict().items()}, model(images)
    maps = model.feature_maps(torch.randn(2, 3, 90, 47))
    assert [tuple(found.shape) for found in maps] == [(2, 8, 22, 12), (2, 24, 11, 6), (2, 32, 6, 3)]
    assert model.strides == (4, 8, 16)
    assert model(torch.randn(1, 3, 7, 5)).isfinite().all()
    assert torch.equal(model(images), first)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@torch.no_grad()
def test_the_features_are_those_that_the_class_token_looks_at():
    """The class token is no place of the map, and no convolution sees it."""
    model, images = tiny(), torch.randn(2, 3, 64, 64)
    *_, before = model.feature_maps(images)
    model.stages[-1].class_token.add_(1.0)
    *_, after = model.feature_maps(images)
    assert before.shape == after.shape and not torch.allclose(before, after), "patches look at it"
    for block in model.stages[-1].blocks:
        block.attention.layer.value.weight.zero_()
        block.attention.layer.value.bias.zero_()
    *_, blind = model.feature_maps(images)
    model.stages[-1].class_token.add_(1.0)
    torch.testing.assert_close(model.feature_maps(images)[-1], blind, rtol=0, atol=0)


@torch.no_grad()
def test_a_model_for_inference_answers_alike_with_its_norms_in_the_convolutions():
    model, images = tiny(), torch.randn(2, 3, 64, 64)
    fast = for_inference(model)
    torch.testing.assert_close(fast(images), model(images), rtol=1e-4, atol=1e-4)
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in fast.modules())
    assert any(isinstance(module, torch.nn.BatchNorm2d) for module in model.modules())


@pytest.mark.parametrize(
    ("fields", "told"),
    [({"strides": (4, 2)}, "3 stages in depths, 2 in strides"), ({"heads": (1, 3, 5)}, "dim"), ({"depths": (1, 2)}, "2 stages")],
)
def test_stages_that_do_not_fit_are_refused(fields, told):
    with pytest.raises(ConfigError, match=told):
        CvTConfig.read({**TINY, **fields})

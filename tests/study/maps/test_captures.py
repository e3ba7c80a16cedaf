import pytest
import torch

import vitrail
from vitrail.errors import ConfigError
from vitrail.study.maps.captures import capture, capture_names

TINY = {"image_size": (24, 16), "patch_size": 4, "dim": 16, "depth": 3, "heads": 2, "mlp_dim": 32, "num_classes": 5}
"""24 patches in 6 rows and 4 columns."""
KINDS = [
    {},
    {"position": "relative"},
    {"position": "rotary", "registers": 3},
    {"block": "parallel", "qk_norm": True},
    {"pool": "mean", "position": "sincos-2d"},
    {"pool": "attention"},
    {"mlp": "swiglu", "layer_scale": 0.1, "head_dim": 12},
    {"distillation_token": True},
]


def tiny(**fields):
    return vitrail.create_model("ViT-Ti/4", **{**TINY, **fields}).eval()


def images(count=2):
    return torch.randn(count, 3, 24, 16)


@pytest.mark.parametrize("fields", KINDS, ids=str)
def test_captured_weights_times_values_are_what_the_fused_heads_say(fields):
    model = tiny(**fields)
    with torch.no_grad(), capture(model, "**.attention.*") as seen:
        model(images())
    for place in {name.rpartition(".")[0] for name in seen}:
        said = seen[f"{place}.weights"] @ seen[f"{place}.values"]
        torch.testing.assert_close(said.transpose(1, 2).flatten(2), seen[f"{place}.heads"], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("fields", KINDS, ids=str)
def test_captures_leave_the_answer_as_it_is_and_the_model_too(fields):
    model, batch = tiny(**fields), images()
    before, read = model(batch), model.tokens_read
    with capture(model, "**") as seen:
        during = model(batch)
    torch.testing.assert_close(during, before, atol=1e-6, rtol=1e-5)
    assert set(seen) == set(capture_names(model))
    assert model.tokens_read == read
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_names_have_the_shapes_they_promise():
    model = tiny(registers=1)
    tokens = 24 + 1 + 1
    with capture(model, "**") as seen:
        logits = model(images())
    shapes = {
        "embedding.input": (2, 3, 24, 16),
        "embedding.output": (2, 24, 16),
        "blocks.2.input": (2, tokens, 16),
        "blocks.2.between": (2, tokens, 16),
        "blocks.2.attention.input": (2, tokens, 16),
        "blocks.2.mlp.input": (2, tokens, 16),
        "blocks.2.attention.queries": (2, 2, tokens, 8),
        "blocks.2.attention.weights": (2, 2, tokens, tokens),
        "blocks.2.attention.heads": (2, tokens, 16),
        "blocks.2.attention.output": (2, tokens, 16),
        "blocks.2.mlp.hidden": (2, tokens, 32),
        "blocks.2.mlp.output": (2, tokens, 16),
        "blocks.2.output": (2, tokens, 16),
        "norm.output": (2, tokens, 16),
        "pool.output": (2, 16),
        "head.output": (2, 5),
    }
    assert {name: tuple(seen[name].shape) for name in shapes} == shapes
    assert seen["head.output"] is not None and torch.equal(seen["head.output"], logits)


def test_outputs_are_part_of_the_graph():
    model, batch = tiny(), images()
    with capture(model, "blocks.1.output") as seen:
        logits = model(batch)
    (gradient,) = torch.autograd.grad(logits.sum(), seen["blocks.1.output"])
    assert gradient.abs().sum() > 0


def test_only_the_images_asked_for_are_captured():
    model, batch = tiny(position="relative"), images(4)
    with torch.no_grad(), capture(model, "**.weights", "blocks.0.output") as every:
        model(batch)
    with torch.no_grad(), capture(model, "**.weights", "blocks.0.output", images=[3, 1]) as some:
        model(batch)
    for name, value in every.items():
        torch.testing.assert_close(some[name], value[[3, 1]], atol=1e-6, rtol=1e-5)


def test_with_each_every_intermediate_is_handed_over_in_order_and_not_kept():
    model, given = tiny(), []
    with capture(model, "blocks.*.attention.weights", each=lambda name, value: given.append((name, value.shape))) as seen:
        model(images())
    assert given == [(f"blocks.{layer}.attention.weights", (2, 2, 25, 25)) for layer in range(3)]
    assert not seen


def test_an_unknown_name_is_an_error_with_the_nearest():
    with (
        pytest.raises(ConfigError, match=r"did you mean 'blocks.0.attention.weights'"),
        capture(tiny(), "blocks.0.atention.weights"),
    ):
        pass
    with capture(tiny(), "blocks.0.output") as seen, pytest.raises(ConfigError, match="nothing is captured yet"):
        seen["blocks.0.output"]


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (lambda: tiny(token_merging=2), "merges tokens"),
        (lambda: torch.compile(tiny()), "compiled"),
    ],
)
def test_a_model_that_cannot_show_its_inside_is_refused(model, why):
    with pytest.raises(ConfigError, match=why), capture(model(), "**.weights"):
        pass


def test_nothing_to_capture_and_what_is_no_model_are_refused():
    with pytest.raises(ConfigError, match="nothing to capture"), capture(tiny()):
        pass
    with pytest.raises(ConfigError, match="a Linear contains no Vitrail model"):
        capture_names(torch.nn.Linear(1, 1))

import pytest
import torch
from transformers import ViTConfig as TheirConfig
from transformers import ViTForImageClassification

import vitrail
from vitrail.errors import ConfigError
from vitrail.models.inference import for_inference
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


def test_weights_equal_those_of_transformers_eager_attention():
    widths = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2}
    theirs = ViTForImageClassification(
        TheirConfig(image_size=(24, 16), patch_size=4, num_labels=5, layer_norm_eps=1e-6, attn_implementation="eager", **widths)
    ).eval()
    torch.nn.init.normal_(theirs.vit.embeddings.position_embeddings)
    batch = images()
    model = from_theirs(theirs)
    with torch.no_grad(), capture(model, "blocks.*.attention.weights") as seen:
        model(batch)
        expected = theirs(batch, output_attentions=True).attentions
    for layer, weights in enumerate(expected):
        torch.testing.assert_close(seen[f"blocks.{layer}.attention.weights"], weights, atol=1e-5, rtol=0)


def from_theirs(theirs):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        return vitrail.open_model(folder).model.eval()


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


def test_a_model_for_inference_is_captured_like_the_model():
    model, batch = tiny(), images()
    with torch.no_grad(), capture(model, "**.weights") as ours:
        model(batch)
    prepacked = for_inference(model)
    with torch.no_grad(), capture(prepacked, "**.weights") as fast:
        prepacked(batch)
    for name, value in ours.items():
        torch.testing.assert_close(fast[name], value, atol=1e-5, rtol=1e-5)


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


def test_a_block_adds_what_its_branches_say():
    model = tiny()
    with torch.no_grad(), capture(model, "blocks.1.**") as seen:
        model(images())
    between = seen["blocks.1.input"] + seen["blocks.1.attention.output"]
    torch.testing.assert_close(seen["blocks.1.between"], between)
    torch.testing.assert_close(seen["blocks.1.output"], between + seen["blocks.1.mlp.output"])
    torch.testing.assert_close(seen["blocks.1.mlp.input"], model.blocks[1].mlp.norm(between))


def test_one_star_stays_between_two_dots():
    with torch.no_grad(), capture(model := tiny(), "blocks.*.output") as seen:
        model(images())
    assert list(seen) == ["blocks.0.output", "blocks.1.output", "blocks.2.output"]


def test_weights_hold_no_graph():
    with capture(model := tiny(), "**.weights", "**.values", "blocks.0.output") as seen:
        model(images())
    assert {name for name, value in seen.items() if value.requires_grad} == {"blocks.0.output"}


def test_nothing_to_capture_and_what_is_no_model_are_refused():
    with pytest.raises(ConfigError, match="nothing to capture"), capture(tiny()):
        pass
    with pytest.raises(ConfigError, match="a Linear is no model of this library"):
        capture_names(torch.nn.Linear(1, 1))

"""A model starts from another one's weights: what may differ is made to fit, all else is refused in one go."""

from typing import get_args

import pytest
import torch

from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.resizing import MAY_DIFFER
from vitrail.models.vision.vit import ViT
from vitrail.parts import Interpolation, adapt_channels, resize_factorised, resize_patches, resize_positions, resize_relative
from vitrail.weights.transfer import adapt, transfer


def state(model) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in model.state_dict().items()}


def refused(source, target, *words, keep_head=False):
    before = state(target)
    with pytest.raises(ConfigError) as error:
        transfer(source, target, keep_head=keep_head)
    assert all(word in str(error.value) for word in words), str(error.value)
    assert error.value.exit_code == 2 and error.value.hint
    return all(torch.equal(before[k], v) for k, v in target.state_dict().items())


@pytest.mark.parametrize(
    "fields", [{}, {"position": "rotary"}, {"position": "relative", "pool": "mean"}, {"head": "mlp"}], ids=str
)
def test_the_same_shape_takes_everything_over(fields, build):
    source, target = build(0, **fields), build(1, **fields)
    transfer(source, target, keep_head=True)
    assert all(torch.equal(value, state(source)[name]) for name, value in state(target).items())
    images = torch.randn(2, 1, 16, 16)
    assert torch.equal(source(images), target(images))


def test_the_source_is_left_as_it_was(build):
    source = build(0)
    before = state(source)
    target = build(1, image_size=32)
    transfer(source, target, keep_head=True)
    with torch.no_grad():
        for parameter in target.parameters():
            parameter.zero_()
    assert all(torch.equal(before[name], value) for name, value in source.state_dict().items())


@pytest.mark.parametrize("classes", [3, 7])
@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_other_classes_start_from_a_head_of_zero(classes, head, build):
    source, target = build(0, head=head), build(1, head=head, num_classes=classes)
    transfer(source, target, keep_head=False)
    assert target.head.linear.weight.shape == (classes, 16)
    assert not target.head.linear.weight.any() and not target.head.linear.bias.any()
    assert not target(torch.randn(2, 1, 16, 16)).any()
    body = {k: v for k, v in state(source).items() if not k.startswith("head.")}
    assert all(torch.equal(value, state(target)[name]) for name, value in body.items())


@pytest.mark.parametrize("size", [(32, 32), (24, 40), (8, 16), (8, 8)])
@pytest.mark.parametrize("fields", [{}, {"pool": "mean"}, {"registers": 2}, {"pool": "mean", "registers": 2}], ids=str)
def test_positions_are_resized_to_the_new_grid(size, fields, build):
    source, target = build(0, image_size=(16, 24), **fields), build(1, image_size=size, **fields)
    transfer(source, target, keep_head=True)
    prefix = 0 if fields.get("pool") else 1
    expected = resize_positions(source.position.embedding, (2, 3), (size[0] // 8, size[1] // 8), prefix=prefix)
    assert torch.equal(target.position.embedding, expected)
    assert torch.equal(target.position.embedding[:prefix], source.position.embedding[:prefix])
    assert target(torch.randn(1, 1, *size)).shape == (1, 3)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"dim": 32}, ["dim 16 → 32", "norm.bias", "(16,)", "(32,)"]),
        ({"dim": 32, "mlp_dim": 64, "channels": 3}, ["dim 16 → 32", "mlp_dim 32 → 64", "more"]),
        ({"depth": 3}, ["blocks.2.", "missing"]),
        ({"depth": 1}, ["blocks.1.", "missing"]),
        ({"mlp_dim": 64}, ["mlp", "(32,", "(64,"]),
        ({"pool": "mean"}, ["class_token"]),
        ({"embedding": "stem"}, ["embedding conv → stem"]),
        ({"position": "sincos-1d"}, ["position.embedding"]),
        ({"position": "learned-2d"}, ["position.embedding", "position.rows"]),
        ({"mlp": "swiglu"}, ["mlp"]),
        ({"layer_scale": 0.1}, ["missing"]),
    ],
    ids=str,
)
def test_another_shape_is_refused_with_the_differences_and_changes_nothing(fields, words, build):
    assert refused(build(0), build(1, **fields), *words, keep_head=True)


@pytest.mark.parametrize("size", [(32, 32), (24, 40), (8, 16)])
def test_factorised_positions_are_resized_along_each_side(size, build):
    source, target = build(0, position="learned-2d", image_size=(16, 24)), build(1, position="learned-2d", image_size=size)
    transfer(source, target, keep_head=True)
    grid = (size[0] // 8, size[1] // 8)
    rows = resize_factorised(source.position.rows, grid[0])
    columns = resize_factorised(source.position.columns, grid[1])
    assert torch.equal(target.position.rows, rows) and torch.equal(target.position.columns, columns)
    assert torch.equal(target.position.prefix, source.position.prefix)


@pytest.mark.parametrize("fields", [{}, {"pool": "mean"}, {"pool": "mean", "registers": 2}], ids=str)
def test_relative_biases_are_resized_by_their_offsets(fields, build):
    source = build(0, position="relative", image_size=(16, 24), **fields)
    target = build(1, position="relative", image_size=(32, 24), **fields)
    transfer(source, target, keep_head=True)
    expected = resize_relative(source.relative.table, (2, 3), (4, 3), prefix_entries=3 if source.config.prefix else 0)
    assert torch.equal(target.relative.table, expected)


@pytest.mark.parametrize(("position", "name"), [("learned-1d", "embedding"), ("learned-2d", "rows"), ("relative", "table")])
def test_positions_are_resized_as_the_interpolation_says(position, name, build):
    source, target = build(0, position=position, image_size=40), build(1, position=position, image_size=24)
    results = []
    for interpolation in (Interpolation(), Interpolation(antialias=False), Interpolation(align_corners=True)):
        transfer(source, target, keep_head=True, interpolation=interpolation)
        results.append(getattr(target.relative if position == "relative" else target.position, name).clone())
    assert not any(torch.allclose(results[i], results[j]) for i, j in ((0, 1), (1, 2), (0, 2)))


def test_other_patches_and_channels_take_a_resized_embedding(build):
    source, target = build(0), build(1, patch_size=16, image_size=32, channels=3)
    transfer(source, target, keep_head=True)
    expected = resize_patches(adapt_channels(source.embedding.projection.weight, 3), (16, 16))
    assert torch.equal(target.embedding.projection.weight, expected)
    assert torch.equal(target.position.embedding, source.position.embedding)


@pytest.mark.parametrize("embedding", ["conv", "linear"])
def test_an_enlarged_image_in_enlarged_patches_gives_the_same_answer(embedding, build):
    source, target = build(0, embedding=embedding, image_size=(16, 24)), build(1, patch_size=(16, 12), image_size=(32, 36))
    transfer(source, target, keep_head=True)
    images = torch.randn(2, 1, 16, 24)
    patches = images.reshape(2, 2, 8, 3, 8).transpose(2, 3).reshape(-1, 1, 8, 8)
    patches = torch.nn.functional.interpolate(patches, size=(16, 12), mode="bicubic", antialias=True)
    enlarged = patches.reshape(2, 2, 3, 16, 12).transpose(2, 3).reshape(2, 1, 32, 36)
    torch.testing.assert_close(target(enlarged), source(images), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("old", "new"), [(3, 1), (1, 3), (2, 6)])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"embedding": "linear"},
        {"embedding": "stem"},
        {"embedding": "stem", "patch_size": 7, "image_size": 14},
        {"embedding": "pooled-stem"},
        {"embedding": "pooled-stem", "patch_size": 7, "image_size": 14},
    ],
    ids=str,
)
def test_equal_channels_give_the_same_answer_whatever_their_number(fields, old, new, build):
    source, target = build(0, channels=old, **fields), build(1, channels=new, **fields)
    transfer(source, target, keep_head=True)
    grey = torch.randn(2, 1, *source.config.image_size)
    answers = [model(grey.expand(-1, model.config.channels, -1, -1)) for model in (source, target)]
    torch.testing.assert_close(*answers, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("embedding", get_args(ViTConfig.model_fields["embedding"].annotation))
def test_with_every_embedding_a_model_starts_from_one_like_it(embedding, build):
    source, target = build(0, embedding=embedding, num_classes=3), build(1, embedding=embedding, num_classes=5)
    transfer(source, target, keep_head=False)
    images = torch.randn(2, 1, *source.config.image_size)
    torch.testing.assert_close(target.eval().encode(images), source.eval().encode(images))


def test_of_a_resnet_the_first_convolution_alone_is_adapted_to_other_channels(build):
    hybrid = {"embedding": "resnet", "resnet_width": 4, "resnet_depths": (1,)}
    source, target = build(0, **hybrid), build(1, channels=3, **hybrid)
    transfer(source, target, keep_head=True)
    first = "embedding.resnet.root.0.weight"
    assert torch.equal(state(target)[first], adapt_channels(state(source)[first], 3))
    assert all(torch.equal(value, state(source)[name]) for name, value in state(target).items() if name != first)


@pytest.mark.parametrize(
    "fields",
    [
        {"embedding": "stem"},
        {"embedding": "pooled-stem"},
        {"embedding": "resnet", "resnet_width": 4, "resnet_depths": (1,), "image_size": 32, "patch_size": 16},
        {"embedding_norm": "patches"},
    ],
    ids=str,
)
def test_patches_of_another_size_are_refused_where_they_are_not_flat(fields, build):
    source = build(0, **fields)
    side = source.config.patch_size[0] // 2
    assert refused(source, build(1, **{**fields, "patch_size": side}), f"patch_size ({2 * side}, {2 * side}) → ({side}, {side})")


def test_filters_that_were_fitted_to_images_do_not_fit_other_channels(build):
    fields = {
        "embedding": "resnet",
        "resnet_width": 4,
        "resnet_depths": (1,),
        "resnet_root": "whitened",
        "resnet_block": "pooled",
    }
    assert refused(build(0, **fields), build(1, channels=3, **fields), "channels 1 → 3")


OTHER = {
    "dim": 32, "depth": 3, "heads": 4, "head_dim": 4, "mlp_dim": 64, "embedding": "stem", "resnet_depths": (1,),
    "resnet_width": 4, "resnet_root": "cifar", "resnet_block": "pooled",
    "position": "rotary", "embedding_norm": "tokens", "pool": "mean",
    "class_token": True, "final_norm": "pooled", "head": "mlp", "mlp": "gelu-tanh", "block": "parallel", "qkv_bias": False,
    "qk_norm": True, "layer_scale": 0.1, "norm_eps": 1e-5, "rotary_base": 10.0, "rotary_coordinates": "unit", "rotary_grid": 3,
    "rotary_offset": 1.0, "pool_heads": 1, "pool_mlp_dim": 7, "norm": "post", "norm_kind": "rms", "attention_norm": True,
    "mlp_norm": True, "linear_bias": False, "crop_remainder": True,
}  # fmt: skip
"""A value that `build` does not give, of every field that weights cannot make up for."""


def test_every_field_either_may_differ_or_is_compared():
    assert OTHER.keys() | MAY_DIFFER == ViTConfig.model_fields.keys() and not OTHER.keys() & MAY_DIFFER


@pytest.mark.parametrize("name", OTHER)
def test_a_field_that_changes_what_is_computed_is_named(name, build):
    beside = {
        "class": {"pool": "mean"},
        "resnet": {"embedding": "resnet"},
        "rotary": {"position": "rotary"},
        "pool_": {"pool": "attention"},
    }
    fields = next((fields for start, fields in beside.items() if name.startswith(start)), {})
    assert refused(build(0, **fields), build(1, **{**fields, name: OTHER[name]}), f"{name} ", " → ", keep_head=True)


def test_what_only_training_needs_may_differ(build):
    other = {"dropout": 0.1, "attention_dropout": 0.1, "patch_dropout": 0.5, "stochastic_depth": 0.2, "head_dropout": 0.1}
    transfer(build(0, layer_scale=0.1), build(1, layer_scale=1e-5, **other), keep_head=True)


@pytest.mark.parametrize("position", ["learned-1d", "learned-2d", "sincos-2d", "relative"])
@pytest.mark.parametrize("keep_head", [True, False])
def test_a_new_distillation_token_starts_as_the_class_token_with_a_head_of_zero(keep_head, position, build):
    source, target = build(0, position=position), build(1, position=position, distillation_token=True)
    transfer(source, target, keep_head=keep_head)
    images = torch.randn(2, 1, 16, 16)
    first, second = target.embed(images)[0][:, :2].unbind(1)
    assert torch.equal(target.distillation_token, source.class_token)
    assert torch.equal(first, second)
    assert not target.head_distillation.linear.weight.any() and not target.head_distillation.linear.bias.any()
    assert target.head.linear.weight.any() == keep_head
    expected = source.embed(images)[0]
    torch.testing.assert_close(target.embed(images)[0][:, [0, *range(2, 6)]], expected)


@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize("position", ["learned-1d", "learned-2d", "sincos-2d", "relative"])
def test_with_new_heads_a_distillation_token_is_left_out_with_its_position(position, rows, build):
    rows = rows or position != "learned-1d"
    source = build(0, position=position, distillation_token=True, class_position=rows)
    target = build(1, position=position, class_position=rows)
    transfer(source, target, keep_head=False)
    images = torch.randn(2, 1, 16, 16)
    tokens, others = source.embed(images)[0], target.embed(images)[0]
    torch.testing.assert_close(others, torch.cat([tokens[:, :1], tokens[:, 2:]], dim=1))


@pytest.mark.parametrize(
    "fields",
    [{"head": "linear"}, {"head": "mlp"}, {"head": "lecture"}, {"head": "projection"}, {"distillation_token": True}],
    ids=str,
)
def test_what_adapt_gives_is_a_whole_model_whose_new_head_is_at_zero_and_learns(fields, build):
    source = build(0)
    target = ViT(source.config.changed(num_classes=5, registers=2, **fields))
    target.load_state_dict(adapt(source.state_dict(), source.config, target.config, keep_head=False))
    logits = target(torch.randn(2, 1, 16, 16))
    assert logits.shape == (2, 5) and not logits.any() and target.registers.any()
    optimizer = torch.optim.SGD(target.parameters(), lr=1.0)
    for _ in range(3):
        torch.nn.functional.cross_entropy(target(torch.randn(2, 1, 16, 16)), torch.tensor([0, 1])).backward()
        optimizer.step()
    assert all(parameter.grad.any() for parameter in target.parameters() if parameter.grad is not None)
    assert target(torch.randn(1, 1, 16, 16)).std() > 0


def test_a_head_may_be_taken_off(build):
    source = build(0)
    target = ViT(source.config.changed(num_classes=0)).eval()
    target.load_state_dict(adapt(source.state_dict(), source.config, target.config, keep_head=False))
    images = torch.randn(2, 1, 16, 16)
    torch.testing.assert_close(target(images), source.pool(source.encode(images)))


@pytest.mark.parametrize("name", ["position.embedding", "embedding.projection.weight", "head.linear.bias"])
@pytest.mark.parametrize("change", [{"image_size": 32}, {"channels": 3}, {"patch_size": 4}], ids=str)
def test_weights_that_are_none_of_their_configuration_are_refused_before_anything_is_resized(change, name, build):
    source = build(0)
    tensors = source.state_dict()
    for damaged in (tensors | {name: torch.zeros(1)}, {k: v for k, v in tensors.items() if k != name}):
        with pytest.raises(ModelFileError, match=name):
            adapt(damaged, source.config, source.config.changed(**change), keep_head=True)


def test_what_needs_no_change_is_not_copied(build):
    source = build(0)
    before = source.state_dict()
    after = adapt(before, source.config, source.config.changed(image_size=32), keep_head=True)
    shared = [name for name in before if before[name].data_ptr() == after[name].data_ptr()]
    assert set(before) - set(shared) == {"position.embedding"}


def test_a_model_that_merges_tokens_takes_another_head(build):
    source = build(0, token_merging=(2, 0), depth=2)
    target = source.config.changed(num_classes=7)
    found = adapt(state(source), source.config, target, keep_head=False)
    assert found["head.linear.weight"].shape[0] == 7


def test_patches_are_not_counted_from_another_number_where_positions_are_computed(build):
    one, two = (build(0, position="sincos-1d", distillation_token=more) for more in (False, True))
    assert refused(one, two, "distillation_token")

"""Fine-tuning starts from another model's weights; only size and classes may differ."""

import pytest
import torch

from vitrail.errors import ConfigError
from vitrail.parts.patches import adapt_channels, resize_patches
from vitrail.parts.positions import resize_positions
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


def test_the_last_layer_alone_is_zero(build):
    target = build(1, head="mlp", num_classes=7)
    transfer(build(0, head="mlp"), target, keep_head=False)
    assert target.head.hidden.weight.any()
    target.requires_grad_()(torch.randn(2, 1, 16, 16)).sum().backward()
    assert target.head.linear.weight.grad.any()


def test_a_head_may_be_of_another_kind_when_it_is_not_kept(build):
    transfer(build(0, head="mlp"), build(1, head="linear"), keep_head=False)


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


@pytest.mark.parametrize("position", ["none", "sincos-1d", "sincos-2d", "rotary"])
def test_positions_without_weights_fit_any_size(position, build):
    source, target = build(0, position=position), build(1, position=position, image_size=(24, 40))
    transfer(source, target, keep_head=True)
    assert torch.equal(target.norm.weight, source.norm.weight)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"dim": 32}, ["dim 16 → 32", "norm.bias", "(16,)", "(32,)"]),
        ({"dim": 32, "mlp_dim": 64, "channels": 3}, ["blocks.0.", "…"]),
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


@pytest.mark.parametrize("position", ["none", "learned-2d", "sincos-1d", "relative", "rotary"])
def test_a_source_without_learned_positions_does_not_fit_a_target_that_has_them(position, build):
    refused(build(0, position=position), build(1), "position")


@pytest.mark.parametrize("size", [(32, 32), (24, 40), (8, 16)])
def test_factorised_positions_are_resized_along_each_side(size, build):
    source, target = build(0, position="learned-2d", image_size=(16, 24)), build(1, position="learned-2d", image_size=size)
    transfer(source, target, keep_head=True)
    grid = (size[0] // 8, size[1] // 8)
    rows = resize_positions(source.position.rows, (2, 1), (grid[0], 1), prefix=0)
    columns = resize_positions(source.position.columns, (1, 3), (1, grid[1]), prefix=0)
    assert torch.equal(target.position.rows, rows) and torch.equal(target.position.columns, columns)
    assert torch.equal(target.position.prefix, source.position.prefix)


@pytest.mark.parametrize("fields", [{}, {"pool": "mean"}], ids=str)
def test_relative_biases_are_resized_by_their_offsets_and_those_of_tokens_stay(fields, build):
    source = build(0, position="relative", image_size=(16, 24), **fields)
    target = build(1, position="relative", image_size=(32, 24), **fields)
    transfer(source, target, keep_head=True)
    old, new = source.relative.table, target.relative.table
    assert torch.equal(new[:35], resize_positions(old[:15], (3, 5), (7, 5), prefix=0)) and torch.equal(new[35:], old[15:])
    with torch.no_grad():
        source.relative.table[:15] = torch.tensor([1.0, -2.0])  # a bias that is the same everywhere
    transfer(source, target, keep_head=True)
    torch.testing.assert_close(target.relative.table[:35], torch.tensor([[1.0, -2.0]]).expand(35, -1))


def test_other_patches_and_channels_take_a_resized_embedding(build):
    source, target = build(0), build(1, patch_size=16, image_size=32, channels=3)
    transfer(source, target, keep_head=True)
    expected = resize_patches(adapt_channels(source.embedding.projection.weight, 3), (16, 16))
    assert torch.equal(target.embedding.projection.weight, expected)
    assert torch.equal(target.position.embedding, source.position.embedding)


def test_what_only_training_needs_may_differ(build):
    transfer(build(0), build(1, dropout=0.1, patch_dropout=0.5, stochastic_depth=0.2, head_dropout=0.1), keep_head=True)


def test_a_new_distillation_token_starts_as_the_class_token_with_a_head_of_zero(build):
    source, target = build(0), build(1, distillation_token=True, num_classes=5)
    transfer(source, target, keep_head=False)
    assert torch.equal(target.distillation_token, source.class_token)
    assert torch.equal(target.position.embedding[1], source.position.embedding[0])
    assert torch.equal(target.position.embedding[2:], source.position.embedding[1:])
    assert not target.head_distillation.linear.weight.any() and not target.head_distillation.linear.bias.any()


def test_new_registers_keep_their_own_start(build):
    source, target = build(0), build(1, registers=2)
    before = target.registers.clone()
    transfer(source, target, keep_head=True)
    assert torch.equal(target.registers, before) and torch.equal(target.class_token, source.class_token)


def test_what_needs_no_change_is_not_copied(build):
    source = build(0)
    before = source.state_dict()
    after = adapt(before, source.config, source.config.changed(image_size=32), keep_head=True)
    shared = [name for name in before if before[name].data_ptr() == after[name].data_ptr()]
    assert set(before) - set(shared) == {"position.embedding"}


@pytest.mark.parametrize("fields", [{"heads": 4}, {"position": "rotary"}], ids=str)
def test_differences_that_no_shape_shows_are_refused_too(fields, build):
    refused(build(0, position="sincos-2d"), build(1, **{"position": "sincos-2d", **fields}), keep_head=True)


def test_a_kept_head_must_have_the_same_classes(build):
    assert refused(build(0), build(1, num_classes=4), "head.linear.weight", "(3, 16)", "(4, 16)", keep_head=True)


def test_a_refused_start_leaves_the_target_alone(build):
    assert refused(build(0), build(1, dim=32, num_classes=5), "dim 16 → 32")

"""Patches: one projection in two spellings, the stem, and cutting images up and putting them together."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from vitrail.errors import ConfigError
from vitrail.parts import ConvStem, PatchEmbedding, PooledStem, grid_size, patchify, unpatchify

few = settings(max_examples=20, deadline=None)
sides = st.integers(1, 4)
shapes = st.fixed_dictionaries({"channels": sides, "patch": st.tuples(sides, sides), "grid": st.tuples(sides, sides)})


def images_of(shape: dict, batch: int = 2) -> Tensor:
    (ph, pw), (rows, columns) = shape["patch"], shape["grid"]
    return torch.randn(batch, shape["channels"], rows * ph, columns * pw, dtype=torch.float64)


@given(shapes)
@few
def test_convolution_and_flattening_give_the_same_tokens(shape):
    convolved = PatchEmbedding(shape["channels"], 5, shape["patch"], method="conv").double()
    flattened = PatchEmbedding(shape["channels"], 5, shape["patch"], method="linear").double()
    flattened.load_state_dict(convolved.state_dict())
    images = images_of(shape)
    tokens = convolved(images)
    assert tokens.shape == (2, shape["grid"][0] * shape["grid"][1], 5)
    torch.testing.assert_close(flattened(images), tokens)


@given(shapes)
@few
def test_patchify_equals_unfold(shape):
    images = images_of(shape)
    expected = F.unfold(images, kernel_size=shape["patch"], stride=shape["patch"]).transpose(1, 2)
    assert torch.equal(patchify(images, shape["patch"]), expected)


@given(shapes)
@few
def test_unpatchify_undoes_patchify(shape):
    images = images_of(shape)
    patches = patchify(images, shape["patch"])
    assert torch.equal(unpatchify(patches, shape["patch"], shape["grid"]), images)
    assert torch.equal(patchify(unpatchify(patches, shape["patch"], shape["grid"]), shape["patch"]), patches)


@pytest.mark.parametrize(("image", "patch", "named"), [((9, 8), (4, 4), "height 9"), ((8, 10), (4, 4), "width 10")])
def test_an_image_that_the_patch_does_not_divide_is_refused(image, patch, named):
    with pytest.raises(ConfigError, match=f"image {named} is not divisible by patch .* 4"):
        grid_size(image, patch)
    with pytest.raises(ConfigError, match=named):
        patchify(torch.zeros(1, 3, *image), patch)


@pytest.mark.parametrize(
    ("patch", "image", "convolutions"),
    [
        ((4, 4), (16, 16), 2),
        ((8, 8), (16, 24), 3),
        ((14, 14), (28, 28), 1),
        ((16, 16), (32, 32), 4),
        ((4, 8), (8, 32), 2),
        ((3, 5), (9, 10), 0),
    ],
)
def test_the_stem_gives_one_token_per_patch(patch, image, convolutions):
    stem = ConvStem(3, 32, patch)
    rows, columns = grid_size(image, patch)
    assert stem(torch.randn(2, 3, *image)).shape == (2, rows * columns, 32)
    assert sum(isinstance(layer, nn.Conv2d) and layer.stride == (2, 2) for layer in stem.layers) == convolutions


def test_the_stem_equals_its_layers_written_out():
    stem, x = ConvStem(2, 16, (4, 4)).double(), torch.randn(2, 2, 8, 12, dtype=torch.float64)
    expected = x
    for conv, norm in ((stem.layers[0], stem.layers[1]), (stem.layers[3], stem.layers[4])):
        expected = F.conv2d(expected, conv.weight, stride=2, padding=1)
        mean = expected.mean(dim=(1, 2, 3), keepdim=True)
        variance = expected.var(dim=(1, 2, 3), keepdim=True, unbiased=False)
        expected = ((expected - mean) / (variance + norm.eps).sqrt()).relu()
    expected = F.conv2d(expected, stem.projection.weight, stem.projection.bias)
    torch.testing.assert_close(stem(x), expected.flatten(2).transpose(1, 2))


def test_the_pooled_stem_equals_its_layers_written_out():
    stem, x = PooledStem(2, 16, (2, 2)).double(), torch.randn(2, 2, 8, 12, dtype=torch.float64)

    def convolved(x: Tensor, layers: nn.Sequential) -> Tensor:
        x = F.conv2d(x, layers[0].weight, padding=1)
        mean = x.mean(dim=(0, 2, 3), keepdim=True)
        variance = x.var(dim=(0, 2, 3), keepdim=True, unbiased=False)
        return ((x - mean) / (variance + layers[1].eps).sqrt()).relu()

    z = convolved(x, stem.first)
    z = z.unflatten(3, (6, 2)).unflatten(2, (4, 2)).amax(dim=(3, 5))
    z = convolved(z, stem.widen[0])
    z = z + convolved(z, stem.refine[0])
    expected = F.conv2d(z, stem.projection.weight, stem.projection.bias)
    torch.testing.assert_close(stem(x), expected.flatten(2).transpose(1, 2))


@pytest.mark.parametrize(
    "embedding", [PatchEmbedding(3, 16, (4, 4)), PatchEmbedding(3, 16, (4, 4), method="linear"), ConvStem(3, 16, (4, 4))],
    ids=["conv", "linear", "stem"],
)  # fmt: skip
def test_tokens_of_an_image_do_not_depend_on_its_batch(embedding):
    images = torch.randn(5, 3, 8, 8)
    images[1:] *= 100
    torch.testing.assert_close(embedding.train()(images)[:1], embedding(images[:1]))


@pytest.mark.parametrize("method", ["conv", "linear"])
def test_a_norm_of_projected_patches_is_on_every_token(method):
    normed = PatchEmbedding(3, 8, (2, 3), method=method, norm="projected", norm_kind="rms", norm_eps=1e-3).double()
    plain = PatchEmbedding(3, 8, (2, 3)).double()
    nn.init.normal_(normed.token_norm.weight)
    plain.load_state_dict({name: tensor for name, tensor in normed.state_dict().items() if "norm" not in name})
    images = torch.randn(2, 3, 4, 6, dtype=torch.float64)
    tokens = plain(images)
    expected = tokens / (tokens.square().mean(-1, keepdim=True) + 1e-3).sqrt() * normed.token_norm.weight
    torch.testing.assert_close(normed(images), expected)

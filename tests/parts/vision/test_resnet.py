"""Residual networks against NumPy, transformers' ResNet and BiT, and the counts of the papers."""

import math
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import BitBackbone, BitConfig, ResNetConfig, ResNetModel

import random_weights
from vitrail.errors import ConfigError
from vitrail.parts import HybridEmbedding, ResNetFeatures, StandardizedConv2d

randomize = partial(random_weights.randomize, std=0.3)


def by_hand(images: np.ndarray, weight: np.ndarray, stride: int) -> np.ndarray:
    """A convolution with standardised filters and TensorFlow's padding, window by window."""
    filters = weight.reshape(len(weight), -1)
    filters = (filters - filters.mean(axis=1, keepdims=True)) / np.sqrt(filters.var(axis=1, keepdims=True) + 1e-8)
    kernel, (height, width) = weight.shape[-1], images.shape[-2:]
    rows, columns = math.ceil(height / stride), math.ceil(width / stride)
    down, right = max(0, (rows - 1) * stride + kernel - height), max(0, (columns - 1) * stride + kernel - width)
    padded = np.pad(images, ((0, 0), (0, 0), (down // 2, down - down // 2), (right // 2, right - right // 2)))
    result = np.zeros((len(images), len(weight), rows, columns))
    for i in range(rows):
        for j in range(columns):
            window = padded[:, :, i * stride : i * stride + kernel, j * stride : j * stride + kernel]
            result[:, :, i, j] = window.reshape(len(images), -1) @ filters.T
    return result


@pytest.mark.parametrize(
    ("kernel", "stride", "size"), [(1, 1, (5, 4)), (3, 1, (6, 5)), (3, 2, (6, 7)), (7, 2, (8, 9)), (1, 2, (5, 6))]
)
def test_a_standardised_convolution_is_the_formula(kernel, stride, size):
    convolution = StandardizedConv2d(3, 5, kernel, stride).double()
    images = torch.randn(2, 3, *size, dtype=torch.double)
    expected = by_hand(images.numpy(), convolution.weight.detach().numpy(), stride)
    np.testing.assert_allclose(convolution(images).detach().numpy(), expected, atol=1e-12)


def take(ours: ResNetFeatures, theirs: nn.Module, *, root: tuple[str, str], stages: str, layers: list[str]) -> None:
    """Copy every tensor of their network into the one of ours at the same place, leaving none."""
    tensors, result = theirs.state_dict(), {}

    def move(name: str, prefix: str) -> None:
        found = [key for key in tensors if key.startswith(f"{prefix}.")]
        assert found, prefix
        for key in found:
            result[f"{name}.{key.removeprefix(f'{prefix}.')}"] = tensors.pop(key)

    move("root.0", root[0]), move("root.1", root[1])
    for i, stage in enumerate(ours.stages):
        for j, block in enumerate(stage):
            names = ["reduce.0", "reduce.1", "spread.0", "spread.1", "expand.0", "expand.1"]
            names += ["shortcut.0", "shortcut.1"] if isinstance(block.shortcut, nn.Sequential) else []
            for name, theirs_name in zip(names, layers, strict=False):
                move(f"stages.{i}.{j}.{name}", f"{stages.format(i)}.layers.{j}.{theirs_name}")
    ours.load_state_dict(result)
    assert not [key for key in tensors if not key.startswith(("bit.norm", "hidden_states_norms"))]


def feature_map(ours: ResNetFeatures, images: Tensor) -> Tensor:
    with torch.no_grad():
        return ours(images)


def test_bit_gives_the_features_of_transformers():
    size = (65, 47)
    config = BitConfig(
        embedding_size=32, hidden_sizes=[128, 256, 512], depths=[2, 1, 2], layer_type="bottleneck", global_padding="SAME",
        embedding_dynamic_padding=True, num_groups=32, out_features=["stage3"],
    )  # fmt: skip
    theirs = randomize(BitBackbone(config))
    for module in theirs.modules():
        if isinstance(module, nn.GroupNorm):
            module.eps = 1e-6
    ours = ResNetFeatures(3, (2, 1, 2), width=32).double().eval()
    take(
        ours, theirs, root=("bit.embedder.convolution", "bit.embedder.norm"), stages="bit.encoder.stages.{}",
        layers=["conv1", "norm1", "conv2", "norm2", "conv3", "norm3", "downsample.conv", "downsample.norm"],
    )  # fmt: skip
    images = torch.randn(2, 3, *size, dtype=torch.double)
    with torch.no_grad():
        expected = theirs(images).feature_maps[0]
    assert feature_map(ours, images).shape == (2, ours.channels, math.ceil(size[0] / 16), math.ceil(size[1] / 16))
    torch.testing.assert_close(feature_map(ours, images), expected, atol=1e-3, rtol=1e-3)  # their epsilon is another


def test_resnet_gives_the_features_of_transformers():
    size = (65, 47)
    config = ResNetConfig(embedding_size=16, hidden_sizes=[64, 128, 256], depths=[1, 2, 1], layer_type="bottleneck")
    theirs = randomize(ResNetModel(config))
    ours = ResNetFeatures(3, (1, 2, 1), width=16, kind="resnet").double().eval()
    take(
        ours, theirs, root=("embedder.embedder.convolution", "embedder.embedder.normalization"), stages="encoder.stages.{}",
        layers=[
            *(f"layer.{i}.{part}" for i in range(3) for part in ("convolution", "normalization")),
            "shortcut.convolution", "shortcut.normalization",
        ],
    )  # fmt: skip
    images = torch.randn(2, 3, *size, dtype=torch.double)
    with torch.no_grad():
        torch.testing.assert_close(feature_map(ours, images), theirs(images).last_hidden_state, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(
    ("root", "depths", "stride"), [("imagenet", (), 4), ("imagenet", (1, 1), 8), ("cifar", (1, 1, 1), 4), ("cifar", (), 1)]
)
def test_the_stride_is_that_of_the_feature_map(root, depths, stride):
    model = ResNetFeatures(1, depths, width=8, root=root)
    assert model.stride == stride
    assert model(torch.zeros(1, 1, 32, 64)).shape == (1, model.channels, 32 // stride, 64 // stride)


@pytest.mark.parametrize("size", [(32, 32), (9, 22)])
def test_without_padding_whole_windows_alone_are_looked_at(size):
    """Written out: nothing is added around the image, and what remains beyond the last window of a maximum is left out."""
    model = randomize(ResNetFeatures(3, (1, 1), width=8, root="whitened-valid", kind="resnet", block="pooled")).eval()
    tensors, images = model.state_dict(), torch.randn(2, 3, *size, dtype=torch.double)

    def convolution(name: str, number: int, x: Tensor, *, halve: bool = False) -> Tensor:
        x = F.conv2d(x, tensors[f"{name}.{number}.weight"], padding=1)
        if halve:
            x = x.unfold(2, 2, 2).unfold(3, 2, 2).amax((4, 5))
        norm = {
            leaf: tensors[f"{name}.{number + 1 + halve}.{leaf}"] for leaf in ("running_mean", "running_var", "weight", "bias")
        }
        return F.relu(F.batch_norm(x, **norm))

    x = convolution("root", 2, F.gelu(F.conv2d(images, tensors["root.0.weight"])), halve=True)
    x = x + convolution("stages.0.0.refine", 0, x)
    x = convolution("stages.1.0.widen", 0, x, halve=True)
    x = x + convolution("stages.1.0.refine", 0, x)
    assert x.shape == (2, 16, *((side - 1) // 4 for side in size))
    torch.testing.assert_close(model(images), x)


def test_hybrid_tokens_are_the_projected_features_row_by_row():
    embedding = HybridEmbedding(ResNetFeatures(3, (1,), width=8, root="cifar"), 12, (2, 4)).double()
    images = torch.randn(2, 3, 8, 8, dtype=torch.double)
    features, projection = embedding.resnet(images), embedding.projection
    patch = features[:, :, 2:4, 4:8].flatten(1)  # row 1, column 1 of a 4×2 grid
    expected = patch @ projection.weight.flatten(1).T + projection.bias
    tokens = embedding(images)
    assert tokens.shape == (2, 8, 12)
    torch.testing.assert_close(tokens[:, 3], expected)


def test_a_patch_that_the_stride_does_not_divide_is_refused():
    with pytest.raises(ConfigError, match="patch height 6 is not divisible by stride of the ResNet 4"):
        HybridEmbedding(ResNetFeatures(3, ()), 12, (6, 8))

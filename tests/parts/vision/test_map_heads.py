"""Decoders of feature maps: transformers' UPerNet and SegFormer with the same weights, and by hand."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import SegformerConfig, UperNetConfig
from transformers.models.segformer.modeling_segformer import SegformerDecodeHead
from transformers.models.upernet.modeling_upernet import UperNetFCNHead, UperNetHead

from vitrail.parts import LinearDecoder, MLPDecoder, UPerNetDecoder, conv_norm
from vitrail.parts.vision.map_heads import convolve_enlarged

WIDTHS = (6, 8, 10, 12)
CONV = {"convolution": "conv", "norm": "batch_norm"}
UPERNET = {
    "pools.{}": "psp_modules.{}.1", "bottleneck": "bottleneck", "laterals.{}": "lateral_convs.{}", "outputs.{}": "fpn_convs.{}",
    "fuse": "fpn_bottleneck",
}  # fmt: skip
"""Names of parts, ours and transformers'."""


def feature_maps(rows: int = 23, columns: int = 18) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    sizes = [(-(-rows // 2**level), -(-columns // 2**level)) for level in range(4)]
    return [torch.randn(2, width, *size, generator=generator) for width, size in zip(WIDTHS, sizes, strict=True)]


def random(module: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.2)
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.running_mean.normal_(std=0.1)
            norm.running_var.uniform_(0.5, 2)
    return module.eval()


def renamed(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return our UPerNet's tensors by transformers' names."""
    result = {}
    for name, tensor in tensors.items():
        part, layer, kind = name.rsplit(".", 2)
        place, _, number = part.partition(".")
        theirs = UPERNET[f"{place}.{{}}" if number else place].format(number)
        result[f"{theirs}.{CONV[layer]}.{kind}"] = tensor
    return result


@torch.no_grad()
def test_upernet_is_that_of_transformers():
    ours = random(UPerNetDecoder(WIDTHS, 16))
    theirs = UperNetHead(UperNetConfig(hidden_size=16, num_labels=5), list(WIDTHS)).eval()
    missing, unexpected = theirs.load_state_dict(renamed(ours.state_dict()), strict=False)
    assert sorted(missing) == ["classifier.bias", "classifier.weight"] and not unexpected
    maps = feature_maps()
    torch.testing.assert_close(theirs.classifier(ours(maps)), theirs(maps), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("small", [(5, 7), (3, 4), (1, 1), (10, 13)])
def test_a_convolution_before_enlarging_is_the_convolution_of_the_enlarged_map(small):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(2, 3, *small, generator=generator).requires_grad_()
    weight = torch.randn(4, 3, 3, 3, generator=generator).requires_grad_()
    expected = F.conv2d(F.interpolate(x, size=(10, 13), mode="bilinear"), weight, padding=1)
    found = convolve_enlarged(x, weight, (10, 13))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    given = torch.randn(expected.shape, generator=generator)
    for ours, theirs in zip(*(torch.autograd.grad(y, (x, weight), given) for y in (found, expected)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_the_auxiliary_head_is_that_of_transformers():
    ours = random(conv_norm(WIDTHS[2], 7))
    theirs = UperNetFCNHead(UperNetConfig(auxiliary_channels=7, num_labels=5), list(WIDTHS)).eval()
    theirs.convs.load_state_dict(
        {f"0.{CONV[n.partition('.')[0]]}.{n.partition('.')[2]}": t for n, t in ours.state_dict().items()}
    )
    maps = feature_maps()
    torch.testing.assert_close(theirs.classifier(ours(maps[2])), theirs(maps), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_mlp_decoder_is_segformers_though_it_convolves_before_it_enlarges():
    ours = random(MLPDecoder(WIDTHS, 16))
    config = SegformerConfig(hidden_sizes=list(WIDTHS), decoder_hidden_size=16, num_labels=5)
    theirs = SegformerDecodeHead(config).eval()
    tensors = {n.replace("fuse", "linear_fuse").replace("norm", "batch_norm"): t for n, t in ours.state_dict().items()}
    for name in [name for name in tensors if name.startswith("projections")]:
        _, number, kind = name.split(".")
        tensors[f"linear_projections.{number}.proj.{kind}"] = (
            tensors.pop(name).flatten(1) if kind == "weight" else tensors.pop(name)
        )
    missing, unexpected = theirs.load_state_dict(tensors, strict=False)
    assert sorted(missing) == ["classifier.bias", "classifier.weight"] and not unexpected
    maps = feature_maps()
    torch.testing.assert_close(theirs.classifier(ours(maps)), theirs(maps), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_linear_decoder_norms_the_maps_side_by_side():
    ours, maps = random(LinearDecoder((2, 3))), [torch.randn(2, 2, 4, 6), torch.randn(2, 3, 2, 3)]
    found = ours(maps)
    scale = ours.norm.weight / (ours.norm.running_var + ours.norm.eps).sqrt()
    for channel, (x, number) in {1: (maps[0], 1), 3: (maps[1], 1)}.items():
        x = x[:, number] if channel < 2 else nn.functional.interpolate(x, size=(4, 6), mode="bilinear")[:, number]
        by_hand = (x - ours.norm.running_mean[channel]) * scale[channel] + ours.norm.bias[channel]
        torch.testing.assert_close(found[:, channel], by_hand)


@pytest.mark.parametrize("decoder", [LinearDecoder, partial(MLPDecoder, width=8), partial(UPerNetDecoder, width=8)])
def test_with_group_norm_an_image_does_not_depend_on_its_batch_and_one_image_learns(decoder):
    torch.manual_seed(0)
    layer, maps = decoder(WIDTHS, norm="group").train(), feature_maps()
    torch.testing.assert_close(layer([x[:1] for x in maps]), layer(maps)[:1], rtol=1e-4, atol=1e-5)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in layer.modules())
    layer([x[:1, :, :1, :1] for x in maps]).sum().backward()

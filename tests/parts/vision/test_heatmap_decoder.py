"""Heatmaps of features: every value by hand."""

import torch
import torch.nn.functional as F
from torch import nn

from vitrail.parts import ClassicHeatmapDecoder, SimpleHeatmapDecoder


def transposed_by_hand(x: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    """Every input value stamps its kernel, two pixels apart; a border of one pixel is cut off."""
    batch, _, rows, columns = x.shape
    stamped = torch.zeros(batch, kernel.shape[1], 2 * rows + 2, 2 * columns + 2)
    for row in range(rows):
        for column in range(columns):
            stamp = torch.einsum("bi,iohw->bohw", x[:, :, row, column], kernel)
            stamped[:, :, 2 * row : 2 * row + 4, 2 * column : 2 * column + 4] += stamp
    return stamped[:, :, 1:-1, 1:-1]


def random_decoder(kind: type[nn.Module], **options) -> nn.Module:
    torch.manual_seed(0)
    decoder = kind(5, 3, **options)
    for parameter in decoder.parameters():
        nn.init.normal_(parameter, mean=0.5, std=0.5)
    for module in decoder.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return decoder.eval()


@torch.no_grad()
def test_the_classic_decoder_doubles_twice_by_transposed_convolutions():
    decoder, x = random_decoder(ClassicHeatmapDecoder, width=4), torch.randn(2, 5, 3, 2)
    expected = x
    for layer in decoder.enlarge:
        norm = layer.norm
        expected = transposed_by_hand(expected, layer.convolution.weight)
        scale = norm.weight / (norm.running_var + norm.eps).sqrt()
        expected = ((expected - norm.running_mean[:, None, None]) * scale[:, None, None] + norm.bias[:, None, None]).relu()
    expected = torch.einsum("bihw,oi->bohw", expected, decoder.heatmaps.weight[:, :, 0, 0]) + decoder.heatmaps.bias[:, None, None]
    assert decoder(x).shape == (2, 3, 12, 8)
    torch.testing.assert_close(decoder(x), expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_the_simple_decoder_enlarges_what_is_above_zero_and_convolves():
    decoder, x = random_decoder(SimpleHeatmapDecoder), torch.randn(2, 5, 3, 2)
    large = F.interpolate(x.relu(), (12, 8), mode="bilinear", align_corners=False)
    expected = F.conv2d(F.pad(large, (1, 1, 1, 1)), decoder.heatmaps.weight, decoder.heatmaps.bias)
    torch.testing.assert_close(decoder(x), expected)

"""Convolutions with a stride, whose results oneDNN's kernels for bf16 compute wrongly if they have a single column."""

import pytest
import torch
import torch.nn.functional as F

from vitrail.parts.vision.conv_norm import StridedConv2d


def fill_free_memory_with_nan() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        _ = [torch.full((size,), torch.nan, dtype=dtype) for size in (100, 1_000, 10_000, 100_000, 600_000)]


@pytest.mark.parametrize("stride", [2, 4])
@pytest.mark.parametrize("size", [(1, 1), (5, 1), (10, 2), (9, 3), (3, 4), (1, 5), (12, 8)])
@pytest.mark.parametrize(("channels", "width"), [(3, 64), (128, 256)])
def test_outputs_and_gradients_in_bf16_are_close_to_those_of_torch_in_fp32(size, stride, channels, width):
    torch.manual_seed(0)
    ours = StridedConv2d(channels, width, 3, stride, padding=1, bias=False).bfloat16()
    images = torch.randn(3, channels, *size).bfloat16().requires_grad_()
    fill_free_memory_with_nan()
    found = ours(images)
    given = torch.randn_like(found)
    fill_free_memory_with_nan()
    found.backward(given)

    exact, weight = (tensor.detach().float().requires_grad_() for tensor in (images, ours.weight))
    expected = F.conv2d(exact, weight, stride=stride, padding=1)
    expected.backward(given.float())
    for ours_is, wanted in ((found, expected), (images.grad, exact.grad), (ours.weight.grad, weight.grad)):
        assert (ours_is.float() - wanted).norm() <= 0.01 * wanted.norm()

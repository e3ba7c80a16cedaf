"""Logits of whole images and of windows, band by band."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from vitrail.errors import DataError
from vitrail.tasks.segmentation import windows
from vitrail.tasks.segmentation.windows import View, logits_in_bands

STRIDE = 4
VIEW = View((8, 8))


def pooled(images):
    """A network of stride 4 that looks at nothing but the pixels under each value."""
    return F.avg_pool2d(images.float(), STRIDE)


def joined(network, images, view):
    slices, bands = zip(*logits_in_bands(network, images, view), strict=True)
    assert [place.start for place in slices] == [0, *(place.stop for place in slices[:-1])]
    assert slices[-1].stop == images.shape[-2]
    assert all(band.shape[2] == place.stop - place.start for place, band in zip(slices, bands, strict=True))
    return torch.cat(bands, dim=2)


def some_images(height, width, count=2):
    return torch.randint(0, 256, (count, 3, height, width), dtype=torch.uint8, generator=torch.Generator().manual_seed(height))


def padded(images, height, width):
    """The images, continued at the right and bottom by their mirror images."""
    result = np.pad(
        images.numpy(), ((0, 0), (0, 0), (0, height - images.shape[2]), (0, width - images.shape[3])), mode="symmetric"
    )
    return torch.from_numpy(result)


@pytest.mark.parametrize("band", [1, 10_000, 2**26])
def test_a_whole_image_is_resized_as_at_once(band, monkeypatch):
    monkeypatch.setattr(windows, "BAND", band)
    images = some_images(37, 50)
    whole = F.interpolate(pooled(padded(images, 40, 56)), (40, 56), mode="bilinear")[:, :, :37, :50]
    torch.testing.assert_close(joined(pooled, images, VIEW), whole, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("band", [1, 2**26])
@pytest.mark.parametrize(("window", "overlap"), [((16, 24), 0.5), ((24, 16), 0.0), ((40, 24), 0.3), ((64, 64), 0.5)])
def test_windows_of_a_local_network_average_to_the_whole(window, overlap, band, monkeypatch):
    """A network that sees only what lies under each value gives the same wherever a window starts."""
    monkeypatch.setattr(windows, "BAND", band)
    images = some_images(37, 50)
    by_windows = joined(pooled, images, VIEW._replace(window=window, overlap=overlap))
    torch.testing.assert_close(by_windows, joined(pooled, images, VIEW), rtol=1e-5, atol=1e-3)


def test_an_image_far_smaller_than_a_window_is_padded():
    """A constant stays a constant, however often its border is repeated."""
    images = torch.full((1, 3, 3, 5), 7, dtype=torch.uint8)
    assert (joined(pooled, images, VIEW._replace(window=(32, 32))) == 7).all()


def test_windows_overlap_cover_the_image_and_are_weighted_to_their_middle():
    seen = []

    def numbered(images):
        seen.append(images.shape[-2:])
        return torch.full((len(images), 1, images.shape[2] // STRIDE, images.shape[3] // STRIDE), float(len(seen)))

    view = VIEW._replace(window=(16, 16), overlap=0.5)
    logits = joined(numbered, some_images(16, 24, 1), view)[0, 0, 0]
    assert seen == [(16, 16)] * 2
    assert logits[0] == 1 and logits[-1] == 2 and (logits.diff() >= 0).all()
    assert logits[8 + 4 - 1] < 1.5 < logits[8 + 4]  # the middle of what both show


def test_the_mirror_image_is_averaged():
    def leaning(images):
        result = pooled(images)[:, :1] * 0
        result[..., : result.shape[3] // 2] = 1
        return result

    logits = joined(leaning, some_images(16, 16), VIEW._replace(mirror=True))
    torch.testing.assert_close(logits, torch.full_like(logits, 0.5))


def test_an_image_that_is_too_large_as_a_whole_is_refused_with_the_way_out():
    VIEW.require_small((2048, 2048), "a.png")
    VIEW._replace(window=(16, 16)).require_small((4000, 6000), "a.png")
    with pytest.raises(DataError, match="6,000×4,000 pixels, too many") as refused:
        VIEW.require_small((4000, 6000), "a.png")
    assert "--window 512" in refused.value.hint


def test_a_stride_that_does_not_divide_the_patch_is_resized_to_one_that_does():
    """A patch of 14 pixels whose network answers at the stride 4: 126 pixels have 32 values."""

    def network(images):
        return F.interpolate(images.float(), [-(-side // 4) for side in images.shape[-2:]], mode="bilinear")

    view = View((14, 14))
    gradient = torch.arange(126).view(1, 1, 1, 126).expand(1, 3, 126, 126).to(torch.uint8)
    for shown in (view, view._replace(window=(56, 70), overlap=0.4)):
        logits = joined(network, gradient, shown)
        middle = logits[:, :, 8:-8, 8:-8] - gradient[:, :, 8:-8, 8:-8]
        assert middle.abs().max() < 1.5

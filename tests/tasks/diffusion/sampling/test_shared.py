"""Images that share passes: each is the one that sampling makes of its seed alone."""

import pytest
import torch

from tiny_diffusion import model as tiny_diffusion
from vitrail.tasks.diffusion.sampling.making import sample_batches
from vitrail.tasks.diffusion.sampling.options import Sampling
from vitrail.tasks.diffusion.sampling.shared import ImageInProgress, share_pass

KINDS = {
    "velocity": {"objective": "velocity", "learned_variance": True, "steps": 30},
    "flow": {"objective": "flow"},
    "no classes": {"num_classes": 0},
}
WAYS = [
    Sampling(5, 2.5, "ddim", eta=1.0),
    Sampling(9, 1.0, "dpm++"),
    Sampling(4, 3.0, "heun"),
    Sampling(1),
    Sampling(60, 1.5, "ddim", interval=(0.2, 0.7)),
    Sampling(7, 2.0, "ddpm"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_images_of_all_ways_at_once_are_those_of_sampling(kind):
    trained, ways = tiny_diffusion(**KINDS[kind]), WAYS
    if not trained.labels:
        ways = [Sampling(way.steps, 1.0, way.sampler, way.eta) for way in ways]
    if kind == "flow":
        ways = ways[:-1]
    labels = [number % 3 if trained.labels else None for number in range(len(ways))]
    images = [ImageInProgress(trained, 10 + n, label, way) for n, (label, way) in enumerate(zip(labels, ways, strict=True))]
    made = [None] * len(ways)
    while left := [number for number in range(len(ways)) if made[number] is None]:
        for number, image in zip(left, share_pass(trained, [images[number] for number in left]), strict=True):
            made[number] = image
    for number, (way, label) in enumerate(zip(ways, labels, strict=True)):
        (expected,) = sample_batches(trained, [10 + number], [label], way)
        torch.testing.assert_close(made[number], expected, atol=1e-4, rtol=1e-4)


def test_a_pass_in_which_the_model_fails_leaves_images_as_they_are(monkeypatch):
    trained = tiny_diffusion()
    image = ImageInProgress(trained, 1, 0, Sampling(3, 1.0, "ddpm"))
    share_pass(trained, [image])
    before, time = image.x, image.time
    with monkeypatch.context() as patch:
        patch.setattr(trained.model, "forward", lambda *inputs: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            share_pass(trained, [image])
    assert image.x is before and image.time == time
    share_pass(trained, [image])
    (made,) = share_pass(trained, [image])
    (expected,) = sample_batches(trained, [1], [0], Sampling(3, 1.0, "ddpm"))
    torch.testing.assert_close(made, expected, atol=1e-4, rtol=1e-4)

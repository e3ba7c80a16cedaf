"""A model that answers in Python says what it says of prepared images."""

from dataclasses import replace

import torch

from deploy.small import pixels_for, small_model
from vitrail.deploy.predictor import in_python


@torch.no_grad()
def test_pixels_are_normalised_and_probabilities_are_a_softmax_or_a_sigmoid_each():
    trained = small_model()
    trained.preparation = trained.preparation.changed(mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
    pixels = pixels_for(trained, 3)
    images = (pixels / 255 - torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)) / torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1)
    logits, predictor = trained.model(images), in_python(trained)
    torch.testing.assert_close(predictor.probabilities(pixels), logits.softmax(dim=1), atol=1e-4, rtol=1e-4)
    several = replace(predictor, multi_label=True).probabilities(pixels)
    torch.testing.assert_close(several, 1 / (1 + (-logits).exp()), atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_with_mirror_images_an_answer_is_the_mean_of_two_and_does_not_know_left_from_right():
    trained = small_model()
    predictor, pixels = in_python(trained), pixels_for(trained, 3)
    found = predictor.with_mirror_images().logits(pixels)
    torch.testing.assert_close(found, (predictor.logits(pixels) + predictor.logits(pixels.flip(-1))) / 2)
    torch.testing.assert_close(found, predictor.with_mirror_images().logits(pixels.flip(-1)))
    assert not torch.allclose(found, predictor.logits(pixels), atol=1e-4)

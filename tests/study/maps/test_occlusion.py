import pytest
import torch
from torch import nn

import vitrail
from vitrail.study.maps.occlusion import deletion, faster, verdict, without_patches
from vitrail.study.maps.patch_coordinates import patch_places

NOTHING = torch.zeros(1)
"""A colour that no test image has."""


def test_the_patches_of_the_highest_scores_are_painted_over():
    images = torch.ones(1, 1, 4, 6)
    scores = torch.tensor([[[0.1, 0.9, 0.2], [0.8, 0.3, 0.7]]])
    left = without_patches(images, scores, 0.5, colour=NOTHING)
    assert left[0, 0].tolist() == [[1, 1, 0, 0, 1, 1], [1, 1, 0, 0, 1, 1], [0, 0, 1, 1, 0, 0], [0, 0, 1, 1, 0, 0]]
    assert torch.equal(without_patches(images, scores, 0.0), images)
    assert not without_patches(images, scores, 1.0, colour=NOTHING).any()


FIELDS = {"dim": 8, "depth": 1, "heads": 2, "mlp_dim": 8, "num_classes": 2, "patch_size": 8}


@pytest.mark.parametrize("size", [(24, 32), (27, 39)])
def test_the_tokens_that_change_are_those_of_the_patches_that_are_taken_away(size):
    model = vitrail.create_model("ViT-Ti/8", image_size=size, crop_remainder=True, **FIELDS).eval()
    images, scores = torch.randn(2, 3, *size), torch.rand(2, 3, 4)
    left = without_patches(images, scores, 0.25, places=patch_places(model))
    changed = (model.embedding(left) != model.embedding(images)).any(dim=-1)
    expected = torch.zeros(2, 12, dtype=torch.bool).scatter(1, scores.flatten(1).topk(3).indices, value=True)
    assert torch.equal(changed, expected)
    assert torch.equal(left[..., 24:, :], images[..., 24:, :]) and torch.equal(left[..., 32:], images[..., 32:])


class Corner(nn.Module):
    """Says class 1 where the first pixel is bright."""

    def forward(self, images):
        bright = 4 * images[:, 0, 0, 0]
        return torch.stack([torch.ones_like(bright), bright], dim=1)


def test_an_answer_falls_when_its_patch_goes():
    images, labels = torch.ones(2, 1, 4, 4), torch.tensor([1, 1])
    scores = torch.tensor([[[0.9, 0.1], [0.2, 0.3]], [[0.0, 0.1], [0.2, 0.3]]])  # the second image's patch goes last
    steps: list[int] = []
    options = {"shares": (0, 0.25, 0.75, 1), "colour": NOTHING, "on_pass": steps.append}
    correct, probability = deletion(Corner(), images, scores, labels, **options)
    assert correct.tolist() == [[True, True], [False, True], [False, True], [False, False]]
    expected = [torch.sigmoid(torch.tensor(3.0)).item(), torch.sigmoid(torch.tensor(-1.0)).item()]
    assert probability[:, 0].tolist() == pytest.approx([expected[0], *[expected[1]] * 3])
    assert steps == [2] * 4


def test_several_labels_have_a_probability_each():
    images, labels, scores = torch.ones(1, 1, 4, 4), torch.tensor([1]), torch.zeros(1, 2, 2)
    _, alone = deletion(Corner(), images, scores, labels, shares=(0,), multi_label=True)
    assert alone.item() == pytest.approx(torch.sigmoid(torch.tensor(4.0)).item())


@pytest.mark.parametrize(
    ("gain", "said"), [(0.07, "the map points at"), (-0.07, "points away"), (0.05, "100 images cannot tell")]
)
def test_two_standard_errors_of_the_mean_decide(gain, said):
    gains = gain + 0.3 * torch.tensor([-1.0, 1.0]).repeat(50)  # their mean has a standard error of 0.03
    assert said in verdict((0.5 - gains).tolist(), [0.5] * 100)


def test_the_verdict_counts_images_with_wilsons_interval():
    assert "in 2 of 3 images that tell a difference (95 % interval 21 to 94 %)" in verdict([0.1, 0.2, 0.9, 0.5], [0.5] * 4)
    assert faster([0.5], [0.5]) == {"images": 0, "of": 0, "low": 0.0, "high": 1.0}

"""What a model takes on this machine."""

import re
import weakref
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import vitrail
from vitrail.models.cost import cost, totals
from vitrail.study.sections import model as model_sections
from vitrail.study.speed import Measured, kept_for_gradients, measured

TINY = {"image_size": 24, "patch_size": 4, "dim": 16, "depth": 2, "heads": 2, "mlp_dim": 32, "num_classes": 5}


def test_a_layer_keeps_its_input_and_a_gelu_its_own():
    images = torch.zeros(3, 8)
    assert kept_for_gradients(nn.Linear(8, 4), images) == 3 * 8 * 4
    assert kept_for_gradients(nn.Sequential(nn.Linear(8, 4), nn.GELU(), nn.Linear(4, 2)), images) == (3 * 8 + 2 * 3 * 4) * 4


def test_a_model_is_measured_at_its_own_size_and_a_smaller_and_a_larger_one():
    model = vitrail.create_model("ViT-Ti/4", **TINY).eval()
    found = measured(model, 4, seconds=0.01)
    assert [row.image_size for row in found] == [(16, 16), (24, 24), (36, 36)]
    assert found[1].macs == totals(model.config)[1]
    assert found[1].training_bytes == kept_for_gradients(model, torch.zeros(1, 3, 24, 24))
    assert found[0].training_bytes < found[1].training_bytes < found[2].training_bytes
    assert all(row.images_per_second > 0 for row in found)


@pytest.mark.parametrize(
    ("own", "expected"), [((224, 230), [(160, 160), (224, 230), (320, 352)]), ((32, 8), [(24, 6), (32, 8), (48, 12)])]
)
def test_a_model_that_takes_any_size_is_measured_at_round_ones(own, expected):
    model = vitrail.create_model("ResNet-18", image_size=own, depths=(1,), width=2, num_classes=2).eval()
    assert [row.image_size for row in measured(model, 1, seconds=0.01)] == expected


def test_sizes_that_a_model_cannot_have_are_left_out():
    many = vitrail.create_model(
        "ViT-Ti/4", **{**TINY, "image_size": 192, "depth": 1}, position="relative"
    ).eval()  # 48×48 patches
    assert [row.image_size for row in measured(many, 1, seconds=0.01)] == [(128, 128), (192, 192)]


def test_measured_numbers_are_shown_without_powers_of_ten(monkeypatch):
    found = Measured((8, 8), 2_500_000_000, 123_456_000, 1234.5)
    monkeypatch.setattr(model_sections, "measured", lambda *_: [found])
    made = cost(vitrail.create_model("ViT-Ti/4", **TINY).config)
    words = model_sections.cost(SimpleNamespace(model=None, batch=1, numbers={}, counted=made))
    assert re.findall(r">([\d.,e+]+)<", words)[:3] == ["2.5", "123", "1,234"]


def test_what_is_measured_is_given_back():
    made: list[weakref.ref] = []

    class Kept(nn.Module):
        def forward(self, x):
            y = x * torch.ones(4, requires_grad=True)
            made.append(weakref.ref(y))
            return (y * y).exp()

    kept_for_gradients(Kept(), torch.zeros(3, 4))
    assert made[0]() is None

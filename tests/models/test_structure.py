"""What somebody changed by hand in a model is found by comparing it with the one that its configuration builds."""

import pytest
from torch import nn

from test_contract import OF_IMAGES, tiny
from vitrail.models.structure import changed_parts
from vitrail.models.vision.vit import ViT


@pytest.mark.parametrize("kind", OF_IMAGES)
def test_no_part_of_a_model_as_it_is_built_is_changed(kind):
    assert changed_parts(tiny(kind)) == {}


class OwnViT(ViT):
    pass


def replaced(path, module):
    def change(model):
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, module)

    return change


CHANGES = {
    "head": (replaced("head", nn.Linear(16, 3)), ["head"]),
    "wider": (replaced("head.linear", nn.Linear(16, 5)), ["head.linear.weight", "head.linear.bias"]),
    "without bias": (replaced("head.linear", nn.Linear(16, 3, bias=False)), ["head.linear.bias"]),
    "norm": (replaced("norm", nn.Identity()), ["norm"]),
    "attention": (replaced("blocks.0.attention.layer", nn.Linear(16, 16)), ["blocks.0.attention.layer"]),
    "more blocks": (lambda model: model.blocks.append(nn.Identity()), ["blocks.2"]),
    "fewer blocks": (lambda model: model.blocks.pop(1), ["blocks.1"]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_part_is_named_once(name):
    model = tiny("ViT")
    change, parts = CHANGES[name]
    change(model)
    assert list(changed_parts(model)) == parts


def test_a_model_of_another_class_is_changed_as_a_whole():
    assert list(changed_parts(OwnViT(tiny("ViT").config))) == [""]

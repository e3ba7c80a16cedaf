"""Boxes of an image in its smaller version, by hand."""

import pytest

from vitrail.data.images.reduction import Whole


@pytest.mark.parametrize(
    ("box", "inside"),
    [((0, 0, 403, 301), (0.625, 0, 51, 37.625)), ((8, 16, 24, 40), (1.625, 2, 3.625, 5)), ((3, 0, 11, 8), (1, 0, 2, 1))],
)
def test_a_box_of_the_whole_image_lies_in_the_reduced_one_and_back(box, inside):
    whole = Whole((403, 301), (0.625, 0.0, 51.0, 37.625))  # an eighth, mirrored
    assert whole.inside(box) == inside and whole.outside(inside) == box

"""What a graph loses and gains, and whether int8 is worth it."""

import pytest
import torch

from vitrail.deploy.problems import ExportError
from vitrail.deploy.worth import points_lost, require_worth, surely_lost
from vitrail.tasks.multi_label import label_metrics

LOSS = {"points_lost": 0.0, "certainty_lost": 0.0, "images": 500, "labelled": True}
SPEED = {"images_per_second": {"torch fp32": 50, "openvino int8": 150, "openvino floats": 101}, "beside": "openvino floats"}


@pytest.mark.parametrize(
    ("loss", "speed", "message"),
    [
        ({"points_lost": 1.2}, {}, "loses 1.2 points of accuracy on 500 images"),
        ({"points_lost": 1.2, "labelled": False}, {}, "loses 1.2 points of agreement with the model"),
        ({"points_lost": 4.0, "certainty_lost": 1.5, "images": 50}, {}, "loses 1.5 points"),
        ({}, {"openvino int8": 99, "openvino floats": 101}, "slower than openvino floats: 99"),
    ],
)
def test_int8_that_is_not_worth_it_is_refused(loss, speed, message):
    require_worth(LOSS, SPEED)
    with pytest.raises(ExportError, match=message) as error:
        require_worth(LOSS | loss, SPEED | ({"images_per_second": speed} if speed else {}))
    assert error.value.exit_code == 1 and "--force" in error.value.hint


def test_one_image_of_a_few_is_not_held_against_int8():
    assert surely_lost(2.0, 0.3, 50) == 0.3 and surely_lost(2.0, 0.3, 200) == 2.0


def test_points_lost_are_those_of_accuracy_and_of_the_right_labels_probability():
    labels = torch.tensor([0, 1])
    before, after = (label_metrics(multi_label=False, keep=True) for _ in range(2))
    before.update({"logits": torch.tensor([[9.0, 0], [0, 9]])}, {"images": labels, "labels": labels})
    after.update({"logits": torch.tensor([[9.0, 0], [0.1, 0]])}, {"images": labels, "labels": labels})
    points, certain = points_lost(before, after)
    chances = [torch.sigmoid(torch.tensor(x)).item() for x in (9.0, -0.1)]
    assert points == 50 and certain == pytest.approx(50 * (chances[0] - chances[1]), abs=1e-3)

"""What a graph loses and gains."""

import pytest
import torch

from vitrail.deploy.export.speeds import require_faster, slower
from vitrail.deploy.problems import ExportError
from vitrail.tasks.classification.judging.worth import points_lost
from vitrail.tasks.classification.labels.multi_label import label_metrics

SPEED = {"images_per_second": {"torch fp32": 50, "openvino int8": 150, "openvino floats": 101}, "beside": "openvino floats"}


def test_int8_that_is_slower_than_floats_is_reported_and_refused():
    require_faster(SPEED)
    slow = SPEED | {"images_per_second": {"openvino int8": 99, "openvino floats": 101}}
    assert slower(SPEED) == "" and "slower than openvino floats: 99" in slower(slow)
    with pytest.raises(ExportError, match="slower than openvino floats: 99") as error:
        require_faster(slow)
    assert error.value.exit_code == 1 and "--force" in error.value.hint


def test_points_lost_are_those_of_accuracy_and_of_the_right_labels_probability():
    labels = torch.tensor([0, 1])
    before, after = (label_metrics(multi_label=False, keep=True) for _ in range(2))
    before.update({"logits": torch.tensor([[9.0, 0], [0, 9]])}, {"images": labels, "labels": labels})
    after.update({"logits": torch.tensor([[9.0, 0], [0.1, 0]])}, {"images": labels, "labels": labels})
    points, certain = points_lost(before, after)
    chances = [torch.sigmoid(torch.tensor(x)).item() for x in (9.0, -0.1)]
    assert points == 50 and certain == pytest.approx(50 * (chances[0] - chances[1]), abs=1e-3)

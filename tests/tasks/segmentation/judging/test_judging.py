"""What int8 loses in mIoU, on which images, and when it is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from masked import CLASSES, COLORS, drawn, write_masks
from tiny_segmenter import tiny_segmenter
from vitrail.deploy.problems import ExportError
from vitrail.errors import ConfigError, DataError
from vitrail.runtime.observer import Observer
from vitrail.tasks.segmentation.judging.judging import LostMiou, MaskJudging
from vitrail.tasks.segmentation.judging.metrics import SegmentationMetrics
from vitrail.tasks.segmentation.predictor import SegmentationPredictor


def by_colour(pixels):
    table = torch.tensor(COLORS, dtype=torch.float32)
    return -torch.nn.functional.avg_pool2d((pixels.float()[:, None] - table[None, :, :, None, None]).abs().sum(dim=2), 4)


KNOWING = SegmentationPredictor("torch fp32", CLASSES, COLORS, tiny_segmenter().preparation, by_colour, (8, 8))
WRONG = replace(KNOWING, name="openvino int8", logits=lambda pixels: -by_colour(pixels), any_size=False)


def metrics_of(errors):
    """Metrics of some images in which a fraction of the pixels is wrong."""
    metrics = SegmentationMetrics(CLASSES, keep=True)
    for number, wrong in enumerate(errors):
        truth = drawn(number).astype(np.int64)
        predicted = np.where(np.random.default_rng(number).random(truth.shape) < wrong, 0, np.minimum(truth, 2))
        metrics._add(truth, predicted, number)
    return metrics


def test_the_loss_is_the_difference_of_miou_and_its_error_the_jackknifes():
    before, after = metrics_of([0.0] * 6), metrics_of([0.1, 0.2, 0.1, 0.3, 0.1, 0.0])
    lost = LostMiou.between(before, after)
    assert lost.points == pytest.approx(100 * (before.scores()["miou"] - after.scores()["miou"]))
    without = []
    for left in range(6):
        pair = [metrics_of([e for i, e in enumerate(errors)]) for errors in ([0.0] * 6, [0.1, 0.2, 0.1, 0.3, 0.1, 0.0])]
        for one in pair:
            own = one.rows[left]
            one.confusion = sum(_confusion(row) for row in one.rows if row is not own)
        without.append(100 * (_miou(pair[0].confusion) - _miou(pair[1].confusion)))
    error = np.sqrt(5 / 6 * np.square(np.array(without) - np.mean(without)).sum())
    assert lost.error == pytest.approx(error) and lost.least == pytest.approx(lost.points - 1.6449 * error, abs=1e-3)
    same = LostMiou.between(before, before)
    assert (same.points, same.error, same.least, same.images) == (0, 0, 0, 6)


def _confusion(row):
    return np.stack([row.right, row.true, row.predicted])


def _miou(counts):
    right, true, predicted = counts
    return np.mean(right / (true + predicted - right))


def test_int8_that_surely_loses_more_than_the_limit_is_refused_and_so_is_what_cannot_be_judged():
    lost = LostMiou(points=3.0, error=1.0, least=1.4, answers=3, images=20)
    lost.require_small(2.0)
    with pytest.raises(ExportError, match=r"int8 loses 3.0 points of mIoU on 20 images, at least 1.4 with 95% confidence"):
        lost.require_small(0.5)
    with pytest.raises(ExportError, match="cannot be judged"):
        replace(lost, answers=1).require_small(2.0)


def test_int8_is_calibrated_by_training_crops_and_judged_on_others(tmp_path):
    notes = []
    observer = Observer()
    observer.note = notes.append
    judging = MaskJudging(KNOWING, "model", write_masks(tmp_path, 5, 3), observer)
    assert judging.calibration.shape == (5, 3, 32, 32) and judging.calibration.dtype == torch.uint8
    assert all(item.name.startswith("val") for item in judging.items) and len(judging.items) == 3
    assert notes == ["calibrated on 5 crops, judged and scored on 3 images (val)"]
    rows = dict(judging.compared({"torch fp32": KNOWING, "openvino int8": WRONG}))
    assert rows["torch fp32"]["miou"] > 0.9 > rows["openvino int8"]["miou"]
    assert judging.holds({"name": "torch fp32", **rows["torch fp32"]}, 0.5)
    assert not judging.holds({"name": "openvino int8", **rows["openvino int8"]}, 0.5)
    assert notes[-1].startswith("openvino int8 is not recommended: int8 loses")


def test_images_of_one_split_are_halved_and_a_single_one_is_too_few(tmp_path):
    judging = MaskJudging(KNOWING, "model", write_masks(tmp_path / "a", 0, 4), Observer())
    assert len(judging.calibration) == len(judging.items) == 2
    with pytest.raises(DataError, match="one image cannot both calibrate and judge int8"):
        MaskJudging(KNOWING, "model", write_masks(tmp_path / "b", 0, 1), Observer())
    with pytest.raises(ConfigError, match="no data given"):
        MaskJudging(KNOWING, "model", None, Observer())

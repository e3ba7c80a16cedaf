"""Intervals against SciPy and the literature, calibration against calculations by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from vitrail.study.quality.calibration import calibration, wilson_interval

few = settings(max_examples=30, deadline=None)


@few
@given(images=st.integers(1, 60_000), share=st.floats(0, 1), confidence=st.floats(0.5, 0.999))
def test_the_interval_is_scipys(images, share, confidence):
    hits = round(share * images)
    expected = binomtest(hits, images).proportion_ci(confidence, method="wilson")
    assert wilson_interval(hits, images, confidence) == pytest.approx(tuple(expected), abs=1e-9)


def test_calibration_by_hand():
    # bins of a quarter: (0, ¼] holds 0.25; (¼, ½] holds 0.3 and 0.5; (½, ¾] nothing; (¾, 1] holds 0.8, 0.9 and 1
    made = calibration(np.array([0.25, 0.3, 0.5, 0.8, 0.9, 1.0]), np.array([1, 0, 0, 1, 1, 0]), bins=4)
    assert made.counts.tolist() == [1, 2, 0, 3]
    np.testing.assert_allclose(made.probability, [0.25, 0.4, np.nan, 0.9])
    np.testing.assert_allclose(made.share, [1, 0, np.nan, 2 / 3])
    assert made.error == pytest.approx((0.75 + 2 * 0.4 + 3 * (0.9 - 2 / 3)) / 6)
    assert (made.mean_probability, made.mean_share) == pytest.approx((3.75 / 6, 3 / 6))


@pytest.mark.parametrize(
    ("probability", "images", "said"),
    [
        (0.85, 1000, "The model is overconfident: its mean probability is 85.0 %, and 70.0 % are correct."),
        (0.40, 1000, "The model is underconfident: its mean probability is 40.0 %, and 70.0 % are correct."),
        (
            0.71,
            1000,
            "The model's confidence fits its accuracy: its mean probability is 71.0 %, and 70.0 % are correct.",
        ),
        (
            0.85,
            10,
            "The model's confidence fits its accuracy: its mean probability is 85.0 %, and 70.0 % are correct.",
        ),
    ],
)
def test_the_verdict_goes_by_what_so_many_images_can_tell(probability, images, said):
    assert calibration(np.full(images, probability), np.arange(images) < 0.7 * images).verdict == said

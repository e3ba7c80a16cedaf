"""Distances of made images beside scipy, scikit-learn and sums by hand."""

import numpy as np
import pytest
from scipy.linalg import sqrtm
from sklearn.metrics.pairwise import polynomial_kernel

from vitrail.tasks.diffusion.quality.distances import covered, distances, frechet_distance, kernel_distance

RANDOM = np.random.default_rng(0)
A, B = RANDOM.normal(size=(200, 6)), 1.5 * RANDOM.normal(size=(150, 6)) + 0.5


def test_the_frechet_distance_is_that_of_two_gaussians():
    cov_a, cov_b = np.cov(A.T), np.cov(B.T)
    expected = ((A.mean(0) - B.mean(0)) ** 2).sum() + np.trace(cov_a + cov_b - 2 * sqrtm(cov_a @ cov_b).real)
    assert frechet_distance(A, B) == pytest.approx(expected, rel=1e-9)
    assert frechet_distance(A, A) == pytest.approx(0, abs=1e-9)
    few = RANDOM.normal(size=(4, 6))  # fewer than numbers in a vector, so that their covariance has no inverse
    cov_few = np.cov(few.T)
    expected_few = ((A.mean(0) - few.mean(0)) ** 2).sum() + np.trace(cov_a + cov_few - 2 * sqrtm(cov_a @ cov_few).real)
    assert frechet_distance(A, few) == pytest.approx(expected_few, rel=1e-6)
    flat = np.hstack([A, np.zeros((200, 2))])  # pixels that are black in every image
    assert frechet_distance(flat, np.hstack([B, np.zeros((150, 2))])) == pytest.approx(expected, rel=1e-6)


def test_the_kernel_distance_leaves_out_pairs_of_a_vector_with_itself():
    options = {"degree": 3, "gamma": 1 / 6, "coef0": 1}
    within = [np.mean([polynomial_kernel(x[[i]], np.delete(x, i, 0), **options).mean() for i in range(len(x))]) for x in (A, B)]
    expected = sum(within) - 2 * polynomial_kernel(A, B, **options).mean()
    assert kernel_distance(A, B) == pytest.approx(expected, rel=1e-9)


def test_a_point_is_covered_within_the_distance_of_a_third_neighbour():
    line = np.arange(10.0)[:, None]
    points = np.array([[12.0], [12.1], [-2.5], [4.5]])  # 9 has its third neighbour at 6, 0 at 3
    assert covered(points, by=line) == 0.75
    assert covered(line, by=line) == 1


def test_equal_vectors_are_at_distance_zero_whatever_their_rounding():
    far = A + 1e4  # squares of 1e9, whose differences may be below zero
    assert distances(far, far) == pytest.approx(np.linalg.norm(far[:, None] - far[None], axis=2), abs=1e-2)

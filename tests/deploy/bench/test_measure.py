"""Side by side means in turns."""

import time
from itertools import groupby

import pytest
import torch

from vitrail.deploy.bench.measure import Timing, timed


def test_contenders_take_turns_until_each_has_had_its_time(monkeypatch):
    monkeypatch.setattr("vitrail.deploy.bench.measure.TURN", 0.004)
    calls = []

    def work(name, seconds):
        def run(pixels):
            calls.append(name)
            time.sleep(seconds)

        return run

    found = timed({"quick": work("quick", 0.001), "slow": work("slow", 0.005)}, torch.zeros(8, 1, 1, 1), seconds=0.02)
    assert calls[:4] == ["quick", "quick", "slow", "slow"]
    turns = [name for name, _ in groupby(calls[4:])]
    assert turns == ["quick", "slow"] * (len(turns) // 2) and len(turns) >= 6
    assert found["quick"].images_per_second > found["slow"].images_per_second > 0
    assert all(sum(timing.seconds) >= 0.02 for timing in found.values())


def test_rates_are_of_the_median_and_percentiles_in_milliseconds():
    timing = Timing(10, (0.1, 0.2, 0.9))
    assert timing.images_per_second == pytest.approx(50)
    assert timing.percentile(50) == pytest.approx(200) and timing.percentile(100) == pytest.approx(900)

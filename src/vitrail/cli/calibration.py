"""Measuring the machine before work that takes long."""

import os

from vitrail.cli.console import note


def measure_once() -> None:
    """Find out which ways to compute are the quickest here, unless that was done before, or nothing is to be kept.

    One of several processes does not, as the others would disturb it.
    """
    from vitrail.models.calibration import kernels_of, remember
    from vitrail.parts.calibration import calibrate
    from vitrail.runtime.measurements import cache_file, kept

    if cache_file() is None or "WORLD_SIZE" in os.environ or kernels_of(kept()) is not None:
        return
    note("measuring this machine once, for a few seconds (vitrail doctor shows it)")
    found, _ = calibrate()
    remember(found)

"""Measuring the machine before work that takes long."""

import os
from typing import TYPE_CHECKING

from vitrail.cli.console import note

if TYPE_CHECKING:
    from vitrail.parts.cpu.calibration import Timed
    from vitrail.parts.cpu.kernels import Kernels

BUSY = 0.1
"""The share of the cores' time that other programs take, from which on they make a difference."""
LONG = 500
"""Images from which on the few seconds of measuring are small beside the work."""


def measure_once() -> None:
    """Find out which ways to compute are the quickest here, unless that was done before, or nothing is to be kept.

    What is measured while other programs keep the cores busy holds for this process alone. One of several processes does not
    measure, as the others would disturb it.
    """
    from vitrail.models.calibration import kernels_of
    from vitrail.runtime.measurements import cache_file, kept

    if cache_file() is None or "WORLD_SIZE" in os.environ or kernels_of(kept()) is not None:
        return
    note("measuring this machine once, for a few seconds (vitrail doctor shows it)")
    measure()


def measure_before(model: str, images: int = LONG) -> None:
    """Call `measure_once` if torch is to answer for many images, and not an exported model."""
    from vitrail.deploy.export.artefact import graph_of

    if images >= LONG and graph_of(model) is None:
        measure_once()


def measure() -> "tuple[Kernels, list[Timed]]":
    """Measure this machine, compute with what is the quickest, and keep that unless other programs disturbed the measurement."""
    from vitrail.models.calibration import remember
    from vitrail.parts.cpu.calibration import calibrate
    from vitrail.parts.cpu.kernels import use
    from vitrail.runtime.processor import Others

    others = Others()
    found, rows = calibrate()
    share = others.share()
    if share is not None and share > BUSY:
        note(f"other programs took {share:.0%} of the cores' time meanwhile: this holds for now, and is not kept")
        use(found)
    else:
        remember(found)
    return found, rows

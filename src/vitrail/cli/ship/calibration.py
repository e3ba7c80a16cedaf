"""Measurement of the fastest kernels of this machine, before long computations."""

import os
from typing import TYPE_CHECKING

from vitrail.cli.console import note

if TYPE_CHECKING:
    from vitrail.parts.cpu.calibration import Timed
    from vitrail.parts.cpu.kernels import Kernels

BUSY = 0.1
"""Fraction of the cores' time used by other programs from which on a measurement counts as disturbed."""
LONG = 500
"""Number of images from which on the few seconds of the measurement are worthwhile."""


def measure_once() -> None:
    """Measure the fastest kernels of this machine, unless this was done before or the cache is switched off.

    A result measured while other programs keep the cores busy is used by this process only, and not saved. With several processes
    nothing is measured, since they would disturb each other.
    """
    from vitrail.models.calibration import kernels_of
    from vitrail.runtime.measurements import cache_file, kept

    if cache_file() is None or "WORLD_SIZE" in os.environ or kernels_of(kept()) is not None:
        return
    note("measuring this machine once, for a few seconds (vitrail doctor shows it)")
    measure()


def measure_before(model: str, images: int = LONG) -> None:
    """Call `measure_once` if torch, and not an exported model, will compute many images."""
    from vitrail.deploy.export.artefact import graph_of

    if images >= LONG and graph_of(model) is None:
        measure_once()


def measure() -> "tuple[Kernels, list[Timed]]":
    """Measure the kernels and use the fastest; save the result unless other programs disturbed the measurement."""
    from vitrail.models.calibration import remember
    from vitrail.parts.cpu.calibration import calibrate
    from vitrail.parts.cpu.kernels import use
    from vitrail.runtime.processor import Others

    others = Others()
    found, rows = calibrate()
    share = others.share()
    if share is not None and share > BUSY:
        note(f"other programs took {share:.0%} of the cores' time meanwhile: the result is used now, but not saved")
        use(found)
    else:
        remember(found)
    return found, rows

"""``vitrail doctor``."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from vitrail.cli.console import note, result, result_json
from vitrail.cli.ship.calibration import BUSY, measure

WATCHED = 0.5
"""Seconds for which the load of other programs is measured."""


def doctor(*, json: bool = False) -> None:
    """Check this machine and installation: versions, cores and their load, GPUs, free disk, whether a model trains, and which
    kernels are the fastest here.

    The kernels are measured in a few seconds. The result is saved for all commands in the folder $VITRAIL_CACHE (default:
    ~/.cache/vitrail; empty: not saved), unless other programs keep the cores busy at the same time.

    Parameters
    ----------
    json
        One JSON document.
    """
    import shutil
    import time

    import torch

    from vitrail.errors import VitrailError
    from vitrail.models.registry import USUAL, create_model
    from vitrail.runtime.environment import environment
    from vitrail.runtime.processor import Others

    others = Others()
    time.sleep(WATCHED)
    share = others.share()
    values = environment()
    del values["command"]
    values["others"] = None if share is None else round(share, 2)
    values["free_disk_gb"] = round(shutil.disk_usage(".").free / 1e9, 1)
    model = create_model(USUAL, depth=1, num_classes=2)
    model(torch.zeros(2, 3, 224, 224)).logsumexp(dim=1).sum().backward()
    values["trains"] = all(p.grad is not None for p in model.parameters())
    note("measuring which kernels are the fastest")
    found, rows = measure()
    if json:
        measured = [{**asdict(row), "quickest": row.quickest} for row in rows]
        result_json({**values, "kernels": asdict(found), "measured": measured})
    else:
        _print({**values, "others": _busy(share)})
        result("")
        for row in rows:
            times = ", ".join(f"{name} {took:.2f}" for name, took in row.milliseconds.items())
            result(f"{row.what + ', ' + str(row.tokens) + ' tokens':<46}{row.quickest:<11}ms: {times}")
        result(f"chosen kernels: {', '.join(f'{name} {value}' for name, value in asdict(found).items())}")
    if not values["trains"]:
        raise VitrailError("a model does not train here", where="torch", hint="install the versions of constraints.txt")


def _print(values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        shown = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        result(f"{name:<14}{'none' if value in ([], {}) else shown}")


def _busy(share: float | None) -> str:
    """Return a text on the load of other programs on the cores."""
    if share is None:
        return "unknown on this system"
    return f"take {share:.0%} of the cores' time" + ("; this machine is busy" if share > BUSY else "")

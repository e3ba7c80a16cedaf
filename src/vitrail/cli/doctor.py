"""``vitrail doctor``."""

from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter

from vitrail.cli.console import note, result, result_json


def doctor(*, json: Annotated[bool, Parameter(negative=())] = False) -> None:
    """Check this machine and installation: versions, cores, GPUs, free disk, whether a model computes gradients, and which of
    several ways to compute the same are the quickest here.

    That is measured in a few seconds and kept for all commands, in the folder $VITRAIL_CACHE (default: ~/.cache/vitrail; empty:
    nowhere).

    Parameters
    ----------
    json
        One JSON document.
    """
    import shutil

    import torch

    from vitrail.errors import VitrailError
    from vitrail.models.calibration import remember
    from vitrail.models.registry import USUAL, create_model
    from vitrail.parts.calibration import calibrate
    from vitrail.runtime.environment import environment

    values = environment()
    del values["command"]
    values["free_disk_gb"] = round(shutil.disk_usage(".").free / 1e9, 1)
    model = create_model(USUAL, depth=1, num_classes=2)
    model(torch.zeros(2, 3, 224, 224)).logsumexp(dim=1).sum().backward()
    values["trains"] = all(p.grad is not None for p in model.parameters())
    note("measuring which ways to compute are the quickest")
    found, rows = calibrate()
    remember(found)
    if json:
        measured = [{**asdict(row), "quickest": row.quickest} for row in rows]
        result_json({**values, "kernels": asdict(found), "measured": measured})
    else:
        for name, value in values.items():
            shown = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
            result(f"{name:<14}{'none' if value == [] else shown}")
        result("")
        for row in rows:
            times = ", ".join(f"{name} {took:.2f}" for name, took in row.milliseconds.items())
            result(f"{row.what + ', ' + str(row.tokens) + ' tokens':<46}{row.quickest:<11}ms: {times}")
        result(f"so it computes with: {', '.join(f'{name} {value}' for name, value in asdict(found).items())}")
    if not values["trains"]:
        raise VitrailError("a model does not train here", where="torch", hint="install the versions of constraints.txt")

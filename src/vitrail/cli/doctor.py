"""``vitrail doctor``."""

from typing import Annotated

from cyclopts import Parameter

from vitrail.cli.console import result, result_json


def doctor(*, json: Annotated[bool, Parameter(negative=())] = False) -> None:
    """Check this machine and installation: versions, cores, GPUs, free disk, and whether a model computes gradients.

    Parameters
    ----------
    json
        One JSON document.
    """
    import shutil

    import torch

    from vitrail.errors import VitrailError
    from vitrail.models.registry import USUAL, create_model
    from vitrail.runtime.environment import environment

    values = environment()
    del values["command"]
    values["free_disk_gb"] = round(shutil.disk_usage(".").free / 1e9, 1)
    model = create_model(USUAL, depth=1, num_classes=2)
    model(torch.zeros(2, 3, 224, 224)).logsumexp(dim=1).sum().backward()
    values["trains"] = all(p.grad is not None for p in model.parameters())
    if json:
        result_json(values)
    else:
        for name, value in values.items():
            shown = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
            result(f"{name:<14}{'none' if value == [] else shown}")
    if not values["trains"]:
        raise VitrailError("a model does not train here", where="torch", hint="install the versions of constraints.txt")

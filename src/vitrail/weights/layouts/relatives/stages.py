"""How the configuration of a model of stages follows from the shapes of its parameters, whatever library wrote them."""

import re
from collections.abc import Mapping

from vitrail.errors import ModelFileError
from vitrail.weights.keys import Shape, count_of


def depths_of(shapes: Mapping[str, Shape]) -> tuple[int, ...]:
    """Blocks in every stage, by parameters ``stages.0.blocks.0.…``.

    Raises:
        ModelFileError: a stage has none, or most of them are missing.
    """
    found = {tuple(map(int, hit.groups())) for name in shapes if (hit := re.match(r"stages\.(\d+)\.blocks\.(\d+)\.", name))}
    stages = count_of((stage for stage, _ in found), "stage")
    depths = tuple(count_of((block for at, block in found if at == stage), "block") for stage in range(stages))
    if not depths or not all(depths):
        what = f"stage {depths.index(0)} has no blocks" if depths else "no stages"
        raise ModelFileError(what, where="weights")
    return depths

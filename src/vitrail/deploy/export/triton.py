"""A model repository for Triton: ``NAME/config.pbtxt``, ``NAME/labels.txt`` and ``NAME/1/model.onnx``.

https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/user_guide/model_configuration.html
"""

import json
import re
from pathlib import Path

from vitrail.deploy.export.artefact import Description
from vitrail.files import write_text

MOST_TOGETHER = 16
"""Most images in a batch, as in `vitrail serve`."""
CONFIG = """\
name: {name}
platform: "onnxruntime_onnx"
max_batch_size: {most}
input [ {{ name: "images" data_type: {kind} dims: [ {sides} ] }} ]
output [ {{ name: {gives} data_type: TYPE_FP32 dims: [ {outputs} ]{labels} }} ]
dynamic_batching {{ }}
"""


def repository_name(name: str) -> str:
    """Return the name of a model's folder in a repository: the last part of ``name``, with other signs replaced by dashes."""
    return re.sub(r"[^\w.-]+", "-", Path(name).name)


def write_config(folder: Path, about: Description) -> None:
    """Write Triton's configuration of a model, whose graph is in ``folder / "1"``, and its labels."""
    sides = [about.preparation.channels, *((-1, -1) if about.any_size else about.preparation.image_size)]
    is_classifier = len(about.answer_shape) == 2
    outputs = ", ".join(str(-1 if side is None else side) for side in about.answer_shape[1:])
    config = CONFIG.format(
        name=json.dumps(folder.name, ensure_ascii=False),
        most=MOST_TOGETHER,
        kind="TYPE_UINT8" if about.pixels else "TYPE_FP32",
        sides=", ".join(map(str, sides)),
        gives=json.dumps(about.gives),
        outputs=outputs,
        labels=' label_filename: "labels.txt"' if is_classifier else "",
    )
    write_text(folder / "config.pbtxt", config)
    if is_classifier:
        write_text(folder / "labels.txt", "".join(f"{' '.join(label.split())}\n" for label in about.labels))

"""What a ``config.json`` says may be of any type: it is understood, or refused with its file."""

import json
from pathlib import Path

import pytest

from vitrail.errors import ModelFileError
from vitrail.weights.formats.checkpoint import Checkpoint
from vitrail.weights.layouts import LAYOUTS
from vitrail.weights.model_folder.description import read_description

ODD = (None, True, -1, 10**400, float("nan"), "", [], [[]], {}, {"a": []})
SAID = {
    "timm": {"architecture": "vit_tiny_patch16_224", "num_classes": 3, "model_args": {"act_layer": "gelu", "norm_layer": "x"}},
    "vit": {"model_type": "vit", "hidden_act": "gelu", "hidden_size": 32, "num_attention_heads": 2, "image_size": 16},
    "timm-resnet": {"architecture": "resnet50", "num_classes": 3, "model_args": {"act_layer": "relu"}},
    "timm-mixer": {"architecture": "mixer_s32_224", "model_args": {"act_layer": "gelu"}},
}


@pytest.mark.parametrize("layout", SAID)
def test_no_value_of_another_type_is_more_than_refused(layout):
    said = SAID[layout]
    inner = said.get("model_args", {})
    changed = [{**said, key: odd} for key in said for odd in ODD]
    changed += [{**said, "model_args": {**inner, key: odd}} for key in inner for odd in ODD]
    for values in changed:
        flat = {**values, **(inside if isinstance(inside := values.get("model_args"), dict) else {})}
        try:
            read_description(values, LAYOUTS[layout], Path("config.json"), flat=flat)
        except ModelFileError as error:
            assert error.where in (Path("config.json"), "config.json")


def test_a_resize_mode_of_another_type_is_refused(folder):
    (folder / "config.json").unlink()
    (folder / "open_clip_config.json").write_text(json.dumps({"preprocess_cfg": {"resize_mode": []}}))
    with pytest.raises(ModelFileError, match="resize_mode"), Checkpoint.opened(folder):
        pass

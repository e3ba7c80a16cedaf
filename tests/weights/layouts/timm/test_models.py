"""The table of timm's models against timm's own registry."""

from functools import partial
from typing import Any

import pytest
import timm
from timm.models import beit, deit, eva, vision_transformer, vision_transformer_hybrid

from vitrail.weights.layouts.timm.models import MODELS

MODULES = (vision_transformer, vision_transformer_hybrid, deit, eva, beit)
DEFAULTS: dict[str, Any] = {
    "num_heads": 12, "pool_include_prefix": False, "final_norm": True, "use_post_transformer_norm": None, "use_post_norm": False,
    "use_rot_pos_emb": False, "rope_type": "cat", "rope_temperature": 10_000.0, "rope_grid_offset": 0.0, "ref_feat_shape": None,
    "attn_pool_num_heads": None, "use_fc_norm": None, "fc_norm": None, "rope_grid_indexing": "ij", "rope_rotate_half": False,
}  # fmt: skip
"""What timm's constructors take where a model says nothing."""
LAYOUTS = {("cat", "ij", False): "timm-eva", ("dinov3", "ij", True): "timm-dinov3", ("cat", "xy", False): "timm-rope"}
UNKNOWN = ("attn_layer", "num_kv_heads")
"""Arguments that no model in the table may have."""


class CaughtError(Exception):
    """The class and the arguments that timm would build a model with."""


@pytest.fixture(scope="module")
def registry() -> dict[str, tuple[str, dict[str, Any]]]:
    """Class and arguments of every model of timm's modules of ViTs, without building one."""

    def catch(kind: type, variant: str, pretrained: bool, **arguments: Any) -> None:
        raise CaughtError(kind.__name__, arguments)

    found = {}
    with pytest.MonkeyPatch.context() as patch:
        for module in MODULES:
            patch.setattr(module, "build_model_with_cfg", catch)
        for module in MODULES:
            for name in timm.list_models(module=module.__name__.rpartition(".")[2]):
                with pytest.raises(CaughtError) as caught:
                    timm.create_model(name)
                found[name] = caught.value.args
    return found


def name_of(value: Any) -> str:
    return str(getattr(value, "__name__", value)).lower().replace("_", "")


def norm_of(value: Any) -> tuple[str, float]:
    if isinstance(value, partial):
        return name_of(value.func), value.keywords["eps"]
    return name_of(value or "layernorm"), 1e-6


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_the_table_is_built_by_timm_with_these_arguments(name, registry):
    kind, theirs = registry[name]
    layout, ours = MODELS[name]
    rotary = tuple(theirs.get(key, DEFAULTS[key]) for key in ("rope_type", "rope_grid_indexing", "rope_rotate_half"))
    assert layout == {"Eva": LAYOUTS.get(rotary), "Beit": "timm-beit"}.get(kind, "timm")
    for key, default in DEFAULTS.items():
        if not key.startswith("rope_grid_i") and key != "rope_rotate_half":
            expected = theirs.get(key, default)
            found = ours.get(key, default)
            assert found == (expected[0] if isinstance(expected, tuple) else expected), key
    usual = "avg" if kind in ("Eva", "Beit") else "token"
    assert ours.get("global_pool", usual) == theirs.get("global_pool", usual)
    norm = ours.get("norm_layer", ("layernorm", 1e-6))
    assert norm == norm_of(theirs.get("norm_layer"))
    act = name_of(theirs.get("act_layer") or "gelu")
    assert act == "silu" or name_of(ours.get("act_layer", "gelu")) == act  # SiLU is of SwiGLU, which shows in the weights
    assert name_of(ours.get("block_fn", "Block")) == name_of(theirs.get("block_fn", "Block"))
    assert not any(theirs.get(key) for key in UNKNOWN)


def test_what_is_not_in_the_table_has_parts_that_are_unknown(registry):
    strange = {"ParallelScalingBlock", "ParallelThingsBlock", "DiffParallelScalingBlock"}
    for name in registry.keys() - MODELS.keys():
        _, theirs = registry[name]
        block = getattr(theirs.get("block_fn"), "__name__", "") in strange
        convolutional = any(part in name for part in ("resnet26d", "resnet50d", "mci"))
        assert block or convolutional or theirs.get("rope_type") == "mixed" or any(theirs.get(key) for key in UNKNOWN), name

"""Conversion of timm's constructor arguments in ``config.json`` to fields of our configuration.

An argument that is in none of the tables is refused.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vitrail.errors import ModelFileError, unknown
from vitrail.models.configs.base import ModelConfig
from vitrail.models.configs.vit import ViTConfig
from vitrail.settings import brief
from vitrail.weights.keys import words
from vitrail.weights.layouts.timm.models import MODELS
from vitrail.weights.model_folder.description import require_no_model

ACTIVATIONS = {"gelu": "gelu", "gelu-tanh": "gelu_tanh", "quick-gelu": "quick_gelu", "swiglu": "silu"}
"""Our names of activations to timm's."""
HARMLESS = words(
    """
    attn_drop_rate attn_type drop_path_rate drop_rate dynamic_img_pad dynamic_img_size fix_init head_init_scale patch_drop_rate
    pos_drop_rate proj_drop_rate qkv_fused rope_jitter_coords rope_rescale_coords rope_shift_coords swiglu_align_to weight_init
    """
)
"""Arguments that do not change a trained model's output for images of its size."""
SHOWN = words(
    """
    attn_only_layer_scale attn_pool_mlp_ratio class_token fc_norm final_norm init_values mlp_ratio no_embed_class num_reg_tokens
    pre_norm proj_bias qk_norm qkv_bias reg_tokens scale_attn_inner scale_attn_norm scale_mlp scale_mlp_norm swiglu_mlp
    use_abs_pos_emb use_post_transformer_norm use_pre_transformer_norm use_rel_pos_bias use_shared_rel_pos_bias
    """
)
"""Arguments that keys and shapes show already."""
SAME = {
    "img_size": "image_size", "patch_size": "patch_size", "in_chans": "channels", "num_classes": "num_classes",
    "embed_dim": "dim", "depth": "depth", "num_heads": "heads", "attn_pool_num_heads": "pool_heads",
    "rope_temperature": "rotary_base", "rope_grid_offset": "rotary_offset", "ref_feat_shape": "rotary_grid",
}  # fmt: skip
"""Arguments to our fields of the same meaning."""
FIXED: dict[str, tuple[Any, ...]] = {
    "attn_layer": ("", "attn"), "num_kv_heads": (None,), "pos_embed": ("learn",), "rope_mrope_section": (None,)
}  # fmt: skip
"""Arguments that are supported with these values only."""
MEANT = words(
    """
    act_layer block_fn embed_norm_layer global_pool norm_layer pool_include_prefix rope_grid_indexing rope_rotate_half rope_type
    use_fc_norm use_post_norm use_rot_pos_emb
    """
)
"""Arguments that `_fields` reads."""
NORMS = {"layernorm": ("layer", 1e-6), "rmsnorm": ("rms", 1e-6)}
"""timm's names of norms to our name and timm's epsilon."""
TURNS = {
    "timm-dinov3": ("dinov3", "ij", True),
    "timm-rope": ("cat", "xy", False),
    "timm-eva": ("cat", "ij", False),
}
"""Rotary embeddings of each layout: timm's type, axis order, and whether the two numbers of a pair are half a head apart."""
OUT_OF_PLACE = {*MEANT, *SAME, *FIXED} - {"num_classes", "global_pool"}
"""Entries that timm ignores at the top level of ``config.json``; in ``model_args`` they would change the model."""


def refused(what: str, hint: str = "give a model without it", where: str = "config.json") -> ModelFileError:
    """Return the error for an entry that is not supported."""
    return ModelFileError(f"{what} is not supported", where=where, hint=hint)


def known_name(values: Mapping[str, Any], models: Iterable[str]) -> str | None:
    """Return the model name in timm's ``config.json``; None if it has none.

    Raises:
        ModelFileError: the name is not one of ``models``, or an argument is not inside ``model_args``, where timm ignores it.
    """
    name = values.get("architecture")
    if name is None:
        require_no_model(values, "architecture")
        return None
    if name not in (known := list(models)):
        error = unknown("architecture", str(name), known)
        raise ModelFileError(error.what, where="config.json", hint=error.hint or "give a supported model")
    for argument in sorted(values.keys() & OUT_OF_PLACE):
        raise refused(f"{argument}={brief(values[argument])} beside model_args", "move it into model_args, or remove it")
    return name


def reader(layout: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a function that reads our configuration fields from timm's ``config.json``, for one of timm's layouts."""

    def read(values: Mapping[str, Any]) -> dict[str, Any]:
        name = known_name(values, MODELS)
        if name is None:
            return {}
        family, arguments = MODELS[name]
        if layout != family:
            raise refused(f"{name} in the layout {layout}", f"use the layout {family}")
        return _fields({**arguments, **own_arguments(values)}, layout)

    return read


def own_arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor arguments in timm's ``config.json``: from ``model_args``, ``pretrained_cfg`` and the top level."""
    given = values.get("model_args")
    arguments = dict(given) if isinstance(given, dict) else {}
    prepared = values.get("pretrained_cfg")
    size = prepared.get("input_size") if isinstance(prepared, dict) else None
    if isinstance(size, list) and len(size) == 3:
        arguments = {"img_size": size[1:], "in_chans": size[0], **arguments}
    return {**{name: values[name] for name in ("num_classes", "global_pool") if values.get(name) is not None}, **arguments}


@dataclass(frozen=True)
class Arguments:
    """A mapping from another library's constructor arguments to fields of our configuration.

    Args:
        config: the class of our configuration.
        same: arguments to our fields of the same meaning.
        harmless: arguments that do not change a trained model's output, or that are read elsewhere.
        fixed: arguments that are supported with these values only.
        where: the file that holds them, for error messages.
    """

    config: type[ModelConfig]
    same: Mapping[str, str]
    harmless: Collection[str] = ()
    fixed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    where: str = "config.json"

    def read(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return our fields; raises `ModelFileError` for an argument that is not supported."""
        for name, value in arguments.items():
            if name not in self.same and name not in self.harmless and value not in self.fixed.get(name, ()):
                raise refused(f"{name}={brief(value)}", where=self.where)
        stated = {self.same[name]: value for name, value in arguments.items() if name in self.same and value is not None}
        return {name: self.config.read_field(name, value, where=self.where) for name, value in stated.items()}

    def of_presets(self, presets: Mapping[str, Mapping[str, Any]]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        """Return a reader of timm's ``config.json``: the fields of the named preset, overridden by the file's arguments."""

        def read(values: Mapping[str, Any]) -> dict[str, Any]:
            name = known_name(values, presets)
            return {} if name is None else {**presets[name], **self.read(own_arguments(values))}

        return read

    def describe(self, config: Any, *but: str) -> dict[str, Any]:
        """Return the arguments that build a model, except those named in ``but``."""
        return {theirs: getattr(config, ours) for theirs, ours in self.same.items() if theirs not in but}


def _fields(arguments: Mapping[str, Any], layout: str) -> dict[str, Any]:
    """Return our configuration fields for the arguments of timm's constructor."""
    fields = Arguments(ViTConfig, SAME, HARMLESS | SHOWN | MEANT, FIXED).read(arguments) | _norms(arguments)
    act = arguments.get("act_layer")
    if act is not None:
        names = {theirs: ours for ours, theirs in ACTIVATIONS.items()}
        if act not in names:
            raise refused(f"act_layer={brief(act)}", f"known: {', '.join(names)}")
        fields["mlp"] = names[act]
    fields |= _pool(arguments, layout)
    return fields | _rotary(arguments, layout)


def _norms(arguments: Mapping[str, Any]) -> dict[str, Any]:
    norm = _norm(arguments.get("norm_layer"))
    embedded = arguments.get("embed_norm_layer")
    if embedded is not None and _norm(embedded) != norm:
        raise refused("embed_norm_layer other than norm_layer")
    block = arguments.get("block_fn", "Block")
    after = block == "ResPostBlock" or arguments.get("use_post_norm", False)
    if block not in ("Block", "ResPostBlock"):
        raise refused(f"block_fn={brief(block)}")
    return {"norm_kind": norm[0], "norm_eps": norm[1], "norm": "residual-post" if after else "pre"}


def _norm(value: Any) -> tuple[str, float]:
    """Return kind and epsilon of a norm from timm's name, or from a tuple of name and epsilon (in our table of models)."""
    if isinstance(value, tuple):
        return NORMS[value[0]][0], value[1]
    if value is None:
        return NORMS["layernorm"]
    if value not in NORMS:
        raise refused(f"norm_layer={brief(value)}", f"known: {', '.join(NORMS)}")
    return NORMS[value]


def _pool(arguments: Mapping[str, Any], layout: str) -> dict[str, Any]:
    """Return the pooling and the position of the last norm; timm's three classes have different defaults for them."""
    plain = layout == "timm"
    kind = arguments.get("global_pool", "token" if plain else "avg")
    all_tokens = arguments.get("pool_include_prefix", False) or not plain
    pools = {"token": "class", "avg": "mean", "map": "attention" if all_tokens else "attention-patches"}
    if kind not in pools:
        raise refused(f"global_pool={brief(kind)}", f"known: {', '.join(pools)}")
    if arguments.get("pool_include_prefix") and kind == "avg":
        raise refused("pool_include_prefix with global_pool='avg'")
    pooled = arguments.get("use_fc_norm", arguments.get("fc_norm"))
    pooled = kind == "avg" if pooled is None else bool(pooled)
    tokens = arguments.get("use_post_transformer_norm")
    tokens = not pooled if tokens is None else bool(tokens)
    if not arguments.get("final_norm", True):
        pooled = tokens = False
    if pooled and tokens:
        raise refused("a last norm both before and after the pooling")
    return {"pool": pools[kind], "final_norm": "pooled" if pooled else "tokens" if tokens else "none"}


def _rotary(arguments: Mapping[str, Any], layout: str) -> dict[str, Any]:
    """Return the fields of rotary position embeddings; the weights show whether there are learned ones, too."""
    if not arguments.get("use_rot_pos_emb", False):
        return {"position": "learned-1d"}
    if layout not in TURNS:
        raise refused(f"use_rot_pos_emb in the layout {layout}")
    kind, order, half = TURNS[layout]
    given = {"rope_type": kind, "rope_grid_indexing": order, "rope_rotate_half": half}
    for name, value in given.items():
        if arguments.get(name, value) != value:
            raise refused(f"{name}={brief(arguments[name])}")
    fields: dict[str, Any] = {"position": "rotary", "rotary_coordinates": "unit" if kind == "dinov3" else "patches"}
    if kind == "dinov3" and arguments.get("rope_grid_offset", 0):
        raise refused("rope_grid_offset with rope_type='dinov3'")
    return fields | ({} if "rope_temperature" in arguments else {"rotary_base": 10_000.0})

"""Arguments of timm's constructors in its ``config.json``, one by one, as fields of our configuration.

What stands in none of the tables is refused.
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
"""Our activations by timm's names."""
HARMLESS = words(
    """
    attn_drop_rate attn_type drop_path_rate drop_rate dynamic_img_pad dynamic_img_size fix_init head_init_scale patch_drop_rate
    pos_drop_rate proj_drop_rate qkv_fused rope_jitter_coords rope_rescale_coords rope_shift_coords swiglu_align_to weight_init
    """
)
"""They change nothing of what a trained model answers to images of its size."""
SHOWN = words(
    """
    attn_only_layer_scale attn_pool_mlp_ratio class_token fc_norm final_norm init_values mlp_ratio no_embed_class num_reg_tokens
    pre_norm proj_bias qk_norm qkv_bias reg_tokens scale_attn_inner scale_attn_norm scale_mlp scale_mlp_norm swiglu_mlp
    use_abs_pos_emb use_post_transformer_norm use_pre_transformer_norm use_rel_pos_bias use_shared_rel_pos_bias
    """
)
"""They show in keys and shapes."""
SAME = {
    "img_size": "image_size", "patch_size": "patch_size", "in_chans": "channels", "num_classes": "num_classes",
    "embed_dim": "dim", "depth": "depth", "num_heads": "heads", "attn_pool_num_heads": "pool_heads",
    "rope_temperature": "rotary_base", "rope_grid_offset": "rotary_offset", "ref_feat_shape": "rotary_grid",
}  # fmt: skip
"""Fields of ours that mean the same."""
FIXED: dict[str, tuple[Any, ...]] = {
    "attn_layer": ("", "attn"), "num_kv_heads": (None,), "pos_embed": ("learn",), "rope_mrope_section": (None,)
}  # fmt: skip
"""Others that are known with these values alone."""
MEANT = words(
    """
    act_layer block_fn embed_norm_layer global_pool norm_layer pool_include_prefix rope_grid_indexing rope_rotate_half rope_type
    use_fc_norm use_post_norm use_rot_pos_emb
    """
)
"""Arguments that `_fields` reads."""
NORMS = {"layernorm": ("layer", 1e-6), "rmsnorm": ("rms", 1e-6)}
"""timm's names of norms, with the epsilon that they have there."""
TURNS = {
    "timm-dinov3": ("dinov3", "ij", True),
    "timm-rope": ("cat", "xy", False),
    "timm-eva": ("cat", "ij", False),
}
"""For each layout the type of rotary positions, which comes first, and whether the numbers of a plane are half a head apart."""
OUT_OF_PLACE = {*MEANT, *SAME, *FIXED} - {"num_classes", "global_pool"}
"""Keys that timm ignores at the top of a description, though they would change the model in ``model_args``."""


def refused(what: str, hint: str = "give a model whose parts are known", where: str = "config.json") -> ModelFileError:
    """Return the error for something that is not understood."""
    return ModelFileError(f"{what} is not known here", where=where, hint=hint)


def known_name(values: Mapping[str, Any], models: Iterable[str]) -> str | None:
    """Return the name in timm's ``config.json``, None where it has none.

    Raises:
        ModelFileError: it is none of ``models``, or the file says of a model what has no meaning at its place.
    """
    name = values.get("architecture")
    if name is None:
        require_no_model(values, "architecture")
        return None
    if name not in (known := list(models)):
        error = unknown("architecture", str(name), known)
        raise ModelFileError(error.what, where="config.json", hint=error.hint or "give a model that is known")
    for argument in sorted(values.keys() & OUT_OF_PLACE):
        raise refused(f"{argument}={brief(values[argument])} beside model_args", "write it into model_args, or take it out")
    return name


def reader(layout: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a reader of timm's ``config.json`` for one of its layouts."""

    def read(values: Mapping[str, Any]) -> dict[str, Any]:
        name = known_name(values, MODELS)
        if name is None:
            return {}
        family, arguments = MODELS[name]
        if layout != family:
            raise refused(f"{name} as {layout}", f"it is {family}")
        return _fields({**arguments, **own_arguments(values)}, layout)

    return read


def own_arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments in ``config.json`` beside the name of the architecture."""
    given = values.get("model_args")
    arguments = dict(given) if isinstance(given, dict) else {}
    prepared = values.get("pretrained_cfg")
    size = prepared.get("input_size") if isinstance(prepared, dict) else None
    if isinstance(size, list) and len(size) == 3:
        arguments = {"img_size": size[1:], "in_chans": size[0], **arguments}
    return {**{name: values[name] for name in ("num_classes", "global_pool") if values.get(name) is not None}, **arguments}


@dataclass(frozen=True)
class Arguments:
    """The arguments of another library's constructor, as fields of our configuration.

    Args:
        config: the class of the configuration.
        same: arguments that mean the same as a field of ours.
        harmless: arguments that change nothing of what a trained model answers, or that are read elsewhere.
        fixed: arguments that are known with these values alone.
        where: the file that they stand in.
    """

    config: type[ModelConfig]
    same: Mapping[str, str]
    harmless: Collection[str] = ()
    fixed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    where: str = "config.json"

    def read(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields; raises `ModelFileError` for an argument that is not understood."""
        for name, value in arguments.items():
            if name not in self.same and name not in self.harmless and value not in self.fixed.get(name, ()):
                raise refused(f"{name}={brief(value)}", where=self.where)
        stated = {self.same[name]: value for name, value in arguments.items() if name in self.same and value is not None}
        return {name: self.config.read_field(name, value, where=self.where) for name, value in stated.items()}

    def of_presets(self, presets: Mapping[str, Mapping[str, Any]]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        """Return a reader of timm's ``config.json``: fields by the name of a model, and what the file says beside it."""

        def read(values: Mapping[str, Any]) -> dict[str, Any]:
            name = known_name(values, presets)
            return {} if name is None else {**presets[name], **self.read(own_arguments(values))}

        return read

    def describe(self, config: Any, *but: str) -> dict[str, Any]:
        """Return the arguments that build a model, without some."""
        return {theirs: getattr(config, ours) for theirs, ours in self.same.items() if theirs not in but}


def _fields(arguments: Mapping[str, Any], layout: str) -> dict[str, Any]:
    """Return fields of our configuration that arguments of a constructor of timm's mean."""
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
    """Return kind and epsilon of a norm by timm's name, beside which our table of models has the epsilon."""
    if isinstance(value, tuple):
        return NORMS[value[0]][0], value[1]
    if value is None:
        return NORMS["layernorm"]
    if value not in NORMS:
        raise refused(f"norm_layer={brief(value)}", f"known: {', '.join(NORMS)}")
    return NORMS[value]


def _pool(arguments: Mapping[str, Any], layout: str) -> dict[str, Any]:
    """Return the pooling and the place of the last norm, by which timm's three classes differ."""
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
        raise refused("a last norm both before and behind the pooling")
    return {"pool": pools[kind], "final_norm": "pooled" if pooled else "tokens" if tokens else "none"}


def _rotary(arguments: Mapping[str, Any], layout: str) -> dict[str, Any]:
    """Return the rotary positions; learned ones beside them show in the weights."""
    if not arguments.get("use_rot_pos_emb", False):
        return {"position": "learned-1d"}
    if layout not in TURNS:
        raise refused(f"use_rot_pos_emb as {layout}")
    kind, order, half = TURNS[layout]
    given = {"rope_type": kind, "rope_grid_indexing": order, "rope_rotate_half": half}
    for name, value in given.items():
        if arguments.get(name, value) != value:
            raise refused(f"{name}={brief(arguments[name])}")
    fields: dict[str, Any] = {"position": "rotary", "rotary_coordinates": "unit" if kind == "dinov3" else "patches"}
    if kind == "dinov3" and arguments.get("rope_grid_offset", 0):
        raise refused("rope_grid_offset with rope_type='dinov3'")
    return fields | ({} if "rope_temperature" in arguments else {"rotary_base": 10_000.0})

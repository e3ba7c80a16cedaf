"""diffusers' DiTTransformer2DModel, and what the DiTPipeline around it says (https://github.com/huggingface/diffusers).

Its blocks have an embedding of time and class each, all alike. Its code computes the waves of the time with a shift of 1, also of
weights that were trained with 0, as those of facebook/DiT-XL-2-256. Its norms before the MLPs have an epsilon of their own.
"""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.configs.dit import DiTConfig, linear_ends
from vitrail.settings import brief
from vitrail.weights.formats.pipeline import PIPELINE, SCHEDULER
from vitrail.weights.keys import Key, Shape, weight_and_bias, words
from vitrail.weights.layout import Layout, Size
from vitrail.weights.layouts.relatives.dit import BLOCK, LABELS, READING, labelled, modulations
from vitrail.weights.layouts.shapes import depth_of
from vitrail.weights.model_folder.description import described

CLASSES = ("DiTTransformer2DModel", "Transformer2DModel")
"""The class that ``config.json`` names, and its name before 2024."""
PIPELINE_CLASS, NULL_ROW = "DiTPipeline", 1000
"""The pipeline's class, and the row of the table of labels that it takes for no class, whatever model is in it."""
NORM_EPS = 1e-6
"""Epsilon of all norms but those before the MLPs, whatever ``config.json`` says."""
THEIRS = "transformer_blocks.{i}"
EMBEDDERS = ("time.expand.weight", "time.expand.bias", "time.contract.weight", "time.contract.bias", LABELS)
"""Parameters that stand in every block."""
SCHEDULERS: dict[str, dict[str, Any]] = {
    "DDIMScheduler": {"set_alpha_to_one": True},
    "DDPMScheduler": {"variance_type": "fixed_small"},
}
"""Classes of schedulers, whose steps are those of ``ddim`` and ``ddpm``, with what of their own values is done here."""
DONE: dict[str, Any] = {
    "trained_betas": None, "clip_sample": False, "thresholding": False, "steps_offset": 0, "rescale_betas_zero_snr": False,
}  # fmt: skip
"""Values of any scheduler that are done here."""
USED = {
    "num_train_timesteps": 1000, "beta_start": 1e-4, "beta_end": 0.02, "beta_schedule": "linear", "prediction_type": "epsilon",
    "timestep_spacing": "leading",
}  # fmt: skip
"""Values of any scheduler that are read, as diffusers takes them where the file leaves them out."""
WITHOUT_EFFECT = words("clip_sample_range dynamic_thresholding_ratio sample_max_value")
OBJECTIVES = {"noise": "epsilon", "velocity": "v_prediction"}
BETAS = {"linear": "linear", "cosine": "squaredcos_cap_v2"}


def _copy(name: str, block: int) -> str:
    return f"copies.{block}.{name}"


def _fields(shapes: Mapping[str, Shape], known: Mapping[str, Any], image_size: Size | None, layout: Layout) -> dict[str, Any]:
    first = {name: shapes.get(_copy(name, 0)) for name in EMBEDDERS}
    for block in range(depth_of(shapes)):
        for name in EMBEDDERS:
            if (shape := shapes.get(_copy(name, block))) is None or shape != first[name]:
                what = f"no {_copy(name, block)}" if shape is None else f"{_copy(name, block)} is {shape}, before {first[name]}"
                raise ModelFileError(what, where="weights")
    return READING.fields({**shapes, **{name: shape for name, shape in first.items() if shape}}, known, image_size, layout)


def _holds(name: str, shape: Shape, config: DiTConfig) -> bool | None:
    return True if name.startswith("copies.") else READING.holds(name, shape, config)


def _settle(ours: dict[str, Tensor], config: DiTConfig) -> None:
    """Take the embedders of the first block; raises `ModelFileError` where another block has others."""
    for name in EMBEDDERS:
        first, *others = (ours.pop(_copy(name, block)) for block in range(config.depth))
        for block, other in enumerate(others, 1):
            if not torch.equal(first, other):
                what = f"the embedding of time and class in block {block} is another than in the first one ({name})"
                raise ModelFileError(what, where="weights", hint="give a model with one embedding for all blocks")
        ours[name] = first
    READING.settle(ours, config)


def _share_out(state: Mapping[str, Tensor], config: DiTConfig, layout: Layout) -> dict[str, Tensor]:
    """Return a copy of the embedders for every block, and as many rows for no class as reach the pipeline's."""
    ours = labelled(state, config)
    table = ours[LABELS]
    ours[LABELS] = torch.cat([table, table[-1:].expand(NULL_ROW + 1 - len(table), -1)])
    once = {name: ours.pop(name) for name in EMBEDDERS}
    return {**ours, **{_copy(name, block): tensor for block in range(config.depth) for name, tensor in once.items()}}


def _describe(config: DiTConfig) -> dict[str, Any]:
    """Return ``config.json``, and the scheduler; raises `ConfigError` where diffusers cannot build the model."""
    lacking = {
        "images or patches that are not square": len({*config.image_size}) > 1 or len({*config.patch_size}) > 1,
        f"time_shift {config.time_shift}, only 1": config.time_shift != 1,
        f"norm_eps {config.norm_eps:g}, only {NORM_EPS:g}": config.norm_eps != NORM_EPS,
        f"MLP of {config.mlp_dim}, only of four times the width": config.mlp_dim != 4 * config.dim,
        f"time_dim {config.time_dim}, only 256": config.time_dim != 256,
        "classes without a null class": bool(config.num_classes) and not config.null_class,
        f"{config.num_classes} classes, only up to {NULL_ROW}": config.num_classes > NULL_ROW,
        f"pipeline of a {config.objective}": config.objective not in OBJECTIVES,
    }
    if what := next((what for what, lacks in lacking.items() if lacks), ""):
        raise ConfigError(f"diffusers' DiT has no {what}", where="--layout", hint="give another layout")
    return {
        "_class_name": CLASSES[0],
        "num_attention_heads": config.heads,
        "attention_head_dim": config.dim // config.heads,
        "in_channels": config.channels,
        "out_channels": config.output_channels,
        "num_layers": config.depth,
        "sample_size": config.image_size[0],
        "patch_size": config.patch_size[0],
        "num_embeds_ada_norm": NULL_ROW,
        "norm_eps": config.mlp_norm_eps or config.norm_eps,
        **{name: DIFFUSERS.defaults[name] for name in DIFFUSERS.fixed.keys() & DIFFUSERS.defaults.keys()},
        PIPELINE: PIPELINE_CLASS,
        SCHEDULER: _scheduler(config),
        "id2label": {str(number): str(number) for number in range(config.num_classes)},
    }


def _scheduler(config: DiTConfig) -> dict[str, Any]:
    (kind, own), first, last = next(iter(SCHEDULERS.items())), *linear_ends(config.steps)
    return {
        "_class_name": kind,
        **DONE,
        **own,
        "num_train_timesteps": config.steps,
        "beta_schedule": BETAS[config.betas],
        "beta_start": first,
        "beta_end": last,
        "prediction_type": OBJECTIVES[config.objective],
        "timestep_spacing": config.spacing,
    }


def _process(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a scheduler tells; raises `ModelFileError` with the name of what is not done here."""

    def require(name: str, value: Any, known: Collection[Any]) -> Any:
        if value not in known:
            where, hint = "scheduler_config.json", f"known: {', '.join(map(brief, known))}"
            raise ModelFileError(f"the scheduler's {name} is {brief(value)}, which is not done here", where=where, hint=hint)
        return value

    kind = require("_class_name", values.get("_class_name"), list(SCHEDULERS))
    done = {**DONE, **SCHEDULERS[kind]}
    stated = {**USED, "clip_sample": True, **values}  # which diffusers does unless the file says otherwise
    for name in sorted(stated.keys() - USED.keys() - WITHOUT_EFFECT):
        if not name.startswith("_"):
            require(name, stated[name], [done[name]] if name in done else [])
    ours = {theirs: ours for ours, theirs in (OBJECTIVES | BETAS).items()}
    betas = ours[require("beta_schedule", stated["beta_schedule"], list(BETAS.values()))]
    steps = DiTConfig.read_field("steps", stated["num_train_timesteps"], where="num_train_timesteps")
    if betas == "linear":
        for name, end in zip(("beta_start", "beta_end"), linear_ends(steps), strict=True):
            if not math.isclose(stated[name], end, rel_tol=1e-6):
                require(name, stated[name], [end])
    objective = ours[require("prediction_type", stated["prediction_type"], list(OBJECTIVES.values()))]
    spacing = DiTConfig.read_field("spacing", stated["timestep_spacing"], where="timestep_spacing")
    return {"objective": objective, "betas": betas, "steps": steps, "spacing": spacing}


def _read(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that ``config.json`` and the pipeline tell.

    Raises:
        ModelFileError: something that may change the output and is not done here, by its name.
    """
    if not values:
        return {}
    if values.get("_class_name") not in CLASSES:
        what = f"_class_name is {brief(values.get('_class_name'))}"
        raise ModelFileError(what, where="config.json", hint=f"known: {', '.join(CLASSES)}")
    if values.get(PIPELINE, PIPELINE_CLASS) != PIPELINE_CLASS:
        what = f"the pipeline is a {brief(values[PIPELINE])}"
        raise ModelFileError(what, where="model_index.json", hint=f"give a {PIPELINE_CLASS}, or its transformer folder alone")
    values = {**DIFFUSERS.defaults, **values}
    fields = described(values, DIFFUSERS)
    channels, outputs = values["in_channels"], values.get("out_channels") or values["in_channels"]
    if outputs not in (channels, 2 * channels):
        what = f"out_channels is {brief(outputs)}, neither in_channels {brief(channels)} nor twice that"
        raise ModelFileError(what, where="config.json", hint="give a model of noise, or of noise and variance")
    if isinstance(names := values.get("id2label"), dict):
        fields["num_classes"] = len(names)
    if fields["mlp_norm_eps"] == NORM_EPS:
        fields["mlp_norm_eps"] = None  # as the others'
    dim = values["num_attention_heads"] * values["attention_head_dim"]
    process = _process(values[SCHEDULER]) if SCHEDULER in values else {}
    return {**fields, "dim": dim, "learned_variance": outputs != channels, **process}


def _guesses(config: DiTConfig, stated: Mapping[str, Any]) -> list[str]:
    if "time_shift" in stated:
        return []
    return [
        f"time_shift {config.time_shift}, as in diffusers' code (its authors' weights have 0: vitrail convert … --time-shift 0)"
    ]


DIFFUSERS = Layout(
    name="diffusers",
    about="diffusers' DiT",
    reading=replace(
        READING,
        fields=_fields,
        optional="|".join(map(re.escape, EMBEDDERS)),  # whose copies `_fields` requires
        holds=_holds,
        settle=_settle,
        share_out=_share_out,
        guesses=_guesses,
    ),
    keys={
        **weight_and_bias(
            {
                "embedding.projection": "pos_embed.proj",
                "copies.{i}.time.expand": f"{THEIRS}.norm1.emb.timestep_embedder.linear_1",
                "copies.{i}.time.contract": f"{THEIRS}.norm1.emb.timestep_embedder.linear_2",
                f"{BLOCK}.attention.layer.qkv": tuple(f"{THEIRS}.attn1.to_{part}" for part in "qkv"),
                f"{BLOCK}.attention.layer.output": f"{THEIRS}.attn1.to_out.0",
                f"{BLOCK}.mlp.layer.expand": f"{THEIRS}.ff.net.0.proj",
                f"{BLOCK}.mlp.layer.contract": f"{THEIRS}.ff.net.2",
                "head.modulation": "proj_out_1",
                "head.linear": "proj_out_2",
            }
        ),
        f"copies.{{i}}.{LABELS}": Key(f"{THEIRS}.norm1.emb.class_embedder.embedding_table.weight"),
        **modulations(f"{THEIRS}.norm1.linear"),
    },
    fields={"norm_eps": NORM_EPS, "mlp_norm_eps": 1e-5, "time_shift": 1},
    defaults={
        "num_attention_heads": 16, "attention_head_dim": 72, "in_channels": 4, "num_layers": 28, "sample_size": 32,
        "patch_size": 2, "num_embeds_ada_norm": 1000, "norm_eps": 1e-5, "norm_type": "ada_norm_zero",
        "activation_fn": "gelu-approximate", "norm_elementwise_affine": False,
    },
    described={
        "heads": "num_attention_heads", "channels": "in_channels", "depth": "num_layers", "image_size": "sample_size",
        "patch_size": "patch_size", "num_classes": "num_embeds_ada_norm", "mlp_norm_eps": "norm_eps",
    },
    harmless=words(
        f"""
        attention_head_dim cross_attention_dim double_self_attention dropout interpolation_scale latents norm_num_groups
        num_vector_embeds out_channels {PIPELINE} {SCHEDULER} upcast_attention use_additional_conditions use_linear_projection
        """
    ),
    fixed={
        "activation_fn": ("gelu-approximate",), "attention_bias": (True,), "attention_type": ("default",),
        "caption_channels": (None,), "norm_elementwise_affine": (False,), "norm_type": ("ada_norm_zero",),
        "only_cross_attention": (False,),
    },
    read=_read,
    describe=_describe,
    weights="transformer/diffusion_pytorch_model.safetensors",
)  # fmt: skip

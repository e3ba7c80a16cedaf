"""Low-rank adapters (LoRA), and reading and writing them in PEFT's format.

Hu et al. 2021, https://arxiv.org/abs/2106.09685: fine-tuning changes a weight matrix by a product of two thin matrices.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitrail.config.settings import LoraSettings
from vitrail.errors import ConfigError, ModelFileError, unknown
from vitrail.files import whole_folder, write_json
from vitrail.models.base import Model
from vitrail.models.empty import empty_model
from vitrail.weights.formats.checksums import verified, write_sums
from vitrail.weights.formats.safe_files import read_json, some
from vitrail.weights.formats.tensor_files import read_tensors, require_numbers, write_tensors

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
APART = ("query", "key", "value", "key_value")
"""Names of separate projections to queries, keys and values, in attention without one fused layer."""
PREFIX = "base_model.model."
"""PEFT's prefix of a parameter's name."""
WITHOUT_EFFECT = {
    "auto_mapping", "base_model_name_or_path", "ensure_weight_tying", "exclude_modules", "inference_mode", "layers_pattern",
    "layers_to_transform", "lora_dropout", "megatron_core", "modules_to_save", "peft_version", "qalora_group_size", "revision",
    "target_modules", "task_type",
}  # fmt: skip
"""Settings of PEFT that do not change the output of an adapter."""


class LowRankLinear(nn.Linear):
    """``y = W x + b + (alpha / rank) · B A x``, equation (3) of the paper: (…, in) to (…, out).

    W and b are the tensors of ``linear``, and frozen. A is random and B zero, so that at first the output is that of ``linear``.
    """

    def __init__(self, linear: nn.Linear, *, rank: int, alpha: float):
        super().__init__(linear.in_features, linear.out_features, bias=linear.bias is not None, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        self.requires_grad_(False)
        self.scale = alpha / rank
        place = {"device": linear.weight.device, "dtype": linear.weight.dtype}
        self.lora_A = nn.Linear(self.in_features, rank, bias=False, **place)  # torch's initialization is PEFT's, Kaiming-uniform
        self.lora_B = nn.Linear(rank, self.out_features, bias=False, **place)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.scale * self.lora_B(self.lora_A(x))

    @property
    def merged_weight(self) -> Tensor:
        """The weight with its adapter merged, ``W + (alpha / rank) · B A``: (out, in)."""
        return self.weight + self.scale * self.lora_B.weight @ self.lora_A.weight


def add_adapters(model: Model, settings: LoraSettings) -> None:
    """Replace each of `target_layers` by the layer with an adapter."""
    for name, layer in target_layers(model, settings).items():
        model.set_submodule(name, LowRankLinear(layer, rank=settings.rank, alpha=settings.alpha))


def target_layers(model: Model, settings: LoraSettings) -> dict[str, nn.Linear]:
    """Return the linear layers that ``settings.targets`` names, inside the model's blocks, by name.

    Raises:
        ConfigError: the blocks have no linear layer of that name, or none at all.
    """
    inside = {module for layer in model.layers() for module in layer.modules()}
    inside -= {module for part in model.readout().values() for module in part.modules()}  # it is trained without adapters
    layers = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear) and module in inside}
    known = sorted({_last(name) for name in layers})
    if not known:
        what = f"the blocks of a {type(model).__name__} have no linear layers, which adapters need"
        raise ConfigError(what, where="--tune", hint="take --tune all or --tune head")
    targets = {name for target in settings.targets for name in _names_of(target, known)}
    return {name: layer for name, layer in layers.items() if _last(name) in targets}


def _names_of(target: str, known: list[str]) -> list[str]:
    """Return the target's name, or for ``qkv`` in attention without that layer, the names of its separate projections."""
    apart = [name for name in APART if name in known]
    if target == "qkv" and target not in known and apart:
        return apart
    if target not in known:
        raise unknown("linear layer of the model's layers", target, known, where="lora.targets")
    return [target]


def adapters(model: Model) -> dict[str, LowRankLinear]:
    """Return the layers with an adapter, by name."""
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, LowRankLinear)}


@torch.no_grad()
def merge_lora(model: Model) -> Model:
    """Return a plain model without adapters, with copied weights, that computes the same as the model with them."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items() if not _is_low_rank(name)}
    state |= {f"{name}.weight": layer.merged_weight for name, layer in adapters(model).items()}
    merged = empty_model(model.config)
    merged.load_state_dict(state, assign=True)
    return merged.to(next(model.parameters()).device).train(model.training)


def save_adapter(folder: Path, model: Model, settings: LoraSettings, *, whole: list[str], base: str | None) -> None:
    """Write a model's adapters in PEFT's format; an interrupted write leaves no folder.

    Args:
        folder: folder for ``adapter_config.json`` and ``adapter_model.safetensors``.
        model: the model with adapters, from `add_adapters`.
        settings: the settings that the adapters were added with.
        whole: names of parts trained without adapters, such as the head; PEFT's ``modules_to_save``.
        base: name of the fine-tuned model.
    """
    parts = tuple(f"{part}." for part in whole)
    tensors = {name: t for name, t in model.state_dict().items() if _is_low_rank(name) or name.startswith(parts)}
    config = {
        "peft_type": "LORA",
        "base_model_name_or_path": base,
        "r": settings.rank,
        "lora_alpha": settings.alpha,
        "target_modules": list(adapters(model)),
        "modules_to_save": whole,
        "bias": "none",
        "inference_mode": True,
    }
    with whole_folder(folder) as draft:
        write_json(draft / CONFIG, config)
        write_tensors(draft / WEIGHTS, {f"{PREFIX}{name}": tensor for name, tensor in tensors.items()})
        write_sums(draft)


def load_adapter(model: Model, folder: Path) -> None:
    """Add the adapters in a folder, written by `save_adapter` or PEFT, to the model that they were trained on.

    Parts that were trained without adapters, such as the head, replace the model's. `merge_lora` then returns a plain model.

    Raises:
        ModelFileError: the files are missing, damaged, for another model, or of an unsupported kind; the model is unchanged.
    """
    with verified(folder, (CONFIG, WEIGHTS)):
        rank, alpha = _rank_and_alpha(read_json(folder / CONFIG), folder / CONFIG)
        tensors = {name.removeprefix(PREFIX): tensor for name, tensor in read_tensors(folder / WEIGHTS).items()}
    layers = {name: layer for name, layer in model.named_modules() if type(layer) is nn.Linear}
    adapted = {name.rpartition(".lora_")[0] for name in tensors if _is_low_rank(name)} & layers.keys()
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items() if not _is_low_rank(name)}
    for name in adapted:
        expected[f"{name}.lora_A.weight"] = (rank, layers[name].in_features)
        expected[f"{name}.lora_B.weight"] = (layers[name].out_features, rank)
    _require_fit(tensors, expected, folder / WEIGHTS)
    for name in adapted:
        model.set_submodule(name, LowRankLinear(layers[name], rank=rank, alpha=alpha))
    model.load_state_dict(tensors, strict=False)


def _require_fit(tensors: Mapping[str, Tensor], expected: Mapping[str, tuple[int, ...]], file: Path) -> None:
    """Raise `ModelFileError` for tensors without a counterpart in the model, for incomplete adapters, and if there are none."""
    low_rank = {name for name in expected if _is_low_rank(name)}
    problems = [f"missing {name}" for name in low_rank - tensors.keys()] if low_rank else ["missing adapters"]
    problems += [f"unexpected {name}" for name in tensors.keys() - expected.keys()]
    problems += [
        f"{name} is {tuple(tensors[name].shape)}, expected {expected[name]}"
        for name in tensors.keys() & expected.keys()
        if tuple(tensors[name].shape) != expected[name]
    ]
    if problems:
        what = f"the adapters do not fit the model: {some(sorted(problems))}"
        raise ModelFileError(what, where=file, hint="give the model that they were trained on")
    require_numbers(tensors, file)


def _rank_and_alpha(config: Mapping[str, Any], file: Path) -> tuple[int, float]:
    """Return rank and alpha from PEFT's configuration; raises `ModelFileError` if another setting changes the output."""
    others = {name: value for name, value in config.items() if value and name not in WITHOUT_EFFECT}
    kind, rank, alpha = (others.pop(name, None) for name in ("peft_type", "r", "lora_alpha"))
    if kind != "LORA":
        raise ModelFileError(f"peft_type is {kind!r}, expected 'LORA'", where=file, hint="give low-rank adapters")
    known = {"bias": ("none",), "init_lora_weights": (True, "gaussian")}  # other values change the frozen matrices as well
    strange = sorted(name for name, value in others.items() if value not in known.get(name, ()))
    if strange:
        raise ModelFileError(
            f"these settings of the adapters are not supported: {', '.join(strange[:8])}",
            where=file,
            hint="merge the adapters with PEFT's merge_and_unload, and give the resulting model",
        )
    if not (isinstance(rank, int) and isinstance(alpha, int | float) and 0 < rank <= 2**16 and 0 < alpha <= 2**16):
        raise ModelFileError(f"r is {rank!r} and lora_alpha {alpha!r}", where=file, hint="write the folder again")
    return rank, alpha


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _is_low_rank(name: str) -> bool:
    return name.endswith((".lora_A.weight", ".lora_B.weight"))

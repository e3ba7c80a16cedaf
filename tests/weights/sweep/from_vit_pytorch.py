"""vit-pytorch: every class that makes class scores of images, and its ViT's earlier versions."""

import inspect
import pkgutil
from functools import cache
from importlib import import_module
from pathlib import Path

import vit_pytorch
from safetensors.torch import save_file

from sweep.judging import Asked, Findings, randomized
from sweep.vit_pytorch_versions import VERSIONS, vit_pytorch_class

SMALL = {
    "image_size": 40, "img_size": 40, "patch_size": 8, "num_classes": 5, "dim": 96, "depth": 2, "heads": 2, "mlp_dim": 80,
    "cls_depth": 1, "max_tokens_per_depth": (25, 9), "num_residual_streams": 2, "freq_patch_size": 8, "mlp_mult": 2,
    "num_slots": 4, "input_shape": (40, 40), "pre_loop_depth": 1, "post_loop_depth": 1, "num_looped_blocks": 1, "loop_depth": 2,
    "embedding_dim": 96, "num_layers": 2, "num_heads": 2, "ndim": 2, "sm_dim": 96, "lg_dim": 96, "sm_patch_size": 4,
    "lg_patch_size": 8, "n_input_channels": 3, "seq_pool": True, "sequence_length": 25,
}  # fmt: skip
"""As far as a class takes these arguments."""
CHANGES = ({}, {"pool": "mean"}, {"channels": 1}, {"depth": 1})


@cache
def _classes() -> dict[str, type]:
    found = {f"vit {version}": vit_pytorch_class(version) for version in VERSIONS.values() if version}
    for _, module, _ in pkgutil.iter_modules(vit_pytorch.__path__):
        try:
            members = vars(import_module(f"vit_pytorch.{module}")).items()
        except ImportError:  # of a package that is not there
            continue
        for name, kind in members:
            own = inspect.isclass(kind) and kind.__module__ == f"vit_pytorch.{module}"
            takes = inspect.signature(kind).parameters.keys() if own else set()
            if "num_classes" in takes and not takes & {"frames", "seq_len", "max_frames"}:
                found[f"{module} {name}"] = kind
    return found


def names() -> list[str]:
    """Every class, and every class with each change that it takes."""
    return [
        f"{name} {', '.join(f'{field}={value}' for field, value in change.items())}".strip()
        for name, kind in _classes().items()
        for change in CHANGES
        if change.keys() <= inspect.signature(kind).parameters.keys()
    ]


def judge(name: str, folder: Path) -> Findings:
    """Read a model from its tensors alone: there is nothing else in vit-pytorch."""
    module, kind, *rest = name.split()
    change = next(change for change in CHANGES if [f"{field}={value}" for field, value in change.items()] == rest)
    made = _classes()[f"{module} {kind}"]
    result = Findings("vit-pytorch", name)
    try:
        takes = inspect.signature(made).parameters
        theirs = randomized(made(**{field: value for field, value in {**SMALL, **change}.items() if field in takes}))
        asked = Asked(theirs, (40, 40), change.get("channels", 3))
    except Exception as error:
        return result.skipped(error)
    file = folder / "weights.safetensors"
    save_file({name: tensor.detach().clone().contiguous() for name, tensor in theirs.state_dict().items()}, file)
    layout = next((layout for layout, version in VERSIONS.items() if kind == version), None)
    if layout is None:
        result.read_bare(file, asked, None)
        return result
    pool = {"pool": "mean"} if "pool" in change else {}
    result.read("file, told what it is", file, asked, layout=layout, **pool)
    result.read_bare(file, asked, {**pool, "layout": layout} if kind == "0.5.1" else pool)  # 0.6 has the same keys
    return result

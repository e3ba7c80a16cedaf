"""Makes torchvision importable beside a torch that its compiled operators were not built for.

The reference libraries (timm, vit-pytorch, transformers) import torchvision for its Python part alone. Where its operators
cannot load, its import stops at registering what they would look like; declaring their names is enough to get past that.
"""

import contextlib
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch


@cache
def declare_operators() -> torch.library.Library | None:
    """Declare the operators that torchvision registers shapes for; what is returned must be kept as long as they are needed.

    None where torchvision is not installed, or has operators for this torch.
    """
    spec = find_spec("torchvision")
    if spec is None or spec.origin is None:
        return None
    for compiled in Path(spec.origin).parent.glob("_C.*"):
        with contextlib.suppress(OSError):
            torch.ops.load_library(compiled)
            return None
    source = Path(spec.origin).with_name("_meta_registrations.py").read_text(encoding="utf-8")
    names = {"nms", *re.findall(r'register_(?:fake|meta)\("(?:torchvision::)?(\w+)"\)', source)}
    library = torch.library.Library("torchvision", "DEF")
    for name in sorted(names):
        library.define(f"{name}(Tensor x) -> Tensor")
    return library

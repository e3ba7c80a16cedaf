"""vit-pytorch's ViT: today's, and earlier versions, which the Makefile installs each into a folder of its own."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import vit_pytorch

VERSIONS = {
    "vit-pytorch": None,
    "vit-pytorch-1.0": "1.0.2",
    "vit-pytorch-0.16": "0.16.13",
    "vit-pytorch-early": "0.6.8",
    "vit-pytorch-0.5": "0.5.1",
}
"""Our layouts' versions; None is today's."""


def vit_pytorch_class(version: str | None, module_file: str = "vit.py", name: str = "ViT") -> type:
    """The ViT of a version, or another class of it."""
    if version is None:
        return vit_pytorch.ViT
    package = Path(sys.prefix, "vit-pytorch", version, "vit_pytorch")
    file = next(package / each for each in (module_file, "vit_pytorch.py") if (package / each).exists())
    spec = spec_from_file_location(f"vit_pytorch_{version.replace('.', '_')}", file)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)

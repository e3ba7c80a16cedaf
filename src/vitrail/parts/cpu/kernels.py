"""Which of several ways to compute the same this process takes."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Kernels:
    """The quickest ways on a machine. All give the same numbers, up to rounding."""

    explicit_learning: int
    """Tokens up to which attention in bf16 with gradients is quicker written out than by torch's fused kernel."""
    explicit_answering: int
    """The same without gradients."""
    prepacked: bool
    """True if linear layers in inference are quicker with weights laid out for the processor."""
    bf16: bool
    """True if products are quicker in bf16 than in fp32."""


def likely() -> Kernels:
    """Return the kernels that a processor's instructions suggest without a measurement."""
    can = torch.cpu.get_capabilities()
    bf16 = bool(can.get("avx512_bf16") or can.get("amx_bf16"))
    return Kernels(
        explicit_learning=1024 if bf16 else 0,
        explicit_answering=0 if not bf16 else 40 if can.get("amx_tile") else 1024,
        prepacked=True,
        bf16=bf16,
    )


_used: Kernels | None = None


def kernels() -> Kernels:
    """Return the kernels of this process."""
    global _used
    if _used is None:
        _used = likely()
    return _used


def use(found: Kernels) -> None:
    """Compute with these from now on."""
    global _used
    _used = found

"""The implementations of attention and linear layers that this process uses on a CPU."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Kernels:
    """The fastest implementations on a machine. All give the same numbers, up to rounding."""

    explicit_learning: int
    """Tokens up to which explicit attention in bf16 with gradients is faster than torch's fused kernel."""
    explicit_answering: int
    """The same without gradients."""
    prepacked: bool
    """True if linear layers are faster in inference with weights prepacked for the processor."""
    bf16: bool
    """True if matrix products are faster in bf16 than in fp32."""


def likely() -> Kernels:
    """Return the kernels that the processor's instruction sets suggest, without a measurement."""
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
    """Return the kernels that this process uses."""
    global _used
    if _used is None:
        _used = likely()
    return _used


def use(found: Kernels) -> None:
    """Use these kernels in this process from now on."""
    global _used
    _used = found

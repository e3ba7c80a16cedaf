"""Cost of a model: shapes, parameters and multiply-adds of every layer, counted without computing them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from vitrail.models.configs.base import ModelConfig
from vitrail.models.empty import empty_model


@dataclass(frozen=True)
class Layer:
    """Cost of one module, without the modules inside it."""

    name: str
    kind: str
    input: list[int]
    output: list[int]
    parameters: int
    macs: int


@dataclass(frozen=True)
class Cost:
    """Cost of a model for one image, layer by layer."""

    layers: list[Layer]

    @property
    def parameters(self) -> int:
        """Number of all parameters."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def macs(self) -> int:
        """Multiply-adds of one image: every matrix product and convolution, the attention products included."""
        return sum(layer.macs for layer in self.layers)

    def to_dict(self, model: str) -> dict[str, Any]:
        """Return the document of `vitrail summary --json`."""
        layers = [asdict(layer) for layer in self.layers]
        return {"model": model, "parameters": self.parameters, "macs": self.macs, "layers": layers}

    def to_text(self, model: str) -> str:
        """Return a table of the layers, a row each, with the totals below."""
        rows = [("name", "kind", "input", "output", "parameters", "multiply-adds")]
        rows += [(x.name, x.kind, _shape(x.input), _shape(x.output), f"{x.parameters:,}", f"{x.macs:,}") for x in self.layers]
        rows += [("total", model, "", "", f"{self.parameters:,}", f"{self.macs:,}")]
        widths = [max(len(row[i]) for row in rows) for i in range(6)]
        lines = [
            "  ".join(c.rjust(w) if i > 3 else c.ljust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True))) for r in rows
        ]
        rule = "─" * len(lines[0])
        return "\n".join([lines[0], rule, *lines[1:-1], rule, lines[-1]])


def _shape_of(value: Any) -> list[int]:
    return list(value.shape) if isinstance(value, Tensor) else []


def _shape(shape: list[int]) -> str:
    return " × ".join(map(str, shape))


def cost(config: ModelConfig) -> Cost:
    """Count a model of this configuration on one image, without allocating its parameters."""
    model = empty_model(config).eval().to("meta")  # buffers such as fixed positions are built outside of "meta"
    shapes: dict[str, tuple[list[int], list[int]]] = {}
    callers: dict[str, str] = {}
    running: list[str] = []

    def watch(name: str, module: nn.Module) -> None:
        def begin(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            if running:
                callers[name] = running[-1]
            running.append(name)

        def end(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            running.pop()
            shapes[name] = (_shape_of(inputs[0]) if inputs else [], _shape_of(output))

        module.register_forward_pre_hook(begin)
        module.register_forward_hook(end)

    for name, module in model.named_modules():
        watch(name, module)
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter, model.every_token():  # usual counts include tokens that the head does not read
        model.requires_grad_(False)(**model.dummy_inputs())
    counts = {name.partition(".")[2]: sum(c.values()) // 2 for name, c in counter.get_flop_counts().items() if name != "Global"}
    macs = _own(counts, callers)
    layers = []
    for name, module in model.named_modules():
        parameters = sum(p.numel() for p in module.parameters(recurse=False))
        if parameters or macs.get(name):
            kind = type(module).__name__
            layers.append(Layer(name or "(tokens)", kind, *shapes.get(name, ([], [])), parameters, macs.get(name, 0)))
    return Cost(layers)


def totals(config: ModelConfig) -> tuple[int, int]:
    """Return parameters and multiply-adds as `cost` does; for equal layers, from models of depth 1 and 2."""
    depth = config.repeated
    if depth is None:
        whole = cost(config)
        return whole.parameters, whole.macs
    one, two = (cost(config.changed(depth=count)) for count in (1, 2))
    more = depth - 1
    return one.parameters + more * (two.parameters - one.parameters), one.macs + more * (two.macs - one.macs)


def _own(counts: dict[str, int], callers: Mapping[str, str]) -> dict[str, int]:
    """Return each module's own counts, from counts that include the modules it calls; a caller may be no parent."""
    own = dict(counts)
    for name, count in counts.items():
        if (caller := callers.get(name)) is not None:
            own[caller] -= count
    return own

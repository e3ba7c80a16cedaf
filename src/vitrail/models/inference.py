"""Copies of models for inference, made as fast as possible."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeVar, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from vitrail.errors import unknown
from vitrail.models.calibration import use_measured
from vitrail.parts.attention.cvt_attention import DepthwiseConv
from vitrail.parts.cpu.kernels import kernels
from vitrail.parts.cpu.prepacked import FUSED, PrepackedLinear, prepacks
from vitrail.parts.feed_forward import FeedForward
from vitrail.parts.vision.conv_norm import StridedConv2d
from vitrail.parts.vision.standardized import FixedConv2d, StandardizedConv2d
from vitrail.runtime.device import TYPES, Precision

Model = TypeVar("Model", bound=nn.Module)


class Answering(nn.Module):
    """A wrapper whose output is float32, whatever precision the model computes in. Inputs are images (B, C, H, W), or named."""

    def __init__(self, model: nn.Module, dtype: torch.dtype):
        super().__init__()
        self.model, self.dtype = model, dtype

    def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor:
        given = [self._as_computed(tensor) for tensor in inputs]
        answers: Tensor = self.model(*given, **{name: self._as_computed(tensor) for name, tensor in named.items()})
        return answers.float()

    @property
    def config(self) -> Any:
        """The model's configuration."""
        return self.model.config

    def _as_computed(self, tensor: Tensor) -> Tensor:
        """Convert floats to the model's precision; tokens stay integers, and times (B,), whose waves need all digits, float32."""
        return tensor.to(self.dtype) if tensor.is_floating_point() and tensor.ndim > 1 else tensor

    def encode(self, images: Tensor) -> Tensor:
        """Return all encoder tokens of the images: (B, N, D)."""
        network: Any = self.model
        tokens: Tensor = network.encode(images.to(self.dtype))
        return tokens.float()

    def vectors(self, images: Tensor) -> Tensor:
        """Return the vectors (B, D) that the model's heads read, for the images."""
        network: Any = self.model
        vectors: Tensor = network.vectors(images.to(self.dtype))
        return vectors.float()


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Set a module to evaluation mode inside the ``with``, and restore the mode of each submodule afterwards."""
    training = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, was in training.items():
            part.training = was


def in_evaluation_mode(model: Model, device: torch.device | str = "cpu") -> Model:
    """Return the model in evaluation mode on a device: the model itself if it already is, else a copy.

    The argument is never changed, since it may be in training. On the same device the copy shares its parameters.
    """
    place = torch.empty(0, device=device).device
    is_there = all(tensor.device == place for tensor in (*model.parameters(), *model.buffers()))
    if is_there and not any(module.training for module in model.modules()):
        return model
    return (sharing_copy(model) if is_there else copy.deepcopy(model).to(device)).eval()


def sharing_copy(model: Model) -> Model:
    """Return a copy whose modules can be replaced, and whose parameters and buffers are the original's tensors."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared)


def standardized(model: Model) -> Model:
    """Return a copy whose filters are standardised in advance.

    An exported graph needs this: ONNX's exporter rounds the epsilon of 1e-8 to zero and drops it.
    """
    found = sharing_copy(model)
    for name, module in list(found.named_modules()):
        if isinstance(module, StandardizedConv2d):
            found.set_submodule(name, FixedConv2d(module))
    return found


def _with_norms_folded(model: Model) -> Model:
    """Fold the running statistics of each BatchNorm into the convolution before it."""
    for name, module in list(model.named_modules()):
        if isinstance(module, DepthwiseConv):
            model.set_submodule(name, fuse_conv_bn_eval(module.convolution, module.norm))
        elif isinstance(module, nn.Sequential):
            _fold_norms(module)
    return model


def _fold_norms(layers: nn.Sequential) -> None:
    """Fold each BatchNorm that follows a convolution into it, and leave an identity in its place."""
    children: list[tuple[str, Any]] = list(layers.named_children())
    for (name, layer), (behind, norm) in pairwise(children):
        if type(layer) in (nn.Conv2d, StridedConv2d, nn.ConvTranspose2d) and isinstance(norm, nn.BatchNorm2d):
            folded = fuse_conv_bn_eval(layer, norm, transpose=isinstance(layer, nn.ConvTranspose2d))
            layers.set_submodule(name, folded)
            layers.set_submodule(behind, nn.Identity())


def _with_activations_fused(model: Model) -> Model:
    """Let each MLP's first layer apply the activation, if it is prepacked and nothing comes between the two."""
    for module in model.modules():
        if isinstance(module, FeedForward) and type(module).exchanged is FeedForward.exchanged:
            expand: Any = module.expand
            if isinstance(expand, PrepackedLinear) and module.activation in FUSED:
                expand.activation, module.activation = module.activation, None
    return model


def quickest_precision(device: torch.device) -> Precision:
    """Return bf16 if the device computes faster in it, else fp32."""
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    use_measured()
    return "bf16" if device.type == "cpu" and kernels().bf16 else "fp32"


def for_inference(model: nn.Module, precision: Precision = "fp32") -> Answering:
    """Return a copy of a model for inference: weights in ``precision``, on a CPU in the layout that is fastest.

    In fp32 the outputs equal the model's, up to rounding. In bf16 they agree to two or three digits, and take about half the
    time on a processor with bf16 instructions. The copy is in evaluation mode, on the model's device, and shares unchanged
    tensors with it.

    Raises:
        ConfigError: an unknown precision.
    """
    if precision not in (known := get_args(Precision)):
        raise unknown("precision", precision, [*known], where="precision")
    use_measured()
    dtype = TYPES[precision]
    fast = _with_norms_folded(standardized(model).eval())
    for name, module in list(fast.named_modules()):
        if type(module) is nn.Linear and prepacks(module.weight.device, dtype):
            fast.set_submodule(name, PrepackedLinear(module, dtype))
            continue
        for key, parameter in module.named_parameters(recurse=False):
            setattr(module, key, nn.Parameter(parameter.to(dtype), requires_grad=False))
        for key, table in module.named_buffers(recurse=False):
            setattr(module, key, table.to(dtype) if table.is_floating_point() else table)
    return Answering(_with_activations_fused(fast), dtype).eval()

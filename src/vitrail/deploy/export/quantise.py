"""Post-training quantisation of a graph to int8 with NNCF, from some images.

Matrix products with weights become int8. Activations are scaled by their extremes on the images, after SmoothQuant (Xiao et al.
2022, https://arxiv.org/abs/2211.10438). These stay in floats: the last product of the last MLP, whose inputs have the largest
outliers; the head, which costs almost no time; the products of token merging, where rounding would change which tokens are
merged; and in OpenVINO attention, which is as fast in bf16.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from vitrail.deploy.bench.libraries import extra, onnx, openvino
from vitrail.deploy.problems import ExportError, explained
from vitrail.models.base import ImageModel

SMOOTH = 0.8
"""SmoothQuant's alpha: how much of the range of activations is moved into the weights; see docs/deploy.md."""

ATTENTION = "scaled_dot_product_attention"


def quantise_openvino(graph: Any, images: Sequence[np.ndarray], kept: set[str]) -> Any:
    """Return an OpenVINO graph quantised to int8.

    Args:
        graph: the graph in fp32.
        images: inputs of the graph, (1, C, H, W) each.
        kept: names of products in the traced program that stay in floats.

    Raises:
        ExportError: the graph cannot be quantised.
        ConfigError: the library is not installed.
    """
    products = [node for node in graph.get_ordered_ops() if node.get_type_name() == "MatMul"]
    both = [node.get_friendly_name() for node in products if not _is_weight(node.input_value(1).get_node())]
    named = [n.get_friendly_name() for n in products if n.get_friendly_name().partition("/")[0] in kept]
    attention = {node.get_type_name() for node in graph.get_ordered_ops()} & {"ScaledDotProductAttention"}
    return _with_biases_of(graph, _quantise(graph, list(images), [*both, *named], sorted(attention)))


def quantise_onnx(file: Path, images: Sequence[np.ndarray], kept: set[str]) -> Path:
    """Quantise the file of an ONNX graph to int8, in place; return the file. Arguments are as in `quantise_openvino`."""
    model = onnx().load(file)
    weights = {tensor.name for tensor in model.graph.initializer}
    name = model.graph.input[0].name
    products = [node for node in model.graph.node if node.op_type in ("MatMul", "Gemm")]
    traced = {node.name: _traced_from(node) for node in products}
    merging = {n.name for n in products if n.input[1] not in weights and not traced[n.name].startswith(ATTENTION)}
    floats = [name for name, origin in traced.items() if name in merging or origin in kept]
    described = list(model.metadata_props)
    quantised = _quantise(model, [{name: image} for image in images], floats, [])
    del quantised.metadata_props[:]
    quantised.metadata_props.extend(described)
    onnx().save(quantised, file)
    file.with_name(f"{file.name}.data").unlink(missing_ok=True)  # the fp32 weights of a large graph
    return file


def last_products(program: torch.export.ExportedProgram, model: ImageModel) -> set[str]:
    """Return the names, in a model's traced program, of linear layers that stay in floats: the head, and the last of all tokens.

    The head, with one row per image, must stay in floats: OpenVINO 2026.4 applies SmoothQuant's factors to a mean over tokens
    along a wrong axis.
    """
    names = {module: name for name, module in model.named_modules()}
    linears = [f".{names[module]}" for module in model.layers()[-1].modules() if isinstance(module, nn.Linear)]
    found = set()
    for node in program.graph.nodes:
        if node.target is torch.ops.aten.linear.default:
            module = [name for name, _ in node.meta["nn_module_stack"].values()][-1]
            if node.meta["val"].dim() == 2 or module.endswith(tuple(linears[-1:])):
                found.add(node.name)
    return found


def _quantise(graph: Any, images: list[Any], floats: list[str], kinds: list[str]) -> Any:
    with extra("nncf"):
        import nncf
        from nncf.quantization.advanced_parameters import AdvancedQuantizationParameters, AdvancedSmoothQuantParameters
        from nncf.quantization.range_estimator import RangeEstimatorParametersSet
    if not images:
        raise ExportError("int8 needs images to find the ranges of activations, but there are none", where="--calibrate")
    with explained("the model cannot be quantised"):
        return nncf.quantize(
            graph,
            nncf.Dataset(images),
            subset_size=len(images),
            preset=nncf.QuantizationPreset.MIXED,
            model_type=nncf.ModelType.TRANSFORMER,
            ignored_scope=nncf.IgnoredScope(names=floats, types=kinds),
            advanced_parameters=AdvancedQuantizationParameters(
                smooth_quant_alphas=AdvancedSmoothQuantParameters(convolution=-1, matmul=SMOOTH),
                activations_range_estimator_params=RangeEstimatorParametersSet.MINMAX,
            ),
        )


def _with_biases_of(graph: Any, quantised: Any) -> Any:
    """Restore the original biases of convolutions in a quantised graph: NNCF's correction of them is wrong with padding."""
    had, has = _sums_of_convolutions(graph), _sums_of_convolutions(quantised)
    for name in had.keys() & has.keys():
        bias = had[name].input_value(1)
        constant = openvino().opset13.constant(_origin(bias.get_node()).get_data().reshape(bias.get_shape()))
        has[name].input(1).replace_source_output(constant.output(0))
    return quantised


def _sums_of_convolutions(graph: Any) -> dict[str, Any]:
    """Return the nodes that add biases to convolutions, by name."""
    convolutions = [node for node in graph.get_ordered_ops() if node.get_type_name() == "Convolution"]
    nodes = [target.get_node() for node in convolutions for target in node.output(0).get_target_inputs()]
    return {n.get_friendly_name(): n for n in nodes if n.get_type_name() == "Add" and _is_weight(n.input_value(1).get_node())}


def _is_weight(node: Any) -> bool:
    """Return whether a value is a constant, possibly cast or transposed."""
    return bool(_origin(node).get_type_name() == "Constant")


def _origin(node: Any) -> Any:
    """Return the node before any casts, transposes and reshapes."""
    while node.get_type_name() in ("Convert", "Transpose", "Reshape"):
        node = node.input_value(0).get_node()
    return node


def _traced_from(node: Any) -> str:
    """Return the name of an ONNX node in the traced program: the last of ``['', 'blocks.0', …, 'linear_4']``."""
    scopes = {entry.key: entry.value for entry in node.metadata_props}.get("pkg.torch.onnx.name_scopes", "")
    names = re.findall(r"'([^']*)'", scopes)
    return names[-1] if names else ""

"""From a model in Python to a graph: traced once, written for an engine, and kept only if it answers as the model does."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from vitrail.data.images.preparation import Preparation
from vitrail.deploy.bench.engines import ENGINES, Session, as_predictor, openvino_session
from vitrail.deploy.bench.libraries import onnx, openvino
from vitrail.deploy.export.artefact import ENGINE, KEY, Description, Target
from vitrail.deploy.export.quantise import last_products, quantise_onnx, quantise_openvino
from vitrail.deploy.export.split_qkv import apart
from vitrail.deploy.predictor import Predictor
from vitrail.deploy.problems import ExportError, explained
from vitrail.errors import ConfigError
from vitrail.models.inference import Answering, in_evaluation_mode, standardized
from vitrail.models.signature import Shape
from vitrail.weights.formats.safe_files import GRAPHS
from vitrail.weights.model_folder.folder import TrainedModel

BATCHES = (1, 2, 3, 7, 16)
"""Images at a time with which a graph is tried."""
CLOSE = 1e-4
"""Difference from the model in fp32 that is always allowed, however small the range of its numbers is."""
ROUGHLY = {"bf16": 0.1, "fp16": 0.02}
"""Largest difference from the model in lower precisions, as a fraction of the range of its numbers."""
LARGEST_FILE = 1_800_000_000
"""Bytes of weights that one ONNX file has room for, less than its 2 GiB; more of them lie in a file beside it."""
MOST_PATCHES = 4096
"""Rows, and columns, of patches in images of any size."""
HALF = {
    ("onnx", "fp16"): torch.float16,
    ("torch", "fp16"): torch.float16,
    ("torch", "bf16"): torch.bfloat16,
}
"""What graphs compute in that are traced in less than fp32; in the others the engine does it."""
IMPOSSIBLE = {
    ("onnx", "bf16"): (
        "ONNX Runtime does not compute in bf16 on a processor", "take --to openvino, or --precision fp16 or int8"
    ),
    ("torch", "int8"): ("int8 is for the engines", "take --to openvino or --to onnx"),
}  # fmt: skip
"""What no engine computes, why, and what does."""


class Network(nn.Module):
    """The module that is traced: images (B, C, H, W), float32 or pixels, and further inputs to the model's outputs in float32.

    Args:
        model: in evaluation mode.
        dtype: that it computes in.
        preparation: normalises pixels first, where the graph is to take those.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype = torch.float32, preparation: Preparation | None = None):
        super().__init__()
        self.answering = Answering(model if dtype == torch.float32 else copy.deepcopy(model).to(dtype), dtype)
        self.preparation = preparation

    def forward(self, images: Tensor, *others: Tensor) -> Tensor:
        if self.preparation is not None:
            images = self.preparation.normalize(images)
        answers: Tensor = self.answering(images, *others)
        return answers


def trace(network: Network, inputs: Mapping[str, Shape], steps: tuple[int, int] | None = None) -> torch.export.ExportedProgram:
    """The network as a graph of torch's, for any number of images.

    Args:
        network: what is traced.
        inputs: of the model, as `Model.inputs` has them.
        steps: heights and widths may be any multiples of these; None fixes the size.

    Raises:
        ExportError: it cannot be traced.
    """
    dtype = torch.float32 if network.preparation is None else torch.uint8
    images = inputs["images"].zeros(batch=2).to(dtype)  # with a single one its number would become part of the graph
    unknown: dict[int, Any] = {0: torch.export.Dim("batch")}
    if steps is not None:
        images = images.new_zeros(*images.shape[:2], *(side * step for side, step in zip((5, 6), steps, strict=True)))
        names = enumerate(("rows", "columns"), 2)
        unknown |= {i: steps[i - 2] * torch.export.Dim(name, min=2, max=MOST_PATCHES) for i, name in names}
    with explained("the model cannot be traced"), torch.no_grad():
        others = [shape.zeros(batch=2) for name, shape in inputs.items() if name != "images"]
        shapes = (unknown, tuple({0: unknown[0]} for _ in others)) if others else (unknown,)
        program = torch.export.export(network.eval(), (images, *others), dynamic_shapes=shapes, strict=False)
    for node in program.graph.nodes:  # a graph goes to others, whom the folders of this machine do not concern
        node.meta.pop("stack_trace", None)
    return program


def to_openvino(program: torch.export.ExportedProgram, gives: str = "logits", takes: Sequence[str] = ("images",)) -> Any:
    """Return the graph as OpenVINO's, with its inputs and its output named.

    Raises:
        ExportError: it cannot be converted.
        ConfigError: the library is not installed.
    """
    library = openvino()
    with explained("OpenVINO cannot convert the model"):
        graph = library.convert_model(program)
        for given, name, shape in zip(graph.inputs, takes, _shapes(program), strict=True):
            given.get_node().set_partial_shape(library.PartialShape([-1, *shape]))
            given.set_names({name})
        graph.outputs[0].set_names({gives})
        graph.validate_nodes_and_infer_types()
    return graph


def to_onnx(program: torch.export.ExportedProgram, gives: str = "logits", takes: Sequence[str] = ("images",)) -> Any:
    """Return the graph as torch's ``ONNXProgram``, with its inputs and its output named.

    Raises:
        ExportError: it cannot be converted.
        ConfigError: the library is not installed.
    """
    onnx()
    with explained("the model cannot be written as ONNX"), sdpa_kernel(SDPBackend.MATH):  # of one layout in all its passes
        return torch.onnx.export(program, (), dynamo=True, input_names=list(takes), output_names=[gives], verbose=False)


def _shapes(program: torch.export.ExportedProgram) -> Iterator[list[int]]:
    """Yield the sides behind the batch of each input of a program; −1 for what is not fixed."""
    nodes = {node.name: node for node in program.graph.nodes}
    for name in program.graph_signature.user_inputs:
        yield [side if isinstance(side, int) else -1 for side in nodes[str(name)].meta["val"].shape[1:]]


def write_openvino(graph: Any, about: Description, folder: Path) -> Path:
    """The graph with what it does not say of itself; in half precision its weights take half the room."""
    graph.set_rt_info(about.to_json(), KEY)
    file = folder / GRAPHS["openvino"]
    with explained("OpenVINO cannot write the model"):
        openvino().save_model(graph, file, compress_to_fp16=about.precision == "fp16")
    return file


def write_onnx(program: Any, about: Description, folder: Path) -> Path:
    """The graph with what it does not say of itself."""
    program.model.metadata_props[KEY] = about.to_json()
    file = folder / GRAPHS["onnx"]
    size = sum(value.const_value.nbytes for value in program.model.graph.initializers.values() if value.const_value is not None)
    with explained("the model cannot be written as ONNX"):
        program.save(file, external_data=size > LARGEST_FILE)
    return file


def write_torch(program: torch.export.ExportedProgram, about: Description, folder: Path) -> Path:
    """The graph with what it does not say of itself."""
    file = folder / GRAPHS["torch"]
    with explained("torch cannot write the graph"):
        torch.export.save(program, file, extra_files={KEY: about.to_json()})
    return file


def session_of(file: Path, to: Target, precision: str) -> Session:
    """Open a graph that was just written."""
    with explained("the written graph cannot be run"):
        if to != "torch":
            return ENGINES[ENGINE[to]](file, precision, torch.get_num_threads())
        module = torch.export.load(file).module()  # this process has written it

    @torch.inference_mode()
    def run(*inputs: Any) -> Any:
        return module(*map(torch.from_numpy, inputs)).numpy()

    return run


@dataclass(frozen=True)
class Verified:
    """The differences of a graph's outputs from the model's: of logits, or of the values of heatmaps."""

    batches: tuple[int, ...]
    largest: float
    """The largest difference of a number."""
    spread: float
    """Between the model's largest and smallest number."""

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        return {"batches": list(self.batches), "largest_difference": self.largest, "spread": self.spread}


@torch.inference_mode()
def verify(
    session: Session, trained: TrainedModel, about: Description, *, batches: Sequence[int] = BATCHES, seed: int = 0
) -> Verified:
    """Compare a graph with the model in Python, on random pixels, for several numbers of images at a time.

    Where tokens are merged, rounding may decide which, and with it all that follows: then half of the images must be close.
    In int8 accuracy is judged elsewhere; here an image must get the same answer alone and in a batch.

    Raises:
        ExportError: its answers differ.
    """
    random = torch.Generator().manual_seed(seed)
    c, differences, low, high = trained.config, [], float("inf"), -float("inf")
    model, sizes = in_evaluation_mode(trained.model), [c.image_size]
    network = model.at_any_size() if about.any_size else model
    if about.any_size:
        height, width = model.graph_multiple
        sizes += [(c.image_size[0] + 2 * height, c.image_size[1]), (2 * height, 3 * width)]
    for batch, size in zip(batches, cycle(sizes), strict=False):
        given, of_model = about.examples(batch, size, random)
        expected = network(*of_model).float()
        with explained(f"the written graph cannot answer {batch} images"):
            found = torch.from_numpy(session(*(tensor.numpy() for tensor in given)))
            single = torch.from_numpy(session(*(tensor[-1:].numpy() for tensor in given)))
        if found.shape != expected.shape or not found.isfinite().all():
            raise ExportError(f"of {batch} images the graph gives {tuple(found.shape)}, or values not finite", where="export")
        differences.append((single[0] - found[-1] if about.precision == "int8" else found - expected).abs().amax(dim=-1).ravel())
        low, high = min(low, expected.min().item()), max(high, expected.max().item())
    difference = torch.cat(differences)
    deviation = difference.median() if any(c.merged) else difference.max()
    spread = high - low
    allowed = max(CLOSE, about.rounding * spread) if about.precision == "fp32" else ROUGHLY.get(about.precision, 0.1) * spread
    if deviation > allowed:
        hint = "this is a mistake of the exporter or the engine: try another --to"
        what = f"the graph's {about.gives} differ from the model's by {deviation:.2g}, and {allowed:.2g} is the limit"
        raise ExportError(what, where="export", hint=hint)
    return Verified(tuple(batches), difference.max().item(), spread)


def require_possible(to: Target, precision: str) -> None:
    """Refuse what no engine computes.

    Raises:
        ConfigError: with what is possible.
    """
    if to not in GRAPHS:
        what = f"{to} runs translators in folders, and this model is none"
        raise ConfigError(what, where="--to", hint="take onnx or openvino")
    if (to, precision) in IMPOSSIBLE:
        what, hint = IMPOSSIBLE[to, precision]
        raise ConfigError(what, where="--precision", hint=hint)


@dataclass(frozen=True)
class Written:
    """A graph that was written and verified."""

    predictor: Any
    """Of the task of the model."""
    verified: Verified
    floats: Any
    """The same graph before it was quantised, in the engine's quickest floats; None where it was not."""


def export_graph(trained: TrainedModel, about: Description, to: Target, folder: Path, images: Tensor | None = None) -> Written:
    """Trace a model, quantise it where it is to be in int8, write it, and compare what was written with the model.

    Args:
        trained: the model.
        about: what is kept with the graph, its precision among it.
        to: which kind of graph.
        folder: to write to.
        images: prepared pixels, uint8 (N, C, H, W), for the ranges of activations in int8.

    Raises:
        ExportError: it cannot be made, or does not answer as the model does.
    """
    model, int8 = in_evaluation_mode(trained.model), about.precision == "int8"
    single = standardized(apart(model) if to == "openvino" else model)
    made = single.at_any_size(graph=True) if about.any_size else single
    dtype = HALF.get((to, about.precision), torch.float32)
    network = Network(made, dtype, about.preparation if about.pixels else None)
    program = trace(network, single.inputs(), single.graph_multiple if about.any_size else None)
    kept = last_products(program, single) if int8 else set()
    given = [about.given(image[None]).numpy() for image in images] if int8 and images is not None else []
    floats: Predictor | None = None
    if to == "openvino":
        graph = to_openvino(program, about.gives, list(about.inputs))
        if int8:
            session = openvino_session(graph, "quickest", torch.get_num_threads())
            floats, graph = as_predictor(session, about, "openvino floats"), quantise_openvino(graph, given, kept)
        file = write_openvino(graph, about, folder)
    elif to == "onnx":
        file = write_onnx(to_onnx(program, about.gives, list(about.inputs)), about, folder)
        if int8:
            floats = as_predictor(session_of(file, to, "fp32"), about, "onnxruntime floats")
            file = quantise_onnx(file, given, kept)
    else:
        file = write_torch(program, about, folder)
    session = session_of(file, to, about.precision)
    name = f"{ENGINE.get(to, 'torch')} {about.precision}"
    return Written(as_predictor(session, about, name), verify(session, trained, about), floats)

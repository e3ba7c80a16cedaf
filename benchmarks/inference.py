"""Images per second of ViT-B/16 in inference, beside timm, transformers, torchvision, vit-pytorch, ONNX Runtime and OpenVINO.

    python benchmarks/inference.py [--quick]

Every model has random weights. Needs the extra export and the peers that the extra dev installs.
"""

import argparse
import contextlib
import copy
import tempfile
from pathlib import Path

import numpy as np
import shapes
import side_by_side
import torch
from side_by_side import DTYPE, PRECISION, PRECISIONS
from torch import nn

import vitrail


def peers(*, quick: bool) -> dict[str, nn.Module]:
    """The libraries of torch, as they are and as they are compiled."""
    theirs = shapes.timm(shapes.BASE).eval()
    found: dict[str, nn.Module] = {"timm fp32": theirs, f"timm {PRECISION}": copy.deepcopy(theirs).to(DTYPE)}
    if not quick:
        found |= {
            "timm fp32, compiled": torch.compile(copy.deepcopy(theirs)),
            f"timm {PRECISION}, compiled": torch.compile(copy.deepcopy(theirs).to(DTYPE)),
            "transformers fp32": shapes.transformers(shapes.BASE).eval(),
            "torchvision fp32": shapes.torchvision(shapes.BASE).eval(),
        }
    found[f"vit-pytorch {PRECISION}"] = shapes.vit_pytorch(shapes.BASE).eval().to(DTYPE)
    return found


def exported(model: nn.Module, images: torch.Tensor) -> dict[str, side_by_side.Work]:
    """timm's model in ONNX Runtime and in OpenVINO, with as many threads as torch has."""
    import onnxruntime
    import openvino

    threads, array = torch.get_num_threads(), images.numpy()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        with contextlib.redirect_stdout(None):
            torch.onnx.export(model, (images,), file, dynamo=True)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        graph = openvino.Core().read_model(file)
        found: dict[str, side_by_side.Work] = {"ONNX Runtime fp32": lambda: session.run(None, {name: array})}
        for precision in PRECISIONS:
            hint = {"fp32": "f32", "bf16": "bf16"}[precision]
            settings = {"INFERENCE_PRECISION_HINT": hint, "INFERENCE_NUM_THREADS": threads}
            compiled = openvino.Core().compile_model(graph, "CPU", settings)
            found[f"OpenVINO {precision}"] = lambda compiled=compiled: compiled(array)
    return found


def ours(images: torch.Tensor) -> dict[str, side_by_side.Work]:
    """Vitrail's model in Python, in both precisions."""
    model = shapes.vitrail(shapes.BASE).eval()
    fast = {precision: vitrail.for_inference(model, precision) for precision in PRECISIONS}
    return {f"Vitrail {precision}": (lambda model=model: model(images)) for precision, model in fast.items()}


def work_of(model: nn.Module, images: torch.Tensor) -> side_by_side.Work:
    """A forward pass with images of the model's own type."""
    given = images.to(next(model.parameters()).dtype)
    return lambda: model(given)


@torch.inference_mode()
def main(*, quick: bool) -> str:
    """The tables, in Markdown."""
    torch.manual_seed(0)
    models, parts = peers(quick=quick), []
    for batch in (1, 16):
        images = torch.from_numpy(np.random.default_rng(0).standard_normal((batch, 3, 224, 224), dtype=np.float32))
        works = ours(images) | {name: work_of(model, images) for name, model in models.items()}
        works |= exported(models["timm fp32"], images)
        rounds, at_least = (4, 0.5) if quick else (14, 0.5) if batch == 1 else (6, 1.0)
        title = f"ViT-B/16, batch {batch}"
        parts.append(side_by_side.rates(title, works, batch, shapes.BASE.operations, rounds=rounds, at_least=at_least))
    return "\n".join(parts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer contenders and rounds")
    print(main(quick=parser.parse_args().quick))

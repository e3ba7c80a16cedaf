"""A training step and inference of Vision Transformers in bf16 on a GPU, beside timm, transformers and vit-pytorch.

    python benchmarks/gpu.py

Prints images per second, the share of the card's peak, memory, and where the time of Vitrail's steps goes. Every model has random
weights, the images are noise that lies on the GPU. Needs the peers that the extra dev installs.
"""

import argparse
from collections.abc import Callable
from functools import partial

import shapes
import side_by_side
import torch
from shapes import Shape
from side_by_side import Work
from torch import nn
from torch.profiler import ProfilerActivity, profile
from training_step import step, vitrail_step

import vitrail

CALLS = 5
"""Of the work, before the clock waits for the GPU: it is given work ahead, as a training does."""
SMALL = Shape(image_size=32, patch_size=4, dim=192, depth=9, heads=3, classes=10)
LARGE = Shape(image_size=224, patch_size=16, dim=1024, depth=24, heads=16, classes=1000)
TRAINED = {
    "32 px, patch 4, 192/9/3, batch 256": (SMALL, 256),
    "ViT-Ti/16, batch 256": (shapes.TINY, 256),
    "ViT-B/16, batch 128": (shapes.BASE, 128),
    "ViT-L/16, batch 64": (LARGE, 64),
}
ANSWERING = {"ViT-B/16, batch 1": (shapes.BASE, 1), "ViT-B/16, batch 128": (shapes.BASE, 128), "ViT-L/16, batch 64": (LARGE, 64)}
GRAPHS = "reduce-overhead"
"""Mode of torch.compile that sends forward and backward pass as CUDA graphs."""
PEAKS = {"H100 PCIe": 756, "H100 NVL": 835, "H100": 989, "H200": 989, "A100": 312, "L40S": 362}
"""Dense bf16 products of a card, in TFLOP/s, from NVIDIA's data sheets, by a part of its name; the first that fits counts."""
KERNELS = 8
"""Kernels of a step that are printed."""


def trainers(s: Shape, batch: int) -> dict[str, Work]:
    """Everybody's step."""
    there = {"precision": "bf16", "device": "cuda"}
    found = {
        "Vitrail": vitrail_step(s, batch, **there),
        "timm": step(shapes.timm(s), s, batch, **there),
        "transformers": step(shapes.transformers(s), s, batch, **there),
        "vit-pytorch": step(shapes.vit_pytorch(s), s, batch, **there),
        "Vitrail, compiled": vitrail_step(s, batch, **there, compile=True),
        "Vitrail, compiled to CUDA graphs": vitrail_step(s, batch, **there, mode=GRAPHS),
        "timm, compiled": step(shapes.timm(s), s, batch, **there, compiled=True),
    }
    if s == LARGE:
        found["Vitrail, activations recomputed"] = vitrail_step(s, batch, **there, recompute=True)
    return found


def predictors(s: Shape, batch: int) -> dict[str, Work]:
    """Everybody's answer: their models in bf16, ours as `for_inference` makes it."""
    images = torch.randn(batch, 3, s.image_size, s.image_size, device="cuda")
    models: dict[str, nn.Module] = {
        "timm": shapes.timm(s).bfloat16(),
        "transformers": shapes.transformers(s).bfloat16(),
        "vit-pytorch": shapes.vit_pytorch(s).bfloat16(),
    }
    models["timm, compiled"] = torch.compile(shapes.timm(s).bfloat16().cuda().eval())
    ours = vitrail.for_inference(shapes.vitrail(s).cuda().eval(), "bf16")
    graphs = torch.compile(ours, mode=GRAPHS)
    works: dict[str, Work] = {"Vitrail": partial(ours, images), "Vitrail, compiled to CUDA graphs": partial(graphs, images)}
    return works | {name: partial(model.cuda().eval(), images.bfloat16()) for name, model in models.items()}


def waited(work: Work) -> Work:
    """Some calls, until the GPU has done them."""

    def calls() -> None:
        for _ in range(CALLS):
            work()
        torch.cuda.synchronize()

    return calls


def memory(work: Work) -> float:
    """Megabytes at the height of a call, beyond what is held between calls."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def share_of_peak(card: str, operations: float) -> str:
    """Return operations per second as TFLOP/s, with their share of what the card can do, if that is known."""
    peak = next((peak for name, peak in PEAKS.items() if name in card), None)
    share = f" ({operations / 1e12 / peak:.0%})" if peak else ""
    return f"{operations / 1e12:.0f}{share}"


def kernels(work: Work, activity: ProfilerActivity = ProfilerActivity.CUDA) -> str:
    """Return a table of the kernels of a call that take the most time, and of the time and number of all."""
    with profile(activities=[activity]) as profiled:
        work()
    spent = [(e.key, e.self_device_time_total or e.self_cpu_time_total, e.count) for e in profiled.key_averages()]
    spent.sort(key=lambda kernel: kernel[1], reverse=True)
    total = sum(time for _, time, _ in spent)
    rows = [
        [name[:70].replace("|", " "), f"{time / 1e3:.2f}", f"{time / total:.0%}", str(n)] for name, time, n in spent[:KERNELS]
    ]
    rows.append(["all", f"{total / 1e3:.2f}", "100%", str(sum(count for *_, count in spent))])
    return side_by_side.table(["kernels of a step of Vitrail", "ms", "share", "calls"], rows)


def rates(title: str, works: dict[str, Work], images: int, operations: int, *, rounds: int = 8) -> str:
    """A table, the fastest first."""
    measured = side_by_side.measure({name: waited(work) for name, work in works.items()}, rounds=rounds, at_least=0.3)
    rows = []
    for name in sorted(works, key=measured.seconds):
        reached = CALLS * images / measured.seconds(name)
        rate = share_of_peak(torch.cuda.get_device_name(), operations * reached)
        rows.append([name, f"{reached:.0f}", measured.ratio(name, "timm"), rate, f"{memory(works[name]):.0f} MB"])
    return side_by_side.table([title, "images/s", "× timm", "TFLOP/s (of the peak)", "memory at the height"], rows)


def print_tables(cases: dict[str, tuple[Shape, int]], works: Callable[[Shape, int], dict[str, Work]], passes: int) -> None:
    """A table for each case, as soon as it is measured."""
    for name, (shape, batch) in cases.items():
        torch.manual_seed(0)
        contenders = works(shape, batch)
        print(rates(name, contenders, batch, passes * shape.operations), flush=True)
        print(kernels(contenders["Vitrail"]), flush=True)
        torch.cuda.empty_cache()


def main() -> None:
    """Measure and print."""
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, bf16\n\n## A training step\n")
    print_tables(TRAINED, trainers, 3)  # a forward pass, and twice as many operations for the gradients
    print("## Inference\n")
    with torch.inference_mode():
        print_tables(ANSWERING, predictors, 1)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    main()

"""Measure the time and memory to open a B/16, beside safetensors' own reader and building the model.

    python benchmarks/load_weights.py

Every measurement is a process of its own, in turn, five times over; medians are printed. Memory is what the process has
grown by at its highest, over what it had after its imports.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 5


def prepare(folder: Path) -> dict[str, Path]:
    """A B/16 with random weights in three kinds of files."""
    import vitrail

    model = vitrail.create_model("ViT-B/16")
    labels = [str(i) for i in range(1000)]
    trained = vitrail.TrainedModel(model, labels, vitrail.Preparation.standard((224, 224)))
    files = {
        "timm, a file": folder / "timm.safetensors",
        "transformers, a folder": folder / "vit",
        "Vitrail, a folder": folder / "own",
    }
    for file, layout in zip(files.values(), ("timm", "vit", "vitrail"), strict=True):
        vitrail.convert(trained, file, layout=layout)
    return files


def measure(way: str, file: str) -> None:
    """One way in this process; prints seconds and MB."""
    from safetensors.torch import load_file

    from vitrail.models.registry import create_model
    from vitrail.weights.reference import from_pretrained

    before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    start = time.perf_counter()
    kept = [from_pretrained(file)] if way == "vitrail" else [load_file(file), create_model("ViT-B/16")]
    seconds = time.perf_counter() - start
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    print(seconds, grown / 1e6, len(kept))


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        files = prepare(Path(folder))
        timm = str(files["timm, a file"])
        ways = {"load_file + model": ("peer", timm), **{name: ("vitrail", str(file)) for name, file in files.items()}}
        results: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, arguments in ways.items():
                done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=True)
                seconds, megabytes, _ = map(float, done.stdout.split())
                results[name].append((seconds, megabytes))
        weights = Path(timm).stat().st_size / 1e6
        peer = statistics.median(seconds for seconds, _ in results["load_file + model"])
        print(f"weights: {weights:.0f} MB")
        for name, pairs in results.items():
            seconds, megabytes = (statistics.median(column) for column in zip(*pairs, strict=True))
            share, copies = seconds / peer, megabytes / weights
            print(f"{name:24} {seconds:6.3f} s ({share:.2f} ×)  {megabytes:5.0f} MB ({copies:.2f} × the weights)")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        measure(sys.argv[1], sys.argv[2])
    else:
        argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
        main()

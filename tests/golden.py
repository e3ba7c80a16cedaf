"""Check that two commits train the same weights, to the last bit: `make golden BEFORE=COMMIT`.

Run it around a change that moves code and should change no result. Bits differ between processors and versions of torch, so
nothing is stored: the commit and the working tree both train here, side by side, with one thread each.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors.numpy import load_file

ROOT = Path(__file__).parents[1]
SMALL = "--model.dim 32 --model.depth 3 --model.heads 2 --model.mlp-dim 48 --epochs 2 --batch-size 100 --data.train-share 0.4"
DIGITS = f"--data digits {SMALL}"
CHANGES = "--augmentation.crop resized --augmentation.policy randaugment --augmentation.erasing 0.5 --augmentation.rotation 20"
RUNS = {
    "plain": DIGITS,
    "mixing": f"{DIGITS} --augmentation.mixup 0.8 --augmentation.cutmix 1 --augmentation.repeats 2",
    "accumulation": f"{DIGITS} --training.accumulate 3 --optimizer.clip-norm 0.1",
    "average": f"{DIGITS} --training.ema 0.3",
    "drops": f"{DIGITS} --model.stochastic-depth 0.3 --model.patch-dropout 0.3 --model.attention-dropout 0.1 "
    "--schedule.patch-dropout falling",
    "layer-decay": f"{DIGITS} --optimizer.layer-decay 0.7 --optimizer.weight-decay 0.3",
    "muon": f"{DIGITS} --optimizer.name muon --model.position rotary --model.mlp swiglu",
    "sgd": f"{DIGITS} --optimizer.name sgd --precision bf16",
    "growing": f"{DIGITS} --schedule.first-image-size 8 --model.position learned-2d",
    "rare-classes-sampled": f"{DIGITS} --balance sampling",
    "rare-classes-weighed": f"{DIGITS} --balance loss",
    "adapters": "--data digits --epochs 2 --from {plain} --tune lora",
    "head": "--data digits --epochs 2 --from {plain} --tune head",
    "resized": "--data digits --epochs 1 --from {plain} --image-size 24",
    "distillation": f"{DIGITS} --teacher {{plain}} --distillation.kind soft --model.pool class",
    "hard-distillation": f"{DIGITS} --teacher {{plain}}",
    "several-labels": f"--data {{table}} --recipe scratch --model ViT-Ti/8 --image-size 24 {CHANGES} {SMALL}".replace("0.4", "1"),
    "two-processes": f"{DIGITS} --training.accumulate 2 --training.ema 0.9",
}
"""What is trained, in this order; ``{plain}`` is the first one's folder, ``{table}`` a table of images with several labels."""
TIMES = {"seconds", "images_per_second"}
"""Metrics that differ from one run to the next."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Train by a commit and by the working tree, and compare the weights.")
    parser.add_argument("before", metavar="COMMIT", help="what the working tree is compared with")
    parser.add_argument("--only", metavar="TEXT", default="", help="only runs whose name contains this, and the first")
    options = parser.parse_args()
    names = [name for name in RUNS if name == "plain" or options.only in name]
    with tempfile.TemporaryDirectory(prefix="vitrail-golden-") as place:
        table, before = _write_table(Path(place, "images")), Path(place, "before")
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(before), options.before], cwd=ROOT, check=True)
        try:
            with ThreadPoolExecutor(2) as pool:
                sources, folders = (before, ROOT), (Path(place, "runs-before"), Path(place, "runs-now"))
                then, now = pool.map(lambda source, out: _train_all(names, source, out, table), sources, folders)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(before)], cwd=ROOT, check=True)
    different = {name: [part for part in now[name] if then[name][part] != now[name][part]] for name in names}
    for name, parts in different.items():
        print(f"{now[name]['last'][:16]}  {name}" + (f"  DIFFERS: {', '.join(parts)}" if parts else ""))
    equal = sum(not parts for parts in different.values())
    print(f"{equal} of {len(names)} equal")
    return int(equal < len(names))


def _train_all(names: list[str], source: Path, out: Path, table: Path) -> dict[str, dict[str, str]]:
    """The hashes of every run by the sources of one folder."""
    environment = {**os.environ, "PYTHONPATH": str(source / "src"), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    found = {}
    for name in names:
        arguments = RUNS[name].format(plain=out / "plain", table=table).split()
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"] if name == "two-processes" else []
        command = [sys.executable, *launcher, "-m", "vitrail", "train", *arguments, "--out", str(out / name)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{source}: {name} failed\n{' '.join(command)}\n{done.stderr[-3000:]}")
        found[name] = _hashes(out / name)
        print(f"{source.name}: {name}", file=sys.stderr, flush=True)
    return found


def _hashes(run: Path) -> dict[str, str]:
    """SHA-256 of the weights of a run's last and best model, and of its metrics to four digits, without times.

    Metrics may be summed in another order or precision than before; weights may not differ by a bit.
    """
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    kept = [{name: f"{value:.4g}" for name, value in row.items() if name not in TIMES} for row in rows]
    metrics = hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
    return {name: _hash(run / name / "model.safetensors") for name in ("last", "best")} | {"metrics": metrics}


def _hash(file: Path) -> str:
    """SHA-256 of all tensors of a file with their names, in whatever order they stand there."""
    total = hashlib.sha256()
    for name, array in sorted(load_file(file).items()):
        total.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return total.hexdigest()


def _write_table(folder: Path) -> Path:
    """60 small images, each of which shows any of three colours, and their table."""
    folder.mkdir()
    random = np.random.default_rng(0)
    lines = ["image,label,split"]
    for number in range(60):
        shown = random.random(3) < 0.5
        pixels = random.integers(0, 120, (30, 26, 3), dtype=np.uint8) + 120 * shown.astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        labels = ";".join(name for name, on in zip(("red", "green", "blue"), shown, strict=True) if on)
        lines.append(f"{number}.png,{labels},{('train', 'train', 'train', 'val', 'test')[number % 5]}")
    table = folder / "labels.csv"
    table.write_text("\n".join(lines) + "\n")
    return table


if __name__ == "__main__":
    sys.exit(main())

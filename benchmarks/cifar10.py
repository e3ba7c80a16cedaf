"""Every recipe for CIFAR-10 in the time that the recipe cifar10-stem trains, one after another: accuracy on the test images.

    python benchmarks/cifar10.py FOLDER --out runs/cifar10
    python benchmarks/cifar10.py FOLDER --out runs/cifar10 --only cifar10-swin

FOLDER holds train/CLASS/*.jpg and test/CLASS/*.jpg; a tenth of the training images chooses the model that is kept, the test
images are answered once. The time that cifar10-stem trains is for the others a limit to all they do before the test, so that
their validation counts, too. Run again, it goes on with what is missing in the folder of --out.
"""

import argparse
import json
import sys
from pathlib import Path

import side_by_side
import torch

import vitrail
from vitrail.runtime.environment import processor_name
from vitrail.training.runs.run_folder import RunFolder

FIRST = "cifar10-stem"
OTHERS = ("cifar10", *(f"cifar10-{name}" for name in ("swin", "pvt", "cvt", "t2t", "tnt", "mixer", "resnet", "vit", "taught")))
TEACHER = "cifar10-resnet"


def measured(recipe: str, data: Path, out: Path, limit: float | None) -> dict[str, float]:
    """The accuracy in per cent, seconds of training and images that were seen, remembered in ``out``."""
    kept = out / f"{recipe}.json"
    if kept.exists():
        return json.loads(kept.read_text())
    settings = {} if limit is None else {"training.time_limit": limit}
    teacher = out / TEACHER if recipe.endswith("taught") else None
    run = vitrail.train(data, recipe=recipe, out=out / recipe, teacher=teacher, **settings)
    assert run.split == "test"
    rows = RunFolder(run.folder).rows
    seconds = sum(row["seconds"] for row in rows)
    found = {
        "accuracy": 100 * run.scores["top1"],
        "seconds": seconds,
        "images": sum(row["images_per_second"] * row["seconds"] for row in rows),
        "parameters": sum(p.numel() for p in run.trained.model.parameters()),
    }
    kept.write_text(json.dumps(found))
    return found


def main() -> None:
    """Train with one recipe after another, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", action="append")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    found = {FIRST: measured(FIRST, options.data, options.out, None)}
    for recipe in options.only or OTHERS:
        found[recipe] = measured(recipe, options.data, options.out, found[FIRST]["seconds"])
        print(recipe, found[recipe], file=sys.stderr, flush=True)
    rows = [
        [f"`{recipe}`", f"{f['parameters']:,.0f}", f"{f['accuracy']:.2f} %", f"{f['seconds']:.0f} s", f"{f['images']:,.0f}"]
        for recipe, f in found.items()
    ]
    print(side_by_side.table(["recipe", "parameters", "top-1 on the test images", "training", "images seen"], rows))
    print(f"{processor_name()}, {torch.get_num_threads()} threads.")


if __name__ == "__main__":
    main()

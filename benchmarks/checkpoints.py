"""Measure the cost of saving the state of a run, as a share of its time from the first step to the last, at the default period.

    python benchmarks/checkpoints.py [--data FOLDER --start MODEL]

Two runs on the digits, which come with scikit-learn; with FOLDER and MODEL a third, which fine-tunes MODEL on FOLDER.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import vitrail
from vitrail.training.loop.trainer import Trainer


def timed(method: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    """The method, which notes how long it takes."""

    def call(*arguments: Any, **options: Any) -> Any:
        begin = time.perf_counter()
        try:
            return method(*arguments, **options)
        finally:
            spent.append(time.perf_counter() - begin)

    return call


def measure(**settings: Any) -> str:
    """The share that checkpoints take, and the models that are kept beside them."""
    saves: list[float] = []
    models: list[float] = []
    runs: list[float] = []
    originals = Trainer.save, Trainer.save_model, Trainer.run
    Trainer.save, Trainer.save_model = timed(Trainer.save, saves), timed(Trainer.save_model, models)
    Trainer.run = timed(Trainer.run, runs)
    try:
        with tempfile.TemporaryDirectory() as folder:
            vitrail.train(out=Path(folder) / "run", **settings)
    finally:
        Trainer.save, Trainer.save_model, Trainer.run = originals
    saving, keeping, whole = sum(saves), sum(models), sum(runs)
    made = sum(seconds > 1e-3 for seconds in saves)
    return (
        f"{whole:7.1f} s of training; {made} checkpoints {100 * saving / whole:.2f} %, "
        f"{len(models)} models {100 * keeping / whole:.2f} %, together {100 * (saving + keeping) / whole:.2f} %"
    )


def main() -> None:
    """A few runs of different length and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="a folder of images to fine-tune on")
    parser.add_argument("--start", help="a trained model, such as a file of weights")
    arguments = parser.parse_args()
    print("digits, the recipe          ", measure(data="digits"), flush=True)
    print("digits, a step of 32 images ", measure(data="digits", batch_size=32, epochs=10), flush=True)
    if arguments.data and arguments.start:
        print("fine-tuning                 ", measure(data=arguments.data, start=arguments.start), flush=True)


if __name__ == "__main__":
    main()

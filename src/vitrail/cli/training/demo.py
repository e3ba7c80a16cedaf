"""``vitrail demo``."""

from pathlib import Path

from vitrail.cli.console import Whole, note


def demo(*, out: Path | None = None, seed: Whole = 0) -> None:
    """Train a small Vision Transformer on 1,797 handwritten digits, evaluate it and write a report.

    Parameters
    ----------
    out
        The run folder; it must not exist. Default: runs/digits-DATE-TIME.
    seed
        Seed of all randomness.
    """
    from vitrail.cli.training.train import run_training

    note("Training a Vision Transformer on the handwritten digits that ship with scikit-learn.\n")
    run_training({"data": "digits", "seed": seed}, recipe="digits", config=None, out=out)

"""Measure how long `--help`, a wrong command and `import vitrail` take.

    python benchmarks/start.py [--quick]

Every figure is the median of some processes, one after the other.
"""

import argparse
import statistics
import subprocess
import sys
import time

import side_by_side

from vitrail.cli.app import app
from vitrail.runtime.processor import Others

MISTAKES = [
    "train --data nosuch", "train --data . --lr 0", "train --data nosuch --from ViT-B/16", "predict runs/nosuch photo.jpg",
]  # fmt: skip
COMMANDS = [[], *([name] for name in app if not name.startswith("-")), ["data", "check"], ["data", "show"]]


def seconds(command: list[str], rounds: int) -> float:
    """The median of some rounds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        subprocess.run(command, check=False, capture_output=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main(*, quick: bool) -> str:
    """The table, in Markdown."""
    rounds, python, others = 3 if quick else 5, sys.executable, Others()
    imported = seconds([python, "-c", "import vitrail"], rounds) - seconds([python, "-c", ""], rounds)
    times = {" ".join(["vitrail", *words]): seconds([python, "-m", "vitrail", *words, "--help"], rounds) for words in COMMANDS}
    slowest = max(times, key=lambda command: times[command])
    rows = [
        ["`import vitrail`, beyond Python's own start", f"{imported:.3f} s"],
        ["`vitrail --help`", f"{times['vitrail']:.2f} s"],
        [f"the slowest, `{slowest} --help`", f"{times[slowest]:.2f} s"],
    ]
    rows += [
        [f"`vitrail {words}`", f"{seconds([python, '-m', 'vitrail', *words.split()], rounds):.2f} s"]
        for words in ("models", *MISTAKES)
    ]
    return side_by_side.table(["start", f"median of {rounds}"], rows) + "\n" + side_by_side.note(others.share())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three processes of each instead of five")
    print(main(quick=parser.parse_args().quick))

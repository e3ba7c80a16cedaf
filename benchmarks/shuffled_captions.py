"""Score captions beside other images than their own.

    vitrail evaluate RUN --split test --csv captions.csv
    python benchmarks/shuffled_captions.py captions.csv

Scores the captions as they are, then five times each image beside the caption of another one. What is left then is what a
captioner has for saying what is said of most images.
"""

import argparse
import csv
from pathlib import Path

import numpy as np
from side_by_side import table

from vitrail.tasks.captioning.scores import caption_scores, words

SCORES = ("cider_d", "bleu4")


def main(file: Path) -> str:
    """The table, in Markdown."""
    with open(file, newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    written = [words(row["caption"]) for row in rows]
    people = [[words(caption) for caption in row["references"].split(" | ")] for row in rows]
    found = [["as they are", *_scores(written, people)]]
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(rows))
        others = [written[place] for place in np.roll(order, 1)]
        found.append([f"of other images, order {seed}", *_scores(others, [people[place] for place in order])])
    return table(["captions", *SCORES], found)


def _scores(written: list[list[str]], people: list[list[list[str]]]) -> list[str]:
    scores = caption_scores(written, people)
    return [f"{scores[name]:.1f}" for name in SCORES]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("captions", type=Path, help="what vitrail evaluate RUN --csv has written")
    print(main(parser.parse_args().captions))

"""``make layouts``: every case of every library, a table of what came of them, and a line for every fault."""

import argparse
import json
import os
import sys
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from sweep.judging import FAULTS, STATUSES
from sweep.running import findings


def main() -> int:
    """Print the table; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="make layouts", description=__doc__)
    parser.add_argument("--only", default="", metavar="PATTERN", help="only the cases whose names hold this regular expression")
    parser.add_argument("--random", type=int, default=500, metavar="N", help="random configurations to write")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write what came of every step, a line of JSON each, as it comes"
    )
    arguments = parser.parse_args()
    found = []
    with Progress(console=Console(stderr=True)) as progress, open(arguments.json or os.devnull, "w", encoding="utf-8") as lines:
        for finding in findings(arguments.only, arguments.random, progress):
            found.append(finding)
            print(json.dumps(finding), file=lines, flush=True)
    found.sort(key=lambda finding: (finding["library"], finding["name"]))
    counts = Counter((finding["library"], finding["step"], finding["status"]) for finding in found)
    table = Table("library", "step", *STATUSES)
    for library, step in dict.fromkeys((finding["library"], finding["step"]) for finding in found):
        table.add_row(library, step, *(str(counts[library, step, status] or "") for status in STATUSES))
    output = Console(width=130)
    output.print(table)
    faults = [finding for finding in found if finding["status"] in FAULTS]
    for fault in faults:
        output.print(f"{fault['status']}: {fault['library']}: {fault['name']}: {fault['step']}: {fault['reason']}",
                     markup=False, highlight=False, soft_wrap=True)  # fmt: skip
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

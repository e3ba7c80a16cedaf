"""Opens tens of thousands of spoilt files of every kind that Vitrail reads, to see that none of them does more than be refused.

    python benchmarks/soak/soak_files.py [--count 50000] [--seed 0] [--only KIND] [--quick]

Every case is a tiny good model, run or configuration of which a file is spoilt, by a seed; a process that is watched opens it and
asks it something. It may still be good, or is refused with one of `vitrail.errors`. Anything else is listed with its seed: a
crash, a hang of more than 5 s, memory beyond 1.5 times the files and 300 MiB, another exception. To see one again:

    python benchmarks/soak/soak_files.py --only KIND --seed SEED --count 1

Good files are the same each time, but runs hold times of the clock: keep them with --seeds FOLDER to see the same bytes again.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
SHOWN = 12
"""Seeds of the same violation that are listed."""


def make_seeds(root: Path) -> None:
    """Good files, made by a process that is gone before the first trial."""
    command = "import sys, pathlib, file_seeds; file_seeds.write_seeds(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", command, str(root)], check=True, capture_output=True)


def main() -> None:
    """Everything at length, as a table in Markdown; exit code 1 where a promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50_000, help="cases of all kinds together")
    parser.add_argument("--seed", type=int, default=0, help="of the first case of each kind; the next has the next")
    parser.add_argument("--only", metavar="KIND", help="cases of one kind alone")
    parser.add_argument("--quick", action="store_true", help="a little of everything: 1,000 cases")
    parser.add_argument("--seeds", type=Path, metavar="FOLDER", help="good files, made there where it is not yet")
    given = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported by the process that others are forked from
    count = 1000 if given.quick else given.count
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        seeds = given.seeds or Path(folder) / "seeds"
        if not seeds.exists():
            make_seeds(seeds)
        sys.exit(_table(count, given.seed, given.only, seeds, Path(folder)))


def _table(count: int, seed: int, only: str | None, seeds: Path, folder: Path) -> bool:
    """Print the table; gives whether something was not kept."""
    import file_trials
    from file_openers import KINDS

    if only is not None and only not in KINDS:
        raise SystemExit(f"unknown kind {only!r}; known: {', '.join(KINDS)}")
    chosen = {only: KINDS[only]} if only else KINDS
    whole, total, wrong = sum(kind.share for kind in chosen.values()), 0, 0
    found = []
    columns = ("files", "cases", "still good", "refused with", "violations", "slowest", "most memory", "minutes")
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|", flush=True)
    for name, kind in chosen.items():
        begin = time.monotonic()
        cases = max(1, round(count * kind.share / whole))
        result = file_trials.trial(name, seed, cases, seeds, folder / "work", loud=count == 1)
        refused = ", ".join(f"{error} {number:,}" for error, number in result.refused.most_common())
        cells = (kind.about, f"{result.cases:,}", f"{result.good:,}", refused, f"{result.wrong:,}", f"{result.slowest:.2f} s",
                 f"{result.largest / 2**20:.0f} MiB", f"{(time.monotonic() - begin) / 60:.1f}")  # fmt: skip
        print(f"| {' | '.join(cells)} |", flush=True)
        total, wrong = total + result.cases, wrong + result.wrong
        found += [(name, *violation) for violation in result.violations.items()]
    print(f"\n{total:,} cases, {wrong:,} violations")
    for name, what, seeds_of in sorted(found, key=lambda one: -len(one[2])):
        print(f"\n- {name}, {len(seeds_of)} times: {what}\n  seeds {', '.join(seeds_of[:SHOWN])}")
    return bool(wrong)


if __name__ == "__main__":
    main()

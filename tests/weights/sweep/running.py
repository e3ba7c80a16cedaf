"""Many cases, each in a folder of its own, on as many processes as there are processors."""

import os
import re
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.progress import Progress

SOURCES = ("from_timm", "from_transformers", "from_vit_pytorch", "written")
KEPT: list[Any] = []
"""What must live as long as the process."""


def begin() -> None:
    """Prepare a process to judge."""
    import torch

    import peers

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    KEPT.append(peers.declare_operators())


def names_of(source: str, count: int) -> list[str]:
    """The cases of a library."""
    module = import_module(f"sweep.{source}")
    return module.names(count) if source == "written" else module.names()


def judge(source: str, name: str) -> list[dict]:
    """Everything about one case; whatever is raised belongs to it, and the others go on."""
    from sweep.judging import Finding, where

    with TemporaryDirectory() as folder:
        try:
            found = import_module(f"sweep.{source}").judge(name, Path(folder)).found
        except Exception as error:
            found = [Finding(source, name, "judged", "crashed", where(error))]
    return [asdict(finding) for finding in found]


def findings(pattern: str, count: int, progress: Progress) -> Iterator[dict]:
    """What came of the cases whose names hold the pattern."""
    begin()
    cases = [(source, name) for source in SOURCES for name in names_of(source, count) if re.search(pattern, f"{source} {name}")]
    bar = progress.add_task("judging", total=len(cases))
    with ProcessPoolExecutor(min(4, os.cpu_count() or 1), get_context("forkserver"), begin) as processes:
        for future in as_completed([processes.submit(judge, *case) for case in cases]):
            progress.advance(bar)
            yield from future.result()

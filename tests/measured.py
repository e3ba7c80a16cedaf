"""Measurements of memory; each function runs in its own process."""

import json
from pathlib import Path
from typing import Any

from vitrail.config.configuration import nested
from vitrail.config.request import Request
from vitrail.data.images.decode import decode
from vitrail.models.registry import build
from vitrail.runtime.memory import peak_memory
from vitrail.training.loop import batch_size
from vitrail.training.loop.memory_check import least_memory
from vitrail.training.loop.trainer import Trainer
from vitrail.training.run_data import run_data_of
from vitrail.training.runs.create_task import create_task
from vitrail.training.runs.run_folder import RunFolder


def measure_step(values: dict[str, Any], file: Path) -> None:
    """Write the least memory that a run needs, and the memory that a step of it took."""
    asked = Request.read("scratch", None, nested(values)).settings()
    kind = run_data_of(asked)
    source = kind.open_source(asked)
    settings = kind.complete(asked, source, None)
    before = peak_memory()
    task = create_task(settings, build(settings.model.config), kind.preparation_of(settings, source), source)
    trainer = Trainer(settings, task, source, RunFolder(Path(), writes=False))
    batch_size._train_on(trainer, settings.training.batch)
    file.write_text(json.dumps([sum(least_memory(settings)), peak_memory() - before]))


def measure_decoding(contents: list[bytes], file: Path) -> None:
    """Write how much more memory than all before each picture took at most."""
    found = []
    for content in contents:
        before = peak_memory()
        decode(content)
        found.append(peak_memory() - before)
    file.write_text(json.dumps(found))

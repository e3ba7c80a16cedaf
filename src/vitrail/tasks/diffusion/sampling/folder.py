"""A folder of samples: numbered pictures, a sheet of them, and a list that says what each was made of."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from vitrail.data.loading.sampler import spread
from vitrail.errors import ConfigError
from vitrail.files import partial_of, read_text, whole_file, write_json
from vitrail.runtime.device import Precision
from vitrail.runtime.output import require_free
from vitrail.study.page import figures
from vitrail.tasks.diffusion.sampling.making import (
    class_indices,
    require_possible_guidance,
    require_seeds,
    sample_pictures,
    start_of,
)
from vitrail.tasks.diffusion.sampling.options import Sampling
from vitrail.tasks.diffusion.sampling.sheet import sheet
from vitrail.tasks.diffusion.weights import TrainedDiffusion

LIST, SHEET, REQUEST = "samples.json", "samples.png", "request.json"
SHOWN = 100
"""Pictures on the sheet, at most; they are spread evenly over all."""


@dataclass(frozen=True)
class SampleRequest:
    """Everything that decides the pictures of a folder."""

    model: str
    classes: Sequence[str] | None
    count: int
    seed: int
    sampling: Sampling
    batch_size: int = 64
    start: Path | None = None
    precision: Precision = "fp32"

    @property
    def description(self) -> dict[str, Any]:
        """The request as JSON has it; a batch decides nothing."""
        classes = None if self.classes is None else list(self.classes)
        start = None if self.start is None else str(self.start)
        own = {"model": self.model, "classes": classes, "count": self.count, "seed": self.seed, "start": start}
        own["precision"] = self.precision
        return own | {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self.sampling).items()}

    def row(self, file: str, number: int, shown: str | None) -> dict[str, Any]:
        """Return what `LIST` says of a picture: its ``number``, and the class that is ``shown``."""
        steps, guidance, seed = self.sampling.steps, self.sampling.guidance, self.seed + number
        row = {"file": file, "class": shown, "seed": seed, "steps": steps, "guidance": guidance}
        return row if self.start is None else {**row, "start": str(self.start), "strength": self.sampling.strength}


def write_samples(
    out: Path, trained: TrainedDiffusion, request: SampleRequest, *, resume: bool = False, on_batch: Callable[[int], None]
) -> list[dict[str, Any]]:
    """Write the pictures of a request to a folder, and return what `LIST` has of each.

    They are written one by one to ``out`` with .partial behind its name, which is renamed at the end. With ``resume`` those that
    an interrupted command has written there stay.

    Raises:
        ConfigError: the folder exists, or what is to go on was asked for something else.
    """
    draft, sampling, trained = partial_of(out), request.sampling, trained.for_sampling(request.precision)
    require_free(out, growing=not resume)
    require_seeds(request.seed, request.count)
    require_possible_guidance(trained, sampling)
    labels, start = class_indices(trained, request.classes, request.count), start_of(trained, request.start, sampling)
    if resume:
        _require_same_request(draft, request)
    else:
        draft.mkdir(parents=True)
        write_json(draft / REQUEST, request.description)
    digits = max(4, len(str(request.count - 1)))
    names = [f"{number:0{digits}}.png" for number in range(request.count)]
    left = [number for number, name in enumerate(names) if not (draft / name).exists()]
    on_batch(request.count - len(left))
    pictures = sample_pictures(
        trained, [request.seed + number for number in left], [labels[number] for number in left], sampling,
        start=start, batch_size=request.batch_size,
    )  # fmt: skip
    for picture, number in zip(pictures, left, strict=True):
        with whole_file(draft / names[number]) as file:
            picture.save(file, format="PNG")
        on_batch(1)
    classes = [trained.class_name(label) for label in labels]
    rows = [request.row(name, number, own) for number, (name, own) in enumerate(zip(names, classes, strict=True))]
    shown = spread(len(names), SHOWN)
    figures.save(sheet([Image.open(draft / names[place]) for place in shown], [classes[place] for place in shown]), draft / SHEET)
    write_json(draft / LIST, rows)
    (draft / REQUEST).unlink()
    if out.exists():
        out.rmdir()  # it is empty
    draft.rename(out)
    return rows


def _require_same_request(draft: Path, request: SampleRequest) -> None:
    if not (draft / REQUEST).exists():
        hint = "leave --resume out"
        raise ConfigError(f"there is nothing to go on with in {str(draft)!r}", where="--resume", hint=hint)
    before, now = json.loads(read_text(draft / REQUEST)), request.description
    different = [name for name in now if now[name] != before.get(name)]
    if different:
        name = different[0]
        what = f"{name} is {now[name]!r}, and the samples in {str(draft)!r} were begun with {before.get(name)!r}"
        raise ConfigError(what, where="--resume", hint="give the same options as before")

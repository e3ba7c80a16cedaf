"""What is asked of every model: the same answers as its own library's, or a refusal; never anything else."""

import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from copy import deepcopy
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitrail.errors import ConfigError, ModelFileError, VitrailError
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import from_pretrained

TOLERANCE = 1e-5
"""Of the largest answer: how far ours may be from theirs."""
STATUSES = ("right", "guessed", "refused", "wrong", "crashed", "skipped")
FAULTS = ("wrong", "crashed")


NETS = ("backbone", "stem", "resnet", ".first.", ".widen.", ".refine.", "embedding.layers.")
"""In the names of layers that lead to the projection of patches."""


class WrongError(Exception):
    """Answers that are not theirs, or files that their library cannot load."""


@dataclass
class Finding:
    """What came of one step with one model."""

    library: str
    name: str
    step: str
    status: str = "right"
    reason: str = ""


@dataclass
class Findings:
    """What came of every step with one model."""

    library: str
    name: str
    found: list[Finding] = field(default_factory=list)

    @contextmanager
    def step(self, step: str, refusals: tuple[type[Exception], ...] = ()) -> Iterator[Finding]:
        """Judge what happens inside; only a deliberate error of these kinds is a refusal."""
        finding = Finding(self.library, self.name, step)
        self.found.append(finding)
        try:
            yield finding
        except WrongError as error:
            finding.status, finding.reason = "wrong", str(error)
        except refusals as error:
            finding.status, finding.reason = "refused", str(error).splitlines()[0]
        except Exception as error:
            finding.status, finding.reason = "crashed", where(error)

    def skipped(self, error: Exception) -> "Findings":
        """Note that the library itself can make no model of this, or none that answers."""
        self.found.append(
            Finding(self.library, self.name, "built", "skipped", f"{type(error).__name__}: {error}".splitlines()[0])
        )
        return self

    def read(self, step: str, reference: Path, asked: "Asked", **told) -> TrainedModel | None:
        """Hold what we read of some files to what it should answer; gives the model if it is right."""
        with self.step(step, (ModelFileError, ConfigError)) as finding:
            ours, _ = quietly(from_pretrained, reference, **told)
            asked.hold(ours)
        return ours if finding.status == "right" else None

    def truth(self, ours: TrainedModel | None) -> Mapping[str, Any] | None:
        """What a folder has told: the configuration, nothing that ours has if it was refused, None if it was misread."""
        if ours is not None:
            return dict(ours.config)
        return {} if self.found[-1].status == "refused" else None

    def read_bare(self, file: Path, asked: "Asked", truth: Mapping[str, Any] | None, **told) -> None:
        """Hold a reading of tensors alone to their answers.

        A file alone may leave a choice open. Then the reading may take one, if it says on stderr what it has guessed: every
        field in which it differs from the ``truth`` must be named in a line with "guess". Of an empty truth nothing is known
        but that there is more than our configuration holds; then any guess that is owned up to will do, without one none.

        How much of an image lies beyond its last whole patch no tensor tells. Such an image is refused, and what the model
        answers to its whole patches is held to theirs to all of it.
        """
        with self.step("file", (ModelFileError, ConfigError)) as finding:
            ours, said = quietly(from_pretrained, file, **told)
            try:
                asked.hold(ours, whole_patches=True)
            except WrongError:
                guesses = " ".join(line for line in said.splitlines() if "guess" in line)
                if truth is None or not guesses:
                    raise
                differing = [name for name, value in truth.items() if getattr(ours.config, name, None) != value]
                if "class_token" in differing and "pool" in differing and ours.config.has_class_token:
                    differing.remove("class_token")  # which says that there is one beside a pool that does not read it
                if any(name not in guesses for name in differing if name not in ("image_size", "crop_remainder")):
                    raise
                finding.status, finding.reason = "guessed", ", ".join(differing) or guesses


def where(error: Exception) -> str:
    """An exception in one line, and where it was raised."""
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(at.filename).name}:{at.lineno})".replace("\n", " ")


def quietly(call: Callable, *args, **kwargs):
    """What a call gives, and what it says on stderr."""
    said = StringIO()
    with redirect_stderr(said):
        return call(*args, **kwargs), said.getvalue()


class Asked:
    """A model, two random images, and what it answers: what ours is held to.

    Single precision may round more than the tolerance away in a deep model; then both are asked again in double precision.
    """

    def __init__(self, model: nn.Module, size: tuple[int, int], channels: int = 3):
        chance = torch.Generator().manual_seed(1)
        colours = torch.randn(2, channels, 1, 1, generator=chance)  # by which even the means of the patches differ
        self.images = colours + torch.randn(2, channels, *size, generator=chance)
        self.model, self.expected = model, answer(model, self.images)
        if not isinstance(self.expected, Tensor) or (self.expected[0] - self.expected[1]).abs().max() < 1e-3:
            raise TypeError("gives no answers that tell one image from another")

    def hold(self, model: nn.Module, *, whole_patches: bool = False) -> None:
        """Raises `WrongError` unless another model gives the same answers, to the tolerance.

        Asked for ``whole_patches``, of images that its patches do not divide it is given these alone.
        """
        images = self.images
        if whole_patches:
            patch_size = getattr(model.config, "patch_size", (1, 1))
            if isinstance(patch_size, tuple):  # a Swin Transformer's is one number, and what is beyond its patches counts
                height, width = (side - side % patch for side, patch in zip(images.shape[2:], patch_size, strict=True))
                images = images[:, :, :height, :width]
        try:
            found = answer(model, images)
        except Exception as error:
            raise WrongError(f"cannot answer: {type(error).__name__}: {error}".replace("\n", " ")[:300]) from None
        if found.shape != self.expected.shape:
            raise WrongError(f"answers {tuple(found.shape)} in place of {tuple(self.expected.shape)}")
        largest = self.expected.abs().max().item()
        difference = (found - self.expected).abs().max().item()
        if TOLERANCE * largest < difference <= 100 * TOLERANCE * largest:
            ours, theirs = (
                answer(deepcopy(model).double(), images.double()),
                answer(deepcopy(self.model).double(), self.images.double()),
            )
            difference = (ours - theirs).abs().max().item()
        if not difference <= TOLERANCE * largest:
            raise WrongError(f"differs by {difference:.2g} of {largest:.2g}")


@torch.no_grad()
def answer(model: nn.Module, images: Tensor) -> Tensor:
    """A model's answers."""
    return model(images)


@torch.no_grad()
def randomized(model: nn.Module, seed: int = 0) -> nn.Module:
    """Put every parameter and every running statistic where a trained model might have it, and none where it starts.

    What enters the blocks is small, as it is in trained models, so that another epsilon shows; what follows keeps its size,
    so that answers are about one and softmax is neither flat nor hard.
    """
    chance = torch.Generator().manual_seed(seed)
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        leaf = name.rpartition(".")[2]
        if leaf == "running_var":
            value.uniform_(0.5, 1.5, generator=chance)
        elif leaf == "running_mean":
            value.normal_(0, 0.1, generator=chance)
        elif not isinstance(value, nn.Parameter):
            continue
        elif leaf in ("gamma", "lambda1", "lambda_1", "gamma_1", "gamma_2"):
            value.normal_(0.5, 0.1, generator=chance)
        elif leaf.endswith("weight") and value.ndim == 1:
            value.normal_(1, 0.1, generator=chance)
        elif value.ndim <= 1:
            value.normal_(0, 0.1, generator=chance)
        else:
            first = value.ndim >= 4 and value.shape[1] == 3
            entrance = not any(net in name for net in NETS) and ("embed" in name or "token" in name or first)
            deep = leaf.endswith("weight") or leaf == "proj"
            value.normal_(0, 0.05 if entrance and not deep else 0.2 if not deep else 1, generator=chance)
            if deep:
                value.mul_((0.05 if entrance else 1) / value[0].numel() ** 0.5)
    return model.eval()


def read_back(written: Path, asked: Asked, **told) -> None:
    """Hold our reading of what we have written to the answers; here a refusal is wrong too."""
    try:
        ours, _ = quietly(from_pretrained, written, **told)
    except VitrailError as error:
        raise WrongError(f"we cannot read it back: {error}".splitlines()[0]) from None
    try:
        asked.hold(ours)
    except WrongError as error:
        raise WrongError(f"read back by us, {error}") from None

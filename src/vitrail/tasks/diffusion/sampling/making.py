"""Images out of a trained model: each from its own seed and class, whatever else is in its batch."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vitrail.checks import require_at_most, require_positive
from vitrail.deploy.bench.engines import open_graph, quickest
from vitrail.deploy.export.artefact import graph_of
from vitrail.errors import ConfigError, unknown
from vitrail.runtime.device import Precision
from vitrail.runtime.notebook import in_notebook
from vitrail.tasks.diffusion.process import Process
from vitrail.tasks.diffusion.sampling.options import Sampling
from vitrail.tasks.diffusion.sampling.preview import SHOWN, NotebookPreview, Preview
from vitrail.tasks.diffusion.sampling.samplers import Denoise, Step, solve
from vitrail.tasks.diffusion.weights import TrainedDiffusion, require_diffusion, whole_label
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import open_model

if TYPE_CHECKING:
    from PIL import Image

    from vitrail.data.images.pictures import Picture

SEEDS = 2**63
"""Seeds are below this number."""


def class_indices(trained: TrainedDiffusion, classes: Sequence[str] | None, count: int) -> list[int | None]:
    """Return the class of each of ``count`` images, spread evenly over the classes, all of them by default.

    Raises:
        ConfigError: a class that the model does not know, or classes of a model without.
    """
    classes = classes and [whole_label(trained.labels, name) for name in classes]
    if not trained.labels:
        if classes:
            raise ConfigError("the model knows no classes", where="--classes", hint="leave --classes out")
        return [None] * count
    for name, number in Counter(classes or ()).items():
        if not name:
            raise ConfigError("the name of a class is empty", where="--classes", hint="leave a comma out")
        if name not in trained.labels:
            raise unknown("class", name, trained.labels, where="--classes")
        if number > 1:
            raise ConfigError(f"class {name!r} is named {number} times", where="--classes", hint="name each class once")
    chosen = [trained.labels.index(name) for name in classes or trained.labels]
    return [chosen[number * len(chosen) // count] if count >= len(chosen) else chosen[number] for number in range(count)]


def require_possible_guidance(trained: TrainedDiffusion, sampling: Sampling) -> None:
    """Refuse guidance of a model that has not learned to do without a class, and samplers of other models.

    Raises:
        ConfigError: which option, and what to give.
    """
    config: Any = trained.config
    if sampling.guidance != 1 and not (config.num_classes and config.null_class):
        raise ConfigError("guidance needs a model with classes and a null class", where="--guidance", hint="leave --guidance out")
    require_at_most("--guided-channels", sampling.guided_channels or 1, config.channels)
    is_flow = Process.of(config).continuous
    if sampling.sampler == "ddpm" and is_flow:
        raise ConfigError("a flow has no steps of noise", where="--sampler", hint="take euler, dpm++ or heun")
    if sampling.sampler == "euler" and not is_flow:
        raise ConfigError("the model is no flow, and euler is for flows", where="--sampler", hint="take ddim")


def start_of(trained: TrainedDiffusion, start: "Picture | None", sampling: Sampling) -> Tensor | None:
    """Return a photograph as the model has images, (1, C, H, W), or None without.

    Raises:
        ConfigError: a start without a strength, or the reverse.
        DataError: the photograph cannot be read.
    """
    if (start is None) != (sampling.strength is None):
        missing = "--start photo.jpg" if start is None else "--strength 0.5"
        raise ConfigError("--start and --strength need each other", where=missing.split()[0], hint=f"add {missing}")
    return None if start is None else trained.prepared(start)


@torch.inference_mode()
def sample_batches(
    trained: TrainedDiffusion,
    seeds: Sequence[int],
    labels: Sequence[int | None],
    sampling: Sampling,
    *,
    start: Tensor | None = None,
    batch_size: int = 64,
    seen: Callable[[Step], None] | None = None,
) -> Iterator[Tensor]:
    """Yield images as the model has them, float32 (B, C, H, W), one for each seed and class, a batch at a time.

    With ``start``, the result of `start_of`, the first of the steps are left out, and the others begin with its noisy image.
    """
    require_possible_guidance(trained, sampling)
    model: Any = trained.model.eval()
    process, config, device = Process.of(model.config), model.config, next(model.parameters()).device
    times = process.spaced(sampling.steps)
    if start is not None:
        times = times[len(times) - max(1, int(len(times) * (sampling.strength or 1))) :]
    for first in range(0, len(seeds), batch_size):
        generators = [torch.Generator().manual_seed(seed) for seed in seeds[first : first + batch_size]]
        shape = config.channels, *config.image_size

        def draw(generators: list[torch.Generator] = generators, shape: tuple[int, ...] = shape) -> Tensor:
            return torch.stack([torch.randn(shape, generator=generator) for generator in generators]).to(device)

        denoise, x = _guided(model, process, labels[first : first + batch_size], sampling), draw()
        if start is not None:
            x = process.noisy(start.to(device), x, torch.tensor([times[0]], device=device))
        yield solve(process, denoise, x, times, sampler=sampling.sampler, eta=sampling.eta, draw=draw, seen=seen)


def sample_pictures(
    trained: TrainedDiffusion,
    seeds: Sequence[int],
    labels: Sequence[int | None],
    sampling: Sampling,
    *,
    start: Tensor | None = None,
    batch_size: int = 64,
    seen: Callable[[Step], None] | None = None,
) -> Iterator["Image.Image"]:
    """Yield the images of `sample_batches` as pictures."""
    for images in sample_batches(trained, seeds, labels, sampling, start=start, batch_size=batch_size, seen=seen):
        yield from trained.pictures(images)


def _guided(model: Any, process: Process, labels: Sequence[int | None], sampling: Sampling) -> Denoise:
    """Return the model with classes and guidance: with both, a batch passes twice as large."""

    def denoise(x: Tensor, time: float) -> Tensor:
        scales = [guidance_of(sampling, process, time)] * len(x)
        return guided_output(model, process, x, [time] * len(x), labels, scales, channels=sampling.guided_channels)

    return denoise


def guidance_of(sampling: Sampling, process: Process, time: float) -> float:
    """Return the weight of guidance at a time of a process."""
    return sampling.guidance_at(time / (1.0 if process.continuous else process.steps))


def guided_output(
    model: Any,
    process: Process,
    x: Tensor,
    times: Sequence[float],
    labels: Sequence[int | None],
    scales: Sequence[float],
    *,
    channels: int | None = None,
) -> Tensor:
    """Return the output of one pass of the model for images that each have their own time, class and weight of guidance.

    Images whose weight is not 1 go through the model twice, with their class and with none.

    Args:
        model: a model of noisy images, times and classes.
        process: the process that it has learned.
        x: noisy images (B, C, H, W).
        times: their times, B of them.
        labels: their classes; None, for all of them, of a model without.
        scales: the weights, of which a model without classes has no use.
        channels: number of channels that guidance changes; all by default.
    """
    given = process.model_times(torch.tensor(times, dtype=torch.float32, device=x.device))
    if not model.config.num_classes:
        return model(x, given)
    classes = torch.tensor(labels, device=x.device)
    twice = [number for number, scale in enumerate(scales) if scale != 1]
    if not twice:
        return model(x, given, classes)
    null = torch.full((len(twice),), model.config.num_classes, device=x.device)
    both = model(torch.cat([x, x[twice]]), torch.cat([given, given[twice]]), torch.cat([classes, null]))
    output, free = both.split([len(x), len(twice)])
    guided, weights = channels or x.shape[1], torch.tensor([scales[number] for number in twice], device=x.device)
    output, free = output.clone(), free[:, :guided]
    own = output[twice, :guided]
    output[twice, :guided] = free + weights.view(-1, 1, 1, 1) * (own - free)
    return output


def sample(
    model: str | Path | TrainedDiffusion,
    *,
    classes: Sequence[str] | None = None,
    count: int = 16,
    seed: int = 0,
    start: "Picture | None" = None,
    batch_size: int = 64,
    preview: Preview | None = None,
    precision: Precision = "fp32",
    **options: Any,
) -> list["Image.Image"]:
    """Make images with a model that was trained with ``task="diffusion"``.

    Args:
        model: a run folder, a model folder, an exported or a loaded model.
        classes: names of the classes to make images of; all of them by default.
        count: number of images in all, spread evenly over the classes.
        seed: of the first image; each that follows has the next.
        start: a photograph to begin with, as `vitrail.predict` takes one; goes with the option ``strength``.
        batch_size: images that are made at once.
        preview: is called after every step; by default a notebook shows the images as the model expects them.
        precision: numbers that the model computes with; bf16 is faster, and an image then depends a little on its batch.
        options: ``steps``, ``guidance``, ``sampler``, ``strength`` and others, as `Sampling` has them.

    Raises:
        ModelFileError: the model makes no images.
        ConfigError: a class that the model does not know, or an option that cannot be.
    """
    require_seeds(seed, count)
    if wrong := [name for name in options if name not in Sampling.__dataclass_fields__]:
        raise unknown("option", wrong[0], list(Sampling.__dataclass_fields__), where="vitrail.sample")
    sampling, trained = Sampling(**options), open_diffusion(model).for_sampling(precision)
    labels = class_indices(trained, classes, count)
    show = preview or (NotebookPreview() if in_notebook() else None)

    def seen(step: Step) -> None:
        if show is not None:
            show(step.number, step.count, lambda: trained.pictures(step.clean[:SHOWN]))

    prepared, seeds = start_of(trained, start, sampling), range(seed, seed + count)
    return list(sample_pictures(trained, seeds, labels, sampling, start=prepared, batch_size=batch_size, seen=seen))


def require_seeds(seed: int, count: int) -> None:
    """Refuse to make no image, and seeds that no generator takes; raises `ConfigError`."""
    require_positive(**{"--count": count})
    require_at_most("--seed", seed + count - 1, SEEDS - 1)


def open_diffusion(
    model: str | Path | TrainedModel, *, latents: str | Path | None = None, engine: str = "auto"
) -> TrainedDiffusion:
    """Open a model that makes images, in Python or exported, with the VAE in ``latents`` in place of the one that it names.

    Raises:
        ModelFileError, ConfigError: as `require_diffusion`, or the ``engine`` does not run an exported model.
    """
    if not isinstance(model, str | Path):
        return require_diffusion(model, "model", latents=latents)
    if (graph := graph_of(model)) is not None:
        opened = quickest(graph, measure=False) if engine == "auto" else open_graph(graph, engine)
        return require_diffusion(opened, model, latents=latents)
    return require_diffusion(open_model(model), model, latents=latents)

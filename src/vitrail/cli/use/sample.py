"""``vitrail sample``."""

from pathlib import Path
from typing import Literal

from vitrail.cli.console import Whole, json_text, result


def sample(
    model: str,
    /,
    *,
    out: Path = Path("samples"),
    classes: str | None = None,
    count: Whole = 16,
    steps: Whole = 50,
    guidance: float = 1.0,
    guided_channels: Whole | None = None,
    interval: tuple[float, float] = (0.0, 1.0),
    power: float | None = None,
    sampler: Literal["ddpm", "ddim", "euler", "dpm++", "heun"] = "ddim",
    eta: float = 0.0,
    start: Path | None = None,
    strength: float | None = None,
    latents: Path | None = None,
    seed: Whole = 0,
    precision: Literal["fp32", "bf16"] = "fp32",
    batch_size: Whole = 64,
    resume: bool = False,
    json: bool = False,
) -> None:
    """Make images with a model that was trained with --task diffusion: vitrail sample RUN --classes cat,dog --count 32

    Each image depends on its own seed and class alone. Pictures are written as they come: what an interrupted command leaves
    keeps .partial behind its name, and --resume goes on with it.

    Parameters
    ----------
    model
        A run folder, a model folder or an exported model, of a run with --task diffusion.
    out
        A folder to write, which must not exist: numbered pictures, samples.png with many of them, and samples.json.
    classes
        Names of classes with commas between them. Default: all that the model knows.
    count
        Images in all, spread evenly over the classes.
    steps
        Steps from noise to image; heun passes the model twice in each.
    guidance
        Weight of the class: more than 1 makes images that are more like it, and more alike.
    guided_channels
        Guide the first channels alone: 3 is what the authors of DiT do with their latents. Default: all channels.
    interval
        Part of the way at which guidance works, two numbers from 0, the image, to 1, the noise: --interval 0.2 0.8.
    power
        Let guidance grow from 1 at the noise to its weight at the image, as MDT does with 4. Default: it is constant.
    sampler
        ddim, ddpm, dpm++ (good in 10 to 20 steps), heun, or of a flow euler, which is its ddim.
    eta
        Share of fresh noise in a step of ddim.
    start
        A photograph to begin with, in place of noise; needs --strength.
    strength
        How much of the photograph is made anew, above 0 and at most 1: so much of the steps is made.
    latents
        Of a model of latents: the folder of its VAE. Default: the one that the model names.
    seed
        Seed of the first image; each that follows has the next.
    precision
        Numbers that the model computes with. bf16 is faster where the processor has it; an image then depends a little on the
        others in its batch.
    batch_size
        Images that are made at once.
    resume
        Go on with what an interrupted command has left.
    json
        One JSON document: the list that samples.json has.
    """
    from vitrail.checks import require_positive
    from vitrail.files import partial_of, path_of
    from vitrail.runtime.output import report_partial, require_free
    from vitrail.weights.locate import require_possible

    require_possible(model)  # all of these before torch is imported
    require_positive(**{"--count": count, "--steps": steps, "--batch-size": batch_size})
    folder = path_of(out)
    require_free(folder, growing=not resume)
    from vitrail.cli.progress import counting
    from vitrail.tasks.diffusion.sampling.folder import SampleRequest, write_samples
    from vitrail.tasks.diffusion.sampling.making import open_diffusion
    from vitrail.tasks.diffusion.sampling.options import Sampling

    sampling = Sampling(steps, guidance, sampler, eta, guided_channels, interval, power, strength)
    names = None if classes is None else [name.strip() for name in classes.split(",")]
    photograph = None if start is None else path_of(start)
    request = SampleRequest(model, names, count, seed, sampling, batch_size, photograph, precision)
    trained = open_diffusion(model, latents=latents)
    try:
        with counting("sampling") as progress:
            progress.begin("sampling", count)
            rows = write_samples(folder, trained, request, resume=resume, on_batch=progress.advance)
    except BaseException:
        report_partial(folder, f"pictures; vitrail sample … --resume goes on with those in {partial_of(folder)}")
        raise
    result(json_text(rows) if json else f"{count} images in {folder}")

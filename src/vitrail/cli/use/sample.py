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
    sampler: Literal["ddpm", "ddim", "dpm++", "heun"] = "ddim",
    eta: float = 0.0,
    seed: Whole = 0,
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
    sampler
        ddim, ddpm, dpm++ (good in 10 to 20 steps) or heun.
    eta
        Share of fresh noise in a step of ddim.
    seed
        Seed of the first image; each that follows has the next.
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
    from vitrail.tasks.diffusion.sample_folder import SampleRequest, write_samples
    from vitrail.tasks.diffusion.sampling import Sampling, open_diffusion

    sampling = Sampling(steps, guidance, sampler, eta)
    names = None if classes is None else [name.strip() for name in classes.split(",")]
    request = SampleRequest(model, names, count, seed, sampling, batch_size)
    trained = open_diffusion(model)
    try:
        with counting("sampling") as progress:
            progress.begin("sampling", count)
            rows = write_samples(folder, trained, request, resume=resume, on_batch=progress.advance)
    except BaseException:
        report_partial(folder, f"pictures; vitrail sample … --resume goes on with those in {partial_of(folder)}")
        raise
    result(json_text(rows) if json else f"{count} images in {folder}")

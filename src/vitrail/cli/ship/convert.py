"""``vitrail convert``."""

from pathlib import Path
from typing import Any

from vitrail.cli.console import Whole, WholeOfStages, note, number, result


def convert(
    model: str,
    out: Path,
    /,
    *,
    layout: str | None = None,
    read_as: str | None = None,
    image_size: str | None = None,
    heads: WholeOfStages | None = None,
    time_shift: Whole | None = None,
    latents: Path | None = None,
    labels: Path | None = None,
    classes: str | None = None,
    trust_pickle: bool = False,
    key: str | None = None,
) -> None:
    """Write a model in another layout: for another library, or as a model folder of Vitrail.

    Parameters
    ----------
    model
        A run folder, a model folder, a file of weights (.safetensors, .npz), a hub id or a name of vitrail models --pretrained.
    out
        A folder, or a file that ends in .safetensors or .npz; it must not exist.
    layout
        What is written: timm, vit, deit, dinov2, siglip, clip, google, torchvision, vit-pytorch, … or vitrail; of a
        translator marian or vitrail, of a captioner vision-encoder-decoder or vitrail, of a model that makes images diffusers,
        dit or vitrail. Default for a folder: transformers' layout if it has a class for the model, else Vitrail's own.
    read_as
        The layout of what is read, where it must not be guessed.
    image_size
        Side of the images in pixels, or HEIGHTxWIDTH, that the model shall take; positions are interpolated.
    heads
        Attention heads, where the weights do not show their number; of a model of stages one for each, 1,2,5,8.
    time_shift
        Of weights in diffusers' format, which do not show it: 0 if they were trained with their authors' code, 1 with diffusers.
    latents
        The folder of the VAE whose latents the model makes, an AutoencoderKL of diffusers, for weights that name none.
    labels
        A text file with the name of a class on every line, for weights that have none.
    classes
        Keep only the logits of some classes: a text file with the number or the label of one on every line; or imagenet-1k, for
        weights of the 21,841 classes of ImageNet-22k.
    trust_pickle
        Also read .pt, .pth, .bin and .ckpt, by torch's restricted reader. Give it only for files from people you trust.
    key
        Of several models in a file the one to read, as model_ema or student. Default: the average of training.
    """
    from vitrail.errors import ConfigError
    from vitrail.files import path_of
    from vitrail.weights.locate import require_possible

    require_possible(model, in_python=True)  # before torch is imported
    if latents is not None and not (path_of(latents) / "config.json").is_file():
        hint = "give the folder of an AutoencoderKL, as diffusers saves it"
        raise ConfigError(f"there is no VAE in {str(latents)!r}", where="--latents", hint=hint)
    from vitrail.checks import refuse_given
    from vitrail.weights.convert import convert, read_labels
    from vitrail.weights.locate import SAYS_ITSELF, row_behind
    from vitrail.weights.model_folder.classes import read_classes, with_classes
    from vitrail.weights.model_folder.preparation import for_latents, makes_latents
    from vitrail.weights.reference import open_trained

    size = None if image_size is None else number(image_size)
    options = {"heads": heads, "time_shift": time_shift}
    fields: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    of_labels = {"--labels": labels is not None, "--classes": classes is not None}
    if row_behind(model) is not None:
        given = {"--image-size": size is not None, "--heads": heads is not None, "--time-shift": time_shift is not None}
        given |= {"--latents": latents is not None, **of_labels}
        refuse_given(SAYS_ITSELF, given | {"--read-as": read_as is not None, "--key": key is not None})
    trained: Any = open_trained(model, image_size=size, layout=read_as, trust_pickle=trust_pickle, key=key, **fields)
    if trained.fixed_labels:
        refuse_given(trained.fixed_labels, of_labels)
    if not trained.labels:
        refuse_given("the model answers with numbers that are no classes", {"--labels": labels is not None})
    if latents is not None:
        refuse_given("the model makes no latents", {"--latents": not makes_latents(trained.config)})
        trained.latents = str(path_of(latents).resolve())
        trained.preparation = for_latents(trained.config.image_size, trained.latents)
    if labels is not None:
        trained.labels = read_labels(path_of(labels), trained.config.num_classes)
    if classes is not None:
        trained = with_classes(trained, read_classes(classes, trained.labels))
    chosen = convert(trained, path_of(out), layout=layout)
    result(str(out))
    note(f"{sum(p.numel() for p in trained.parameters()):,} parameters, layout {chosen}")
    fields = trained.config.model_dump()
    if fields.get("experts"):
        note("expert {expert} of {experts} answers, counted from 0; in transformers give dataset_index {expert}".format(**fields))

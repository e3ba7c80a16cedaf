"""``vitrail models``."""

import json as json_format
from pathlib import Path
from typing import Any

from vitrail.cli.console import Whole, note, number, result, result_json
from vitrail.errors import ConfigError

COUNTED = Path(__file__).with_name("counted.json")
"""Parameters and multiply-adds of all listed models; ``python -m vitrail.cli.look.models`` counts them again, in a minute."""
FIELDS = {"dim": ("dims", "widths", "dim"), "depth": ("depths", "depth"), "heads": ("heads",), "mlp_dim": ("mlp_dim",)}
"""Columns of the table, with the possible names of the field in configurations: one number, or one for each stage."""


def models(
    names: list[str] | None = None,
    /,
    *,
    image_size: list[str] | None = None,
    measure: bool = False,
    batch_size: Whole = 8,
    pretrained: bool = False,
    json: bool = False,
) -> None:
    """List the models by family and name, with parameters and multiply-adds for one image, or for texts of 16 tokens.

    Any other patch size works, too: ViT-S/8, ViT-B/28. timm's names work, too: vit_base_patch16_224, resnet50.

    Parameters
    ----------
    names
        Names, run folders, model folders or files of weights. Default: all names.
    image_size
        Side of the images in pixels, or HEIGHTxWIDTH; may be given several times. Default: each model's own.
    measure
        Also build each model, and measure its images per second on this machine and the memory of training for one image.
    batch_size
        Images per batch, for the speed.
    pretrained
        List the pretrained models that are available by name, with size, licence and repository. A name works wherever a MODEL
        is expected, as in vitrail train --from ViT-Ti/16; the model is downloaded once (extra hf). Listing needs no network.
    json
        One JSON document: a list of models.
    """
    from vitrail.checks import refuse_given, require_positive
    from vitrail.cli.progress import counting
    from vitrail.models.registry import NAMES, model_config

    require_positive(**{"--batch-size": batch_size})
    if pretrained:
        others = {"NAMES": bool(names), "--image-size": bool(image_size), "--measure": measure}
        refuse_given("--pretrained lists all pretrained models", others)
        _list_published(json=json)
        return
    configs: dict[str, Any] = {name: _config_of(name) if names else model_config(name) for name in names or NAMES}
    sizes = [{"image_size": number(size)} for size in image_size or []] or [{}]
    if image_size or measure:
        configs = {name: _require_images(name, config) for name, config in configs.items() if names or _has_images(config)}
    wanted = _of_sizes(configs, sizes, all_must=bool(names))
    counted = json_format.loads(COUNTED.read_text())
    doing = "measuring" if measure else "counting"
    rows: list[dict[str, Any]] = []
    with counting(doing, "models") as progress:
        progress.begin(doing, len(wanted))
        for name, config in wanted:
            rows.append(_row(name, config, counted) | (_speed(config, batch_size) if measure else {}))
            progress.advance(1)
    if json:
        result_json(rows)
    else:
        _print(rows, measure=measure)


def _row(name: str, config: Any, counted: dict[str, tuple[int, int]]) -> dict[str, Any]:
    """Return the row of a model; for a model of the list this needs no torch."""
    from vitrail.models.registry import architecture_of

    parameters, macs = _totals(name, config, counted)
    about = {"model": name, "family": architecture_of(config).about, "image_size": list(getattr(config, "image_size", ()))}
    return {**about, **_fields(config), "parameters": parameters, "macs": macs}


def _speed(config: Any, batch_size: int) -> dict[str, Any]:
    """Build a model, and measure its speed and training memory on this machine."""
    from vitrail.models.registry import build
    from vitrail.runtime.device import pick_device
    from vitrail.study.speed import measured

    (speed,) = measured(build(config).to(pick_device()).eval(), batch_size, sizes=[config.image_size])
    return {"training_bytes": speed.training_bytes, "images_per_second": speed.images_per_second}


def _of_sizes(configs: dict[str, Any], sizes: list[dict[str, Any]], *, all_must: bool) -> list[tuple[str, Any]]:
    """Return each model at each size. A model that cannot have a size is an error if ``all_must``, else left out with a note."""
    wanted: list[tuple[str, Any]] = []
    refused: dict[str, ConfigError] = {}
    for name, config in configs.items():
        try:
            wanted += [(name, config.changed(**size)) for size in sizes]
        except ConfigError as error:
            refused[name] = error
    if refused and (all_must or not wanted):
        raise next(iter(refused.values()))
    if refused:
        note(f"left out: {len(refused)} models that cannot have images of that size")
    return wanted


def _fields(config: Any) -> dict[str, Any]:
    """Return the values of `FIELDS` in a configuration; None for a missing field."""
    found = {
        field: next((getattr(config, name) for name in names if hasattr(config, name)), None) for field, names in FIELDS.items()
    }
    return {field: list(value) if isinstance(value, tuple) else value for field, value in found.items()}


def _print(rows: list[dict[str, Any]], *, measure: bool) -> None:
    """Print the table, family by family."""
    last = f"{'MB in training':>16}{'images/s':>10}" if measure else ""
    widths = {field: max(len(field), *(len(_text(row[field])) for row in rows)) + 2 for field in FIELDS}
    head = "".join(f"{field.removesuffix('_dim'):>{width}}" for field, width in widths.items())
    result(f"{'model':<22}{'image':>9}{head}{'parameters':>16}{'multiply-adds':>16}{last}")
    family = ""
    for row in rows:
        if row["family"] != family:
            family = row["family"]
            result(f"\n{family}")
        image = "×".join(str(side) for side in row["image_size"]) or "text"
        fields = "".join(f"{_text(row[field]):>{width}}" for field, width in widths.items())
        last = f"{row['training_bytes'] / 1e6:>16,.1f}{row['images_per_second']:>10.1f}" if measure else ""
        result(f"{row['model']:<22}{image:>9}{fields}{row['parameters']:>16,}{row['macs'] / 1e9:>14.2f} G{last}")


def _text(value: Any) -> str:
    return "–" if value is None else "-".join(map(str, value)) if isinstance(value, list) else str(value)


def _list_published(*, json: bool) -> None:
    from dataclasses import asdict

    from vitrail.weights.published import PUBLISHED

    if json:
        result_json([asdict(model) for model in PUBLISHED.values()])
        return
    result(f"{'name':<12}{'MB':>6}  {'licence':<13}{'trained on':<43}{'on the hub'}")
    for model in PUBLISHED.values():
        result(f"{model.name:<12}{model.megabytes:>6,}  {model.licence:<13}{model.about:<43}{model.repository}")


def _config_of(reference: str) -> Any:
    """Return the configuration of a MODEL; torch is imported only to open one."""
    from vitrail.models.registry import model_config
    from vitrail.weights.locate import is_name, require_possible

    require_possible(reference, or_name=True)
    if is_name(reference):
        return model_config(reference)
    from vitrail.weights.reference import config_of

    return config_of(reference)


def _has_images(config: Any) -> bool:
    return hasattr(config, "image_size")


def _require_images(name: str, config: Any) -> Any:
    if not _has_images(config):
        raise ConfigError("it is a model of texts", where=name, hint="leave --image-size and --measure out")
    return config


def _totals(name: str, config: Any, counted: dict[str, tuple[int, int]]) -> tuple[int, int]:
    """Return parameters and multiply-adds of a model; for a model of the list this needs no torch."""
    from vitrail.models.registry import model_config

    if name in counted and config == model_config(name):
        return counted[name]
    from vitrail.models.cost import totals

    return totals(config)


if __name__ == "__main__":
    from vitrail.models.registry import NAMES, model_config

    lines = [f'  "{name}": {json_format.dumps(_totals(name, model_config(name), {}))}' for name in NAMES]
    COUNTED.write_text("{\n" + ",\n".join(lines) + "\n}\n")

"""``vitrail study``."""

from typing import Any

from vitrail.cli.console import Whole, result, result_json
from vitrail.cli.flags import Model, Split
from vitrail.tasks.metrics import main_metric


def study(
    model: Model,
    *,
    data: str | None = None,
    out: str | None = None,
    split: Split = None,
    images: Whole = 100,
    layer: Whole | None = None,
    head: Whole | None = None,
    query: tuple[Whole, Whole] | None = None,
    joint: list[str] | None = None,
    json: bool = False,
) -> None:
    """Study a model: its attention, features and errors. Writes plots, data and one HTML page.

    Parameters
    ----------
    data
        Data as for vitrail train, or images without labels or joints. Default: the data of the run.
    out
        The folder to write. Default: studies/NAME-DATE-TIME.
    images
        Number of images or people, drawn at random; images without labels or joints are taken at even distances.
    layer
        The layer whose attention is drawn, from 0; negative numbers count from the end. Default: the last.
    head
        The attention head, from 0. Default: the mean of all.
    query
        ROW COLUMN of the query patch, from 0. Default: the token that the prediction is read from, such as the class token.
    joint
        For pose models: a joint whose heatmaps are drawn, such as left_wrist; may be given several times. Default: a selection.
    json
        One JSON document: the content of study.json, and the folder.
    """
    from vitrail.weights.locate import require_possible

    require_possible(model, in_python=True)  # before torch is imported
    from vitrail import api
    from vitrail.checks import require_positive
    from vitrail.cli.progress import StageProgress

    require_positive(**{"--images": images})
    options: dict[str, Any] = {"split": split, "images": images, "layer": layer, "head": head, "query": query}
    with StageProgress() as progress:
        folder, numbers = api.study_model(model, data, out, joints=joint or (), observer=progress, **options)
    if json:
        result_json({"folder": str(folder), **numbers})
        return
    if "scores" in numbers:
        scores = numbers["scores"]
        metric = main_metric(scores)
        result(f"{metric.title:<15} {metric.shown(scores[metric.name])} of {numbers['images']} {numbers.get('of', 'images')}")
    if "occlusion" in numbers:
        areas = numbers["occlusion"]["area"]
        best, chance = (100 * areas[order] for order in ("most relevant first", "at random"))
        result(f"occlusion       {best:.0f} % left on average when the most relevant patches go first, {chance:.0f} % at random")
    result(f"report          {folder / 'report.html'}")

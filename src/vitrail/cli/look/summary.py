"""``vitrail summary``."""

from vitrail.cli.console import number, result, result_json


def summary(model: str, *, image_size: str | None = None, json: bool = False) -> None:
    """Show layers, shapes, parameters and multiply-adds of a model, for one image.

    Parameters
    ----------
    model
        A name of vitrail models, a run folder, a model folder, a file of weights or a hub id.
    image_size
        Side of the image in pixels, or HEIGHTxWIDTH. Default: the model's own.
    json
        One JSON document: model, parameters, macs, layers.
    """
    from vitrail.weights.locate import require_possible

    require_possible(model, or_name=True, in_python=True)  # before torch is imported
    from vitrail.models.cost import cost
    from vitrail.weights.reference import config_of

    config = config_of(model)
    if image_size is not None:
        config = config.changed(image_size=number(image_size))
    counted = cost(config)
    if json:
        result_json(counted.to_dict(model))
    else:
        result(counted.to_text(model))

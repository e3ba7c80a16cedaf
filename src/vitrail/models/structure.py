"""Comparison of a model that was changed by hand with the model that its configuration builds."""

from vitrail.models.base import Model
from vitrail.models.empty import empty_model


def changed_parts(model: Model) -> dict[str, str]:
    """Return the parts that differ from those its configuration builds: a sentence about each, by dotted name.

    A part is a module of another type, or a parameter or buffer of another shape. Parts inside a module that differs are not
    listed. Attributes that are not tensors, such as an epsilon, are not compared.
    """
    expected = empty_model(model.config)
    if type(model) is not type(expected):
        return {"": f"the model is a {type(model).__name__}, the configuration builds a {type(expected).__name__}"}
    own, usual = dict(model.named_modules()), dict(expected.named_modules())
    changed: dict[str, str] = {}
    for name in [*own, *(name for name in usual if name not in own)]:
        if any(name.startswith(f"{part}.") for part in changed) or type(own.get(name)) is type(usual.get(name)):
            continue
        there, built = (f"a {type(modules[name]).__name__}" if name in modules else "none" for modules in (own, usual))
        changed[name] = f"{name} is {there}, the configuration builds {built}"
    shapes, others = ({key: tuple(tensor.shape) for key, tensor in of.state_dict().items()} for of in (model, expected))
    for key in [*shapes, *(key for key in others if key not in shapes)]:
        if shapes.get(key) != others.get(key) and not any(key.startswith(f"{part}.") for part in changed):
            changed[key] = f"{key} is {shapes.get(key, 'none')}, the configuration builds {others.get(key, 'none')}"
    return changed

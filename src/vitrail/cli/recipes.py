"""``vitrail recipes``."""

from typing import Annotated

from cyclopts import Parameter

from vitrail.cli.console import result


def recipes(name: str | None = None, *, full: Annotated[bool, Parameter(negative=())] = False) -> None:
    """List the recipes, or print one as the YAML that --config takes.

    Parameters
    ----------
    name
        The recipe to print.
    full
        With every setting there is, also those the recipe leaves at their default.
    """
    from vitrail.models.registry import USUAL
    from vitrail.training.configuration import resolve, to_yaml
    from vitrail.training.recipes import read_recipe, recipe_names, recipe_text

    if name is not None and full:
        recipe_text(name)  # raises what is wrong with the name
        placeholders = {"data": {"source": "FOLDER"}, "model": {"name": USUAL}}  # of what the recipe leaves to its user
        result(to_yaml(resolve(placeholders, read_recipe(name), {})).rstrip())
        return
    if name is not None:
        result(recipe_text(name).rstrip())
        return
    for known in recipe_names():
        recipe = read_recipe(known)
        result(f"{known:<17}{' '.join(recipe['about'].split())}")
        for promise, text in recipe["expected"].items():
            result(f"{'':<17}{promise}: {text}")

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
    from vitrail.training.recipes import read_recipe, recipe_names, recipe_text
    from vitrail.training.settings import resolve, to_yaml

    if name is not None and full:
        recipe_text(name)  # says what is wrong with the name
        result(to_yaml(resolve({"data": {"source": "FOLDER"}}, read_recipe(name), {})).rstrip())
        return
    if name is not None:
        result(recipe_text(name).rstrip())
        return
    for known in recipe_names():
        result(f"{known:<10}{' '.join(read_recipe(known)['about'].split())}")

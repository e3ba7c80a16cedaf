"""``vitrail recipes``."""

from vitrail.cli.console import result


def recipes(name: str | None = None) -> None:
    """List the recipes, or print one as the YAML that --config takes.

    Parameters
    ----------
    name
        The recipe to print.
    """
    from vitrail.training.recipes import read_recipe, recipe_names, recipe_text

    if name is not None:
        result(recipe_text(name).rstrip())
        return
    for known in recipe_names():
        result(f"{known:<10}{' '.join(read_recipe(known)['about'].split())}")

"""``vitrail recipes``."""

from vitrail.cli.console import result


def recipes(name: str | None = None, *, full: bool = False) -> None:
    """List the recipes, or print one as the YAML that --config takes.

    Parameters
    ----------
    name
        The recipe to print.
    full
        Print all settings, also those that the recipe leaves at their default.
    """
    from vitrail.checks import refuse_given
    from vitrail.config.configuration import resolve
    from vitrail.config.recipes import read_recipe, recipe_names, recipe_text
    from vitrail.config.yaml_files import to_yaml
    from vitrail.models.registry import USUAL

    refuse_given("--full needs the NAME of a recipe", {"--full": full and name is None})
    text = None if name is None else recipe_text(name, where="NAME")
    if name is not None and full:
        placeholders = {"data": {"source": "FOLDER"}, "model": {"name": USUAL}}  # required settings of the user
        result(to_yaml(resolve(placeholders, read_recipe(name), {})).rstrip())
        return
    if text is not None:
        result(text.rstrip())
        return
    for known in recipe_names():
        recipe = read_recipe(known)
        result(f"{known:<17}{' '.join(recipe['about'].split())}")
        for promise, text in recipe["expected"].items():
            result(f"{'':<17}{promise}: {text}")

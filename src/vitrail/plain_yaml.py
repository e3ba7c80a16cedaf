"""YAML for settings: times and dates are read as text."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from vitrail.errors import ConfigError

MOST_VALUES, MOST_DIGITS = 100_000, 100
"""Limits: the number of values in a text (a value counts once for each alias), and the digits of an integer."""

SIXTY = re.compile(r"[-+]?\d[\d_]*(:[0-5]?\d)+(\.\d*)?$")
"""A number in base 60: YAML would read ``1:30`` as 90."""
WHOLE = "tag:yaml.org,2002:int"
WORD, DATE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:timestamp"


class PlainLoader(yaml.SafeLoader):
    """A YAML loader for the kinds of values that a setting can have."""


PlainLoader.yaml_implicit_resolvers = {
    first: [(WORD, SIXTY), *(pair for pair in known if pair[0] != DATE)]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def value_of(text: str, *, where: object, check: Callable[[yaml.Node], None] = lambda node: None) -> Any:
    """Return the value that a YAML text holds; ``check`` is called with each node first.

    Raises:
        ConfigError: the text, with its aliases expanded, has too many values, or an integer has too many digits.
        yaml.YAMLError, ValueError, RecursionError: the text is not YAML.
    """
    loader = PlainLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        for inner in _nodes(node, where):
            check(inner)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _nodes(node: yaml.Node, where: object) -> Iterator[yaml.Node]:
    """Yield a node and all nodes below it, an aliased node once for each alias; raises as `value_of`."""
    rest, count = [node], 0
    while rest:
        inner = rest.pop()
        count += 1
        if count > MOST_VALUES:
            raise ConfigError(f"the text holds more than {MOST_VALUES:,} values", where=where, hint="write less, without aliases")
        if isinstance(inner, yaml.ScalarNode) and inner.tag == WHOLE and len(inner.value) > MOST_DIGITS:
            what = f"{inner.value[:20]}… is a number of {len(inner.value):,} digits"
            line = f", line {inner.start_mark.line + 1}" * isinstance(where, Path)
            raise ConfigError(what, where=f"{where}{line}", hint=f"write a number of at most {MOST_DIGITS} digits")
        yield inner
        if isinstance(inner, yaml.SequenceNode):
            rest.extend(inner.value)
        elif isinstance(inner, yaml.MappingNode):
            rest.extend(part for pair in inner.value for part in pair)


def words_of(text: str) -> list[Any]:
    """Return the items of a YAML list as text, and null as None; raises `yaml.YAMLError` or `RecursionError`."""
    return [None if word == "null" else word for word in yaml.BaseLoader(f"[{text}]").get_single_data()]

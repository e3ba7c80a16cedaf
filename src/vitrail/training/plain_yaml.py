"""YAML as settings are written in it: times and dates are words."""

import re
from typing import Any

import yaml

SIXTY = re.compile(r"[-+]?\d[\d_]*(:[0-5]?\d)+(\.\d*)?$")
"""A number in base 60, as which YAML reads 1:30: it would be 90, of whatever the setting counts."""
WORD, DATE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:timestamp"


class PlainLoader(yaml.SafeLoader):
    """Of YAML's kinds of values those that a setting can have."""


PlainLoader.yaml_implicit_resolvers = {
    first: [(WORD, SIXTY), *(pair for pair in known if pair[0] != DATE)]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def value_of(text: str) -> Any:
    """What a text stands for; raises `yaml.YAMLError`, `ValueError` or `RecursionError`."""
    return PlainLoader(text).get_single_data()


def words_of(text: str) -> list[Any]:
    """What is listed in a text, each as it is written, but null; raises `yaml.YAMLError` or `RecursionError`."""
    return [None if word == "null" else word for word in yaml.BaseLoader(f"[{text}]").get_single_data()]

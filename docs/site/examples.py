"""Examples in docstrings (``>>> …``) as code; Markdown takes them for quotations of quotations."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> (.*?)(?:  # doctest: .*)?$", re.MULTILINE)


class Examples(griffe.Extension):
    """Indents the lines of an example, as Markdown wants code."""

    def on_object(self, *, obj: griffe.Object, **rest: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(r"    \1", obj.docstring.value)

"""Notebooks: a check for one, and tables in its cells."""

import html
import sys
from collections.abc import Iterable, Sequence


def in_notebook() -> bool:
    """Return whether this runs in the kernel of a notebook; IPython in a terminal has no kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return getattr(shell, "kernel", None) is not None


def table(title: str, rows: Iterable[Sequence[object]], *, head: Sequence[str] = (), below: str = "") -> str:
    """Return an HTML table with the line ``title`` above and ``below`` under it; every text is escaped."""
    lines = [f"<b>{html.escape(title)}</b><table>"]
    if head:
        lines.append(_row("th", head))
    lines += [_row("td", row) for row in rows]
    return "".join([*lines, "</table>", f"<div>{html.escape(below)}</div>" if below else ""])


def _row(cell: str, values: Sequence[object]) -> str:
    return f"<tr>{''.join(f'<{cell}>{html.escape(str(value))}</{cell}>' for value in values)}</tr>"

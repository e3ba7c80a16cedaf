"""Self-contained HTML pages, without scripts, external fonts or images; they can be printed."""

import base64
from collections.abc import Iterable, Sequence
from html import escape
from io import BytesIO
from pathlib import Path

from PIL import Image

from vitrail.data.images.decode import Source, decode_reduced

THUMBNAIL = 240
"""Pixels of the longer side of an image in a gallery."""
LEAST, NARROW = 0.7, 600
"""Figures wider than `NARROW` pixels shrink to at least this fraction of their width, and then scroll."""
STYLE = """
:root { color-scheme: light dark; --ground: white; --ink: #1b1b1b; --quiet: #555; --line: #ddd; --faint: #f5f5f5;
  --mark: #fdeee3; --best: #00694b; --bar: #0072b2; --link: #0057a0; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ground: #16181c; --ink: #e8e6e3; --quiet: #a3a7ae; --line: #3a3f47; --faint: #22252b;
    --mark: #46301f; --best: #5fd3a6; --bar: #3f9bd8; --link: #8cc4f5; }
}
html { font-size: 16px; }
body { font: 1rem/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); max-width: 62rem; margin: 2rem auto;
  padding: 0 1rem; print-color-adjust: exact; } a { color: var(--link); }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .6rem; border-bottom: 1px solid var(--line); padding-bottom: .2rem;
  break-after: avoid; overflow-wrap: anywhere; }
p { margin: .5rem 0; max-width: 48rem; overflow-wrap: anywhere; } .note, figcaption { color: var(--quiet); font-size: .9rem; }
figure { margin: .6rem 0; break-inside: avoid; } img { max-width: 100%; height: auto; }
figcaption { max-width: 48rem; margin-top: .4rem; }
.drawn img { display: block; box-sizing: border-box; background: white; padding: .5rem; border-radius: .3rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .8rem; margin: 1.4rem 0; }
.card { border: 1px solid var(--line); border-radius: .5rem; padding: .7rem 1rem; break-inside: avoid; }
.number { font-size: 1.8rem; line-height: 1.3; font-weight: 600; }
.gallery { display: grid; grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); gap: .8rem; margin: .6rem 0; }
.gallery figure { margin: 0; } .gallery img { width: 100%; } .gallery figcaption { overflow-wrap: anywhere; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
td, th { padding: .2rem 1.2rem .2rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { border-color: var(--quiet); } tr { break-inside: avoid; }
.name { overflow-wrap: anywhere; min-width: 6rem; max-width: 24rem; }
.right { text-align: right; white-space: nowrap; } tr.marked td { background: var(--mark); } tr.total td { font-weight: 600; }
td.best { color: var(--best); font-weight: 700; }
.bar { display: block; height: .7rem; margin-top: .35rem; background: var(--bar); min-width: 1px; }
td.bars { width: 9rem; min-width: 5rem; }
pre { background: var(--faint); padding: .8rem; overflow-x: auto; font-size: .8rem; } details { margin: .6rem 0; }
summary { cursor: pointer; }
@media print { html { font-size: 11px; } body { margin: 0; } .drawn img { min-width: 0 !important; padding: 0; }
  img { max-height: 11cm; } pre { white-space: pre-wrap; } .wide { overflow: visible; } }
"""


class Markup(str):
    """Text that is already HTML; any other text is escaped when it is inserted."""


class Link(Markup):
    """A link to another page."""


class Number(str):
    """A formatted number, right-aligned in its column."""


class Best(Number):
    """The best number of its column, which is highlighted."""


def text(value: object) -> Markup:
    """Return HTML: `Markup` unchanged, anything else escaped."""
    return value if isinstance(value, Markup) else Markup(escape(str(value)))


def page(title: str, sections: Iterable[Markup]) -> str:
    """Return a complete page."""
    whole = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>{''.join(sections)}</body></html>\n"
    )
    return whole.encode("utf-8", "backslashreplace").decode()  # a file name may contain bytes that are not UTF-8


def section(title: str, *contents: Markup) -> Markup:
    return Markup(f"<section><h2>{escape(title)}</h2>{''.join(contents)}</section>")


def paragraph(words: str) -> Markup:
    return Markup(f"<p>{text(words)}</p>")


def note(words: str) -> Markup:
    return Markup(f'<p class="note">{text(words)}</p>')


def cards(shown: Iterable[tuple[str, str]]) -> Markup:
    """Return large numbers, each with its description."""
    each = (
        f'<div class="card"><div class="number">{text(number)}</div><div class="note">{text(_unbroken(what))}</div></div>'
        for number, what in shown
    )
    return Markup(f'<div class="cards">{"".join(each)}</div>')


def _unbroken(words: str) -> str:
    """Join a number and its % by a non-breaking space."""
    return words.replace(" %", "\u00a0%")


def picture(file: Path, title: str, caption: str) -> Markup:
    """Embed a PNG file."""
    content = file.read_bytes()
    with Image.open(BytesIO(content)) as drawn:
        least = round(LEAST * drawn.width) if drawn.width > NARROW else 0
    data = base64.b64encode(content).decode()
    image = f'<img alt="{escape(title)}" style="min-width:{least}px" src="data:image/png;base64,{data}">'
    return Markup(f'<figure><div class="wide drawn">{image}</div><figcaption>{text(caption)}</figcaption></figure>')


def link(words: str, address: str) -> Link:
    return Link(f'<a href="{escape(address)}">{text(words)}</a>')


def inline(picture: Image.Image, name: str) -> Markup:
    """Embed a small image as JPEG."""
    file = BytesIO()
    picture.save(file, "JPEG", quality=85)
    return Markup(f'<img alt="{escape(name)}" src="data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}">')


def thumbnail(source: Source, name: str) -> Markup:
    """Embed an image file at the size of a gallery image."""
    picture = decode_reduced(source, least=THUMBNAIL).image
    picture.thumbnail((THUMBNAIL, THUMBNAIL))
    return inline(picture, name)


def gallery(cells: Iterable[tuple[Markup, str, str]]) -> Markup:
    """Return small images side by side, each with its caption and name."""
    each = (
        f"<figure>{picture}<figcaption><b>{text(said)}</b><br>{text(name)}</figcaption></figure>" for picture, said, name in cells
    )
    return Markup(f'<div class="gallery">{"".join(each)}</div>')


def bar(share: float) -> Markup:
    """Return a horizontal bar, whose length is a fraction of its column."""
    return Markup(f'<span class="bar" style="width:{100 * share:.1f}%"></span>')


def table(
    head: Sequence[str], rows: Iterable[Sequence[object]], *, marked: Iterable[int] = (), total: Sequence[object] | None = None
) -> Markup:
    """Return a table of names, `Number` and `bar` cells; ``marked`` row numbers are highlighted, ``total`` is the last row."""
    rows, marks = list(rows), set(marked)
    kinds = [_kind(cell) for cell in (rows or [head])[0]]
    lines = [_row("th", head, kinds)]
    lines += [_row("td", row, kinds, "marked" if place in marks else "") for place, row in enumerate(rows)]
    if total is not None:
        lines.append(_row("td", total, kinds, "total"))
    return Markup(f'<div class="wide"><table>{"".join(lines)}</table></div>')


def _kind(cell: object) -> str:
    if isinstance(cell, Number):
        return "right"
    return "bars" if isinstance(cell, Markup) and not isinstance(cell, Link) else "name"


def _row(tag: str, cells: Sequence[object], kinds: Sequence[str], of: str = "") -> str:
    named = ((cell, f"{kind} best" if isinstance(cell, Best) else kind) for cell, kind in zip(cells, kinds, strict=True))
    inside = "".join(f'<{tag} class="{kind}">{text(cell)}</{tag}>' for cell, kind in named)
    return f'<tr class="{of}">{inside}</tr>' if of else f"<tr>{inside}</tr>"


def folded(title: str, content: Markup) -> Markup:
    """Return content that is hidden until its title is clicked."""
    return Markup(f"<details><summary>{escape(title)}</summary>{content}</details>")


def verbatim(words: str) -> Markup:
    return Markup(f"<pre>{escape(words)}</pre>")

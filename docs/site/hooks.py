"""What makes pages of the documents: those that lie elsewhere join them, with the sources they lead to; formulas are drawn."""

import html
import re
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.mathtext import math_to_image
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = {"index.md": "README.md", "CHANGELOG.md": "CHANGELOG.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}
SOURCE = re.compile(r"\]\(\.\./src/vitrail/([\w/]+)\.py\)")
POINTS = 100
"""The size at which formulas are drawn: large, because matplotlib rounds to whole points."""
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Adds what the site has beside docs/: the README as its first page, and a page for each source file with a link to it."""
    for page, document in ELSEWHERE.items():
        text = (ROOT / document).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text.replace("](docs/", "](")))
    linked = {name for file in files.documentation_pages() for name in SOURCE.findall(file.content_string)}
    for name in sorted(linked):
        code = (ROOT / f"src/vitrail/{name}.py").read_text(encoding="utf-8")
        text = f"---\nsearch: {{exclude: true}}\n---\n\n# vitrail/{name}.py\n\n````python\n{code}````\n"
        files.append(File.generated(config, f"source/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, **rest: Any) -> str:
    """Links to source files lead to their pages; GitHub's other way to write a formula becomes the usual one."""
    return SOURCE.sub(r"](source/\1.md)", re.sub(r"\$`([^`\n]+)`\$", r"$\1$", markdown))


def on_page_content(content: str, **rest: Any) -> str:
    """Formulas are drawn by matplotlib, so that no page has to load a program that does."""
    return FORMULA.sub(lambda found: picture(html.unescape(found[2]).strip(), found[1]), content)


@cache
def picture(formula: str, element: str) -> str:
    """A formula as SVG in the colour and size of the text around it; `ValueError` for TeX that matplotlib does not understand."""
    drawn = StringIO()
    with matplotlib.rc_context({"mathtext.fontset": "cm", "font.size": POINTS}):
        below = math_to_image(f"${formula}$", drawn, dpi=72, format="svg")
    svg = drawn.getvalue()
    width, height = (float(found) for found in re.findall(r'(?:width|height)="([\d.]+)pt"', svg)[:2])
    size = f"width: {width / POINTS:.3f}em; height: {height / POINTS:.3f}em; vertical-align: {-below / POINTS:.3f}em"
    inner = re.sub(r' id="\w+_1"|<!--.*?-->|\n', "", svg[svg.index('<g id="text_1">') : svg.rindex("</svg>") - len("</g>\n")])
    drawing = f'<svg viewBox="0 0 {width} {height}" style="{size}" role="img" aria-label="{html.escape(formula)}">{inner}</svg>'
    return f'<{element} class="formula">{drawing}</{element}>'

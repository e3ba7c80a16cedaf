"""A page of images with their most similar images."""

from collections.abc import Sequence
from pathlib import Path

from vitrail.files import write_text
from vitrail.study.page import page

SHOWN = 50
"""Maximum number of images on the page; each has about ten similar images below it."""


def write_similar(folder: Path, found: Sequence[tuple[Path, Sequence[tuple[Path, float]]]], *, title: str) -> None:
    """Write ``report.html`` with the first `SHOWN` images, each with its most similar images and their cosines."""
    sections = [
        page.section(
            query.name,
            page.gallery([(page.thumbnail(query, query.name), "the image itself", query.name)]),
            page.paragraph("The most similar images, with the cosine of their vectors:"),
            page.gallery((page.thumbnail(file, file.name), f"{cosine:.3f}", _name(file)) for file, cosine in nearest),
        )
        for query, nearest in found[:SHOWN]
    ]
    if len(found) > SHOWN:
        sections.append(page.note(f"The page shows the first {SHOWN} of {len(found):,} images."))
    write_text(folder / "report.html", page.page(title, sections))


def _name(file: Path) -> str:
    """Return a file's name with its folder, which may be its class."""
    return "/".join(file.parts[-2:])

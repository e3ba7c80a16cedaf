"""The page of a server: a shell that all tasks share, with the part of one task inside."""

from dataclasses import dataclass
from pathlib import Path
from string import Template

SHELL = Path(__file__).parent / "page"
SHARED = ("page.css", "page.js", "pictures.css", "pictures.js", "icon.svg")
"""Files that pages share."""
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@dataclass(frozen=True)
class Page:
    """The part of a task: ``NAME.html``, the inside of the shell, with ``NAME.css``, ``NAME.js`` and what else begins so."""

    folder: Path
    """Holds the files."""
    name: str
    example: str
    """What curl sends, with ADDRESS for that of the server."""
    pictures: bool = True
    """True where pictures are sent, else it is texts, ..."""
    sent: str = ""
    """... or what this says."""

    def files(self) -> dict[str, tuple[bytes, str]]:
        """Return the content of each path, and its media type."""
        own = sorted(file for file in self.folder.glob(f"{self.name}*") if file.suffix != ".html")
        files = {f"/{file.name}": (file.read_bytes(), KINDS[file.suffix]) for file in [*map(SHELL.joinpath, SHARED), *own]}
        return {"/": (self._whole().encode(), KINDS[".html"]), **files}

    def _whole(self) -> str:
        return Template((SHELL / "page.html").read_text(encoding="utf-8")).substitute(
            name=self.name,
            inside=(self.folder / f"{self.name}.html").read_text(encoding="utf-8").rstrip(),
            pictures='<link rel="stylesheet" href="pictures.css">\n' if self.pictures else "",
            sent=self.sent or ("Pictures" if self.pictures else "Texts"),
            example=self.example.replace('"', "&quot;"),
            told=self.example.replace("ADDRESS", "this address"),
        )

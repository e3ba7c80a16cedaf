"""Write the locks: everything that is installed, with the hashes of all files of that version. Needs uv; ``make lock`` runs it.

What is pinned stands in ``constraints.txt``. Each lock is for every system and Python that Vitrail runs on. ``cuda.txt`` has what
torch's build for GPUs needs on Linux; ``cpu.txt``, its build for processors alone, is in no index that uv asks: it is by hand.
"""

import re
import subprocess
from pathlib import Path
from tempfile import NamedTemporaryFile

HERE = Path(__file__).parent
ROOT = HERE.parent
LOCKS = {
    "core": [],
    "serve": ["--extra", "export", "--extra", "serve"],
    "dev": ["--extra", "dev"],
}
"""By name, with the extras of each."""
FOR_GPUS = re.compile(r"(nvidia|cuda|triton)\b")
ALONE = [HERE / "uv.txt", ROOT / "tests" / "peers.txt", *sorted(ROOT.glob("tests/vit-pytorch/*.txt"))]
"""Files that have their own pins: uv, and what tests compare with; installed without what they ask for."""


def locked(*arguments: str) -> dict[str, str]:
    """The lines of every package that uv finds, by name."""
    command = ["uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11.5", "--generate-hashes"]
    command += ["--no-header", "--no-annotate", "--no-config", *arguments]
    text = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return {block.partition("==")[0]: block for block in re.split(r"\n(?=\S)", text.strip())}


def write(file: Path, about: str, packages: dict[str, str]) -> None:
    """A file of requirements, in the order of names."""
    file.write_text(f"# {about} Written by `make lock`.\n" + "".join(f"{packages[name]}\n" for name in sorted(packages)))


def main() -> None:
    """Write all of them."""
    build = HERE / "build.in"
    for name, extras in LOCKS.items():
        found = locked("--constraint", "constraints.txt", *extras, "pyproject.toml", str(build))
        own = {package: lines for package, lines in found.items() if not FOR_GPUS.match(package)}
        write(HERE / f"{name}.txt", f"What Vitrail needs: {name}.", own)
        if name == "core":
            gpu = {package: lines for package, lines in found.items() if package not in own}
            write(HERE / "cuda.txt", "What torch's build for GPUs needs beside that.", gpu)
    for file in ALONE:
        text = file.read_text()
        with NamedTemporaryFile("w", suffix=".in") as pins:
            pins.write("\n".join(re.findall(r"^[\w-]+==[\w.]+", text, re.MULTILINE)))
            pins.flush()
            found = locked("--no-deps", pins.name)
        head = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
        file.write_text(head + "".join(f"{found[name]}\n" for name in sorted(found)))


if __name__ == "__main__":
    main()

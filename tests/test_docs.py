"""Checks of the documents: their snippets run, their links lead somewhere, their commands exist."""

import ast
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cyclopts import App
from PIL import Image
from pyarrow import parquet as pq
from sklearn.datasets import load_digits

from documents import ROOT, blocks, command_lines, run_python
from vitrail.cli.app import app
from vitrail.config.known_settings import check_names
from vitrail.config.short_names import SHORT_NAMES
from vitrail.errors import ConfigError

GUIDES = [p for p in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if p.exists()]
PAGES = GUIDES + [p for p in (ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md") if p.exists()]

NOT_RUN_AT_MOST = {"docs/formulas.md": 0, "docs/transformer.md": 0}
NOT_RUN_ELSEWHERE = 2

GLOBAL_FLAGS = {"--help", "-h", "--version", "--debug"}


def name_of(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


each_guide = pytest.mark.parametrize("guide", GUIDES, ids=name_of)
SCALING = ROOT / "docs" / "scaling.md"


def prose(markdown: str) -> str:
    """Return a document without its code, every line in its place."""
    lines = markdown.splitlines()
    for block in blocks(markdown):
        for number in range(block.line, block.line + block.text.count("\n") + 1):
            lines[number - 1] = ""
    return re.sub(r"`[^`\n]+`", "", "\n".join(lines))


# Python


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Create a working directory with photos/CLASS/*.png: three of scikit-learn's digits, 20 images of each."""
    digits = load_digits()
    for label, name in enumerate(("zero", "one", "two")):
        folder = tmp_path / "photos" / name
        folder.mkdir(parents=True)
        for i, pixels in enumerate(digits.images[digits.target == label][:20]):
            image = Image.fromarray((pixels * 15.9).astype("uint8")).convert("RGB")
            image.resize((32, 32), Image.Resampling.BICUBIC).save(folder / f"{name}-{i:02}.png")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    yield tmp_path / "photos"
    if "ray" in sys.modules:  # which a snippet has started
        sys.modules["ray"].shutdown()


@pytest.mark.parametrize("guide", [guide for guide in GUIDES if guide != SCALING], ids=name_of)
def test_snippets_run(guide: Path, photos: Path, request: pytest.FixtureRequest) -> None:
    if name_of(guide) != "docs/python.md":  # which reads what the report wrote
        request.getfixturevalue("unreported")
    run_python(name_of(guide), guide.read_text(encoding="utf-8"))


@pytest.mark.usefixtures("unreported")
def test_snippets_of_ray_run_and_go_on_with_the_images_that_are_left(photos: Path) -> None:
    """As after a program that was killed: `predicted.done` lists the images of one class."""
    *left, done = ([str(file) for file in folder.iterdir()] for folder in sorted(photos.iterdir()))
    Path("predicted.done").mkdir()
    pq.write_table(pa.table({"path": done}), "predicted.done/before.parquet")
    run_python(name_of(SCALING), SCALING.read_text(encoding="utf-8"))
    assert sorted(pq.read_table("predicted")["path"].to_pylist()) == sorted(itertools.chain(*left))


def test_few_snippets_are_left_out() -> None:
    for guide in GUIDES:
        left_out = [b.line for b in blocks(guide.read_text(encoding="utf-8")) if b.language == "python" and not b.run]
        allowed = NOT_RUN_AT_MOST.get(name_of(guide), NOT_RUN_ELSEWHERE)
        assert len(left_out) <= allowed, f"{name_of(guide)}: at most {allowed} blocks are left out, these are: lines {left_out}"


# Links


def relative_links(markdown: str) -> Iterator[tuple[int, str]]:
    """Yield the line and target of every link and image that leads to a file."""
    text = prose(markdown)
    patterns = (
        r"\]\(\s*<?([^)<>\s]+)",  # [text](target) and ![text](target "title")
        r"^[ ]{0,3}\[[^\]]+\]:\s*<?([^<>\s]+)",  # [name]: target
        r"""<(?:a|img|source)\b[^>]*?\b(?:href|src|srcset)=["']([^"'\s]+)""",
    )
    for pattern in patterns:
        for match in re.finditer(pattern, text, re.MULTILINE):
            target = match[1]
            if not re.match(r"[a-zA-Z][\w+.-]*:|//|#", target):  # neither an address nor a place on this page
                yield text.count("\n", 0, match.start(1)) + 1, target


def broken_links(page: Path) -> list[str]:
    broken = []
    for line, target in relative_links(page.read_text(encoding="utf-8")):
        path = re.sub(r"[?#].*", "", target).replace("%20", " ")
        file = (ROOT / path.lstrip("/") if path.startswith("/") else page.parent / path).resolve()
        if not file.is_relative_to(ROOT) or not file.exists():
            broken.append(f"{name_of(page)}, line {line}: {target} leads nowhere")
    return broken


def test_links_lead_somewhere() -> None:
    broken = [link for page in PAGES for link in broken_links(page)]
    assert not broken, "\n".join(broken)


# Command lines


def flags_of(command: App) -> set[str]:
    """Return the flags that ``vitrail COMMAND --help`` shows."""
    arguments = command.assemble_argument_collection()
    return {name for argument in arguments if argument.show for name in argument.names if name.startswith("-")}


def is_setting(dotted: str) -> bool:
    """Return whether ``model.patch-size`` leads through the sections of a run's settings to one of them."""
    values: Any = True
    for key in reversed(dotted.replace("-", "_").split(".")):
        values = {key: values}
    try:
        check_names(values)
    except ConfigError:
        return False
    return True


def wrong_words(words: list[str]) -> list[str]:
    """Return the problems of ``words``: an unknown command or flags."""
    if not words:
        return []
    command, *rest = words
    if command.startswith("-"):
        return [] if command in GLOBAL_FLAGS else [f"vitrail has no flag {command}"]
    found = app
    if command == "data" and rest:
        found, command, rest = app["data"], rest[0], rest[1:]
    commands = [name for name in found if not name.startswith("-")]
    if command not in commands:
        return [f"vitrail has no command {command!r}; it has {', '.join(commands)}"]
    known = flags_of(found[command]) | GLOBAL_FLAGS
    if command == "sweep":
        known |= {f"--{name.replace('_', '-')}" for name in SHORT_NAMES}
    wrong = []
    for flag in (word.partition("=")[0] for word in rest if re.match(r"--?[A-Za-z]", word)):
        if command in ("train", "resume", "show", "sweep") and "." in flag:
            if not is_setting(flag.removeprefix("--")):
                wrong.append(f"there is no setting {flag}")
        elif flag not in known:
            wrong.append(f"vitrail {command} has no flag {flag}")
    return wrong


def test_command_lines_exist() -> None:
    wrong = [
        f"{name_of(page)}, line {line}: {problem}"
        for page in PAGES
        for block in blocks(page.read_text(encoding="utf-8"))
        if block.language in ("sh", "bash", "shell", "console")
        for line, words in command_lines(block)
        for problem in wrong_words(words)
    ]
    assert not wrong, "\n".join(wrong)


# Figures


def test_benchmarks_that_are_named_exist() -> None:
    named = {(page, name) for page in PAGES for name in re.findall(r"benchmarks/\w+\.py", page.read_text(encoding="utf-8"))}
    assert not {(name_of(page), name) for page, name in named if not (ROOT / name).is_file()}


def test_a_benchmark_says_how_it_is_called() -> None:
    for script in (ROOT / "benchmarks").glob("*.py"):
        source = ast.parse(script.read_text(encoding="utf-8"))
        if "__main__" in ast.unparse(source):
            assert f"    python {name_of(script)}" in (ast.get_docstring(source, clean=False) or ""), script
            assert "ArgumentParser(description=__doc__" in ast.unparse(source), script  # so that --help says it, too


def figures_without_a_command(markdown: str) -> list[str]:
    """Return the first cells of the rows of tables of figures (what, how, figure) whose second cell names no command."""
    missing, inside = [], False
    for line in markdown.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells == ["what", "how", "figure"]:
            inside = True
        elif not cells:
            inside = False
        elif inside and set(cells[0]) != {"-"} and not is_command(cells[1]):
            missing.append(cells[0])
    return missing


def is_command(cell: str) -> bool:
    """Return whether something in backticks is a command: of vitrail, make or pytest, a test or a benchmark."""
    texts = re.findall(r"`([^`]+)`", cell)
    return any(re.match(r"(/usr/bin/time -v )?(vitrail|make|pytest) |(tests|benchmarks)/\S+\.py\b", text) for text in texts)


def test_every_measured_figure_names_the_command_that_prints_it() -> None:
    missing = {name_of(page): figures_without_a_command(page.read_text(encoding="utf-8")) for page in PAGES}
    assert not any(missing.values()), f"no command prints these figures: {missing}"


# The checks themselves

EXAMPLE = """\
# Title

```python
a = 1
```

1. A list

   ```python
   b = a + 1
   assert b == 2
   ```

<!-- not run -->

```python
c = undefined
```

[there](README.md), `[not a](link.md)`, ![drawn](missing.png "title") and [far](https://example.org/x.md).

[named]: gone.md#part

```console
$ PAGER=cat vitrail train --data photos --lr=1e-3 \\
    --model.depth 6 --model.deep 6 > log  # --comment
vitrail: output --not-a-flag
$ vitrail evaluate runs/a --json | head -n 3 && vitrail fly
```
"""


def test_blocks_are_found() -> None:
    found = list(blocks(EXAMPLE))
    assert [(b.language, b.line, b.run) for b in found] == [
        ("python", 4, True), ("python", 10, True), ("python", 17, False), ("console", 25, True),
    ]  # fmt: skip
    run_python("example.md", EXAMPLE)
    with pytest.raises(ValueError, match="line 3"):
        list(blocks("\n\n```python\na = 1\n"))


@pytest.mark.parametrize(
    ("code", "message"),
    [("x = 1\n1 / 0", "ZeroDivisionError"), ("x = 1\nx = (", "SyntaxError"), ("def f():\n    return nothing\nf()", "NameError")],
)
def test_a_failing_snippet_names_its_line(code: str, message: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=rf"(?s)example\.md, line 5 \(block of line 4\): .*{message}"):
        run_python("example.md", f"\n\n```python\n{code}\n```\n")


def test_links_are_found() -> None:
    assert sorted(relative_links(EXAMPLE)) == [(20, "README.md"), (20, "missing.png"), (22, "gone.md#part")]


def test_figures_without_a_command_are_found() -> None:
    head = "| what | how | figure |\n|---|---|---|\n"
    rows = "| start | `vitrail --help` | 0.2 s |\n| steps | median of 3 | 4 s |\n| loss | `--lr 3` | 0.1 |\n"
    assert figures_without_a_command(head + rows + "\n| other | table | 7 |\n") == ["steps", "loss"]


def test_wrong_commands_are_found() -> None:
    lines = list(command_lines(list(blocks(EXAMPLE))[-1]))
    assert [(line, words[0]) for line, words in lines] == [(25, "train"), (28, "evaluate"), (28, "fly")]
    problems = [problem for _, words in lines for problem in wrong_words(words)]
    assert problems[0] == "there is no setting --model.deep"
    assert problems[1].startswith("vitrail has no command 'fly'")
    assert wrong_words(["evaluate", "m", "--jsn"]) == ["vitrail evaluate has no flag --jsn"]
    assert wrong_words(["demo", "--seed", "-1", "--help"]) == []

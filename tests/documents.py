"""The code blocks of a document, which can be run, and the commands of its shell blocks.

``<!-- not run -->`` before a block leaves it out.
"""

import re
import shlex
import textwrap
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOT_RUN = "<!-- not run -->"


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, the line its text begins on."""

    language: str
    text: str
    line: int
    run: bool


def blocks(markdown: str) -> Iterator[Block]:
    """The fenced blocks of a document, in order; an unclosed fence raises `ValueError`."""
    lines = iter(enumerate(markdown.splitlines(), start=1))
    before = ""  # the last line with anything on it
    for number, line in lines:
        if opening := re.match(r"\s*(?P<fence>`{3,}|~{3,})\s*(?P<language>[\w+-]*)[^`]*$", line):
            closing = re.compile(rf"\s*{opening['fence'][0]}{{{len(opening['fence'])},}}\s*$")
            text = []
            for _, inside in lines:
                if closing.match(inside):
                    break
                text.append(inside)
            else:
                raise ValueError(f"line {number}: the block is never closed")
            yield Block(opening["language"], textwrap.dedent("\n".join(text)), number + 1, before != NOT_RUN)
            before = ""
        elif line.strip():
            before = line.strip()


def run_block(name: str, block: Block, namespace: dict[str, Any]) -> None:
    """Run a block of python; a failure names the line of the document."""
    try:
        exec(compile("\n" * (block.line - 1) + block.text, name, "exec"), namespace)
    except (Exception, SystemExit) as error:
        where = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == name]
        line = where[-1] if where else getattr(error, "lineno", None)  # a SyntaxError has no frame of its own
        text = "".join(traceback.format_exception_only(error)).strip()
        pytest.fail(f"{name}, line {line or block.line} (block of line {block.line}): {text}")


def run_python(name: str, markdown: str) -> None:
    """Run a document's python blocks in one namespace."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(markdown):
        if block.language == "python" and block.run:
            run_block(name, block, namespace)


def command_lines(block: Block) -> Iterator[tuple[int, list[str]]]:
    """Line and words of every ``vitrail …`` in a shell block: prompts, comments, pipes and continued lines understood."""
    lines = block.text.split("\n")
    prompts = any(line.startswith("$ ") for line in lines)
    i = 0
    while i < len(lines):
        first, line = i, lines[i]
        while line.endswith("\\") and i + 1 < len(lines):
            i += 1
            line = line[:-1] + " " + lines[i]
        i += 1
        line = line.strip()
        if "vitrail" not in line or (prompts and not line.startswith("$ ")):
            continue  # another program, or output
        shell = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=True)
        shell.wordchars += "$@%:{}[],^!+"
        words: list[str] = []
        for word in [*shell, ";"]:
            if set(word) <= set("();<>|&"):
                if words and Path(words[0]).name == "vitrail":
                    yield block.line + first, words[1:]
                words = []
            elif words or not re.fullmatch(r"[A-Za-z_]\w*=.*", word):  # variables set for this command alone
                words.append(word)

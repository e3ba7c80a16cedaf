"""Sentences to learn from in trials, and lines of everything that may come in place of a sentence."""

import itertools
import random
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

WORDS = {"one": "eins", "red": "rot", "cat": "Katze", "and": "und", "dog": "Hund", "old": "alt"}
SETTINGS: dict[str, Any] = {
    "task": "translate", "source": "en", "target": "de", "task.vocabulary": 280, "task.beams": 2,
    "model.name": "Transformer-tiny", "model.dim": 16, "model.depth": 1, "model.decoder_depth": 1, "model.heads": 2,
    "model.mlp_dim": 24, "model.dropout": 0.1, "training.epochs": 4, "training.batch_size": 250,
    "training.checkpoint_every_steps": 3, "training.average": 2, "optimizer.name": "adamw", "optimizer.lr": 0.003,
}  # fmt: skip
"""A run of 16 steps with dropout, batches of tokens, and a mean of its last epochs."""


ODD = ("<s>", "</s>", "<pad>", "▁", "Ġ", "\ufeff", "👩\u200d👩\u200d👧", "مرحبا", "שלום")
"""Marks of tokens, a mark of the order of bytes, a letter of several, and words from right to left."""


def write_sentences(folder: Path) -> Path:
    """A table of two languages: all sentences of two different words out of six, and some of three."""
    folder.mkdir(parents=True)
    chosen = [*itertools.permutations(WORDS, 2), *itertools.islice(itertools.permutations(WORDS, 3), 0, None, 8)]
    rows = [f"{' '.join(words)}\t{' '.join(WORDS[word] for word in words)}" for words in chosen]
    (folder / "pairs.tsv").write_text("\n".join(["en\tde", *rows]) + "\n", encoding="utf-8")
    return folder / "pairs.tsv"


def random_lines(count: int, *, seed: int = 0) -> list[str]:
    """So many lines, most of which are no sentences: none has a line feed, and all can be written in UTF-8."""
    chance = random.Random(seed)
    planes = [(0, 0x7F), (0x80, 0x9F), (0x590, 0x6FF), (0x300, 0x36F), (0x2000, 0x206F), (0x1F300, 0x1FAFF), (0, 0x10FFFF)]

    def letters(length: int, plane: tuple[int, int]) -> str:
        drawn = (chr(chance.randint(*plane)) for _ in range(length))
        return "".join(letter for letter in drawn if letter != "\n" and unicodedata.category(letter) != "Cs")

    def line(number: int) -> str:
        kind = number % 12
        if kind < len(planes):
            return letters(chance.randrange(1, 60), planes[kind])
        if kind == 7:
            return chance.choice(("", " ", "\t", "\r", " \u3000\x85 "))
        if kind == 8:
            return "".join(chance.choices(ODD, k=9))
        if kind == 9:
            return letters(chance.randrange(200, 600), chance.choice(planes)).replace(" ", "")
        return " ".join(chance.choices([*WORDS, "cat.", "dog!", "“red”"], k=chance.randrange(20)))

    lines = [line(number) for number in range(count)]
    lines[0], lines[count // 2] = "x" * 5000, " ".join(chance.choices(list(WORDS), k=5000))
    return lines


CLEANED = "lines cleaned of invisible characters or odd blanks"
"""The line that the command may say of texts that it reads."""


def failure_of_translating(lines: list[str], run: Path) -> str | None:
    """What goes wrong where the command is given these lines: as many must go out, empty ones for empty ones."""
    given = "".join(f"{line}\n" for line in lines).encode()
    command = [sys.executable, "-m", "vitrail", "translate", str(run), "--beam", "1"]
    done = subprocess.run(command, input=given, capture_output=True)
    said = [line for line in done.stderr.decode().splitlines() if not line.startswith(CLEANED)]
    if done.returncode or said:
        return f"exit {done.returncode}: {done.stderr.decode()[-300:]}"
    written = done.stdout.decode().split("\n")[:-1]
    if len(written) != len(lines) or any(len(text.splitlines()) > 1 for text in written):
        return f"{len(written):,} lines for {len(lines):,}"
    filled = [number for number, line in enumerate(lines) if not line.strip() and written[number]]
    return f"line {filled[0] + 1} is empty, and its translation is not" if filled else None


def failure_of_refusing(lines: list[str], run: Path, bad: int) -> str | None:
    """What goes wrong where line ``bad``, counted from 1, is not in UTF-8: exit 3, and its number is said."""
    given = [f"{line}\n".encode() for line in lines]
    given[bad - 1] = b"\xc3\x28 " + given[bad - 1]
    command = [sys.executable, "-m", "vitrail", "translate", str(run), "--beam", "1"]
    done = subprocess.run(command, input=b"".join(given), capture_output=True)
    told = f"line {bad}\n" in done.stderr.decode()
    return None if done.returncode == 3 and told else f"exit {done.returncode}: {done.stderr.decode()[-300:]}"

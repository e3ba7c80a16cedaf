"""How each kind of file is opened and asked, and how one of its files is spoilt."""

import io
import random
import re
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from file_bytes import rewrite, spoil_archive, spoil_bytes, spoil_model_bin, spoil_safetensors
from file_values import spoil_json, spoil_onnx, spoil_tensors, spoil_xml, spoil_yaml
from PIL import Image

import vitrail
from vitrail import api
from vitrail.cli.app import main
from vitrail.config.configuration import resolve
from vitrail.config.yaml_files import read_yaml
from vitrail.deploy.bench.engines import open_graph
from vitrail.runtime.observer import Observer
from vitrail.training.finetune.adapters import load_adapter, merge_lora
from vitrail.training.runs.checkpoint import SUMS, checksums
from vitrail.training.runs.run import resume_run

Asked = Callable[[Path, random.Random], Any]
PICTURE = Image.fromarray(np.arange(12 * 12 * 3, dtype=np.uint8).reshape(12, 12, 3))
TEXT = "one red"
SELDOM = r"README\.md$|\.(log|html|png|csv|txt)$|env\.json|^last/"
"""Files, by a part of their paths, that nobody reads or that fall back on nothing."""
EXIT_CODES = (0, 2, 3, 4)


def answer(model: Any) -> None:
    """A picture or a prepared image, to labels or to a vector."""
    if model.labels:
        vitrail.predict(model, PICTURE)
        return
    c = model.config
    with torch.inference_mode():
        model(torch.zeros(1, c.channels, *c.image_size))


def only(folder: Path) -> Path:
    """The file of weights in a folder of a file alone, else the folder."""
    told = any((folder / name).is_file() for name in ("config.json", "open_clip_config.json"))
    return folder if told else next((f for f in folder.iterdir() if f.stem == "model"), folder)


def ask_folder(folder: Path, chance: random.Random) -> None:
    answer(vitrail.open_model(folder))


def ask_weights(folder: Path, chance: random.Random) -> None:
    answer(vitrail.from_pretrained(only(folder), trust_pickle=True))


def ask_graph(folder: Path, chance: random.Random) -> None:
    graph = next((file for file in folder.iterdir() if file.suffix in (".onnx", ".xml")), folder / "model.onnx")
    engine = "openvino" if graph.suffix == ".xml" or chance.random() < 0.2 else "onnxruntime"
    predictor = open_graph(graph, engine) if graph.is_file() else folder
    vitrail.predict(predictor, PICTURE)


def ask_translator(folder: Path, chance: random.Random) -> None:
    vitrail.translate(folder, TEXT, beams=chance.choice((1, 2)))


def ask_clip(folder: Path, chance: random.Random) -> None:
    vitrail.predict(vitrail.zero_shot(folder, ["red thing", "a blue thing"]), PICTURE)


def ask_adapter(folder: Path, chance: random.Random) -> None:
    trained = vitrail.open_model(folder / "model")
    load_adapter(trained.model, folder / "adapter")
    merge_lora(trained.model)
    answer(trained)


def ask_finished(folder: Path, chance: random.Random) -> None:
    """A finished run is evaluated, opened by resuming it, or compared."""
    kind = chance.randrange(3)
    if kind == 0:
        api.evaluate(folder)
    elif kind == 1:
        repr(api.resume(folder))
    else:
        api.compare([folder])


def ask_stopped(folder: Path, chance: random.Random) -> None:
    resume_run(folder, lambda finished: None, {}, observer=Observer(), transform=None)


def ask_configuration(folder: Path, chance: random.Random) -> None:
    with suppress(StopIteration):
        resolve({}, read_yaml(next(folder.iterdir())), {"data": {"source": "digits"}})


@dataclass(frozen=True)
class Kind:
    """Files that are opened in the same way."""

    about: str
    share: int
    """Of all cases, in proportion to the other kinds."""
    ask: Asked
    command: Sequence[str]
    """The words of the command that opens them, too; ``MODEL`` stands for the folder."""
    files: str = ""
    """A regular expression of the files that are spoilt, by their paths below the folder; all of them by default."""


KINDS = {
    "own": Kind("model folders of our own", 14, ask_folder, ("predict", "MODEL", "PICTURE")),
    "layouts": Kind("timm's, transformers' and other layouts in safetensors", 20, ask_weights, ("summary", "MODEL", "--json")),
    "pickles": Kind("the same in `.pth`", 14, ask_weights, ("convert", "MODEL", "OUT", "--trust-pickle")),
    "npz": Kind("the same in `.npz`", 5, ask_weights, ("summary", "MODEL")),
    "adapters": Kind("LoRA adapters", 3, ask_adapter, (), "adapter/.*"),
    "clip": Kind("a whole CLIP with its `tokenizer.json`", 4, ask_clip, ("predict", "MODEL", "PICTURE", "--labels", "a, red")),
    "translators": Kind("translators of our own", 8, ask_translator, ("summary", "MODEL")),
    "marian": Kind("MarianMT, of SentencePiece and of byte pairs", 5, ask_translator, ("summary", "MODEL")),
    "ctranslate2": Kind("translators for CTranslate2", 4, ask_translator, ()),
    "onnx": Kind("ONNX, weights within and beside", 7, ask_graph, ("predict", "MODEL", "PICTURE", "--engine", "onnxruntime")),
    "openvino": Kind("OpenVINO", 4, ask_graph, ("predict", "MODEL", "PICTURE")),
    "finished": Kind("finished runs: evaluate, resume, compare", 5, ask_finished, ("evaluate", "MODEL", "--json"), r"(?!data).*"),
    "stopped": Kind("stopped runs: resume", 3, ask_stopped, ("resume", "MODEL"), r"(?!data).*"),
    "configurations": Kind(
        "`--config`", 4, ask_configuration, ("train", "--data", "MISSING", "--out", "OUT", "--config", "FILE")
    ),
}


def run_command(words: Sequence[str], folder: Path) -> str | None:
    """A command in this process; gives what is wrong with how it ended."""
    picture, out, said = folder.parent / "picture.png", folder.parent / "out", io.StringIO()
    PICTURE.save(picture)
    places = {"MODEL": only(folder), "PICTURE": picture, "OUT": out, "FILE": next(iter(sorted(folder.iterdir())), folder)}
    code: Any = 0
    with redirect_stdout(said), redirect_stderr(said):
        try:
            main([str(places.get(word, word)) for word in words])
        except SystemExit as stop:
            code = stop.code
    text = said.getvalue()
    if code not in EXIT_CODES or "Traceback" in text:
        return f"exit code {code}: {text[-300:]}"
    return None


def spoil(folder: Path, others: Sequence[Path], files: str, chance: random.Random) -> str:
    """Spoil one file of a folder, seldom several; gives their names."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    paths = [path for path in paths if re.fullmatch(files or ".*", str(path.relative_to(folder)))]
    weights = [1 if re.search(SELDOM, str(path.relative_to(folder))) else 20 for path in paths]
    spoilt = [chance.choices(paths, weights)[0] for _ in range(chance.choice((1, 1, 1, 1, 2)))]
    for path in spoilt:
        if path.is_file():
            _spoil_file(path, [other / path.relative_to(folder) for other in others], chance)
        if path.parent.name.startswith("step-") and path.name != SUMS and chance.random() < 0.8:
            rewrite(path.parent / SUMS, checksums(path.parent).encode())  # as a stranger would, who wants it to be read
    return ", ".join(str(path.relative_to(folder)) for path in spoilt)


MEANING: dict[str, Sequence[Callable[[Path, random.Random], None]]] = {
    ".json": (spoil_json,), ".jsonl": (spoil_json,), ".yaml": (spoil_yaml,), ".xml": (spoil_xml,), ".onnx": (spoil_onnx,),
    ".safetensors": (spoil_tensors,), ".npz": (spoil_tensors,), ".pth": (spoil_tensors,),
}  # fmt: skip
STRUCTURE: dict[str, Callable[[bytes, random.Random], bytes]] = {
    ".safetensors": spoil_safetensors, ".npz": spoil_archive, ".pth": spoil_archive, "model.bin": spoil_model_bin,
}  # fmt: skip


def _spoil_file(path: Path, alike: Sequence[Path], chance: random.Random) -> None:
    """By its meaning, by its structure, by its bytes; now and then it is removed, or another folder's stands in its place."""
    kind, content = chance.random(), path.read_bytes()
    if kind < 0.01:
        path.unlink()
        return
    found = [other for other in alike if other.is_file()]
    other = chance.choice(found).read_bytes() if found else content
    if kind < 0.04:
        rewrite(path, other)
        return
    structure = STRUCTURE.get(path.name if path.name == "model.bin" else path.suffix)
    with suppress(Exception):  # what was spoilt before has no meaning or structure any more: then its bytes are
        if kind < 0.5 and path.suffix in MEANING:
            chance.choice(MEANING[path.suffix])(path, chance)
            return
        if kind < 0.8 and structure is not None:
            rewrite(path, structure(content, chance))
            return
    rewrite(path, spoil_bytes(content, chance, other))

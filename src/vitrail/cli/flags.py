"""Parameters of several commands, each with one help text, and flags that stand for settings of a run."""

import ast
import inspect
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from vitrail.cli.console import Whole
from vitrail.config.short_names import SHORT_NAMES


def helped(kind: Any, text: str, **options: Any) -> Any:
    """Return the type of a parameter with its help text."""
    return Annotated[kind, Parameter(help=text, **options)]


Words = Annotated[str, Parameter(allow_leading_hyphen=True, show=False)]
"""Settings by their dotted names, for which there are no flags."""
_MODEL = "A run folder, a model folder, {}a file of weights, a hub id or a name of vitrail models --pretrained."
Model = Annotated[str, Parameter(help=_MODEL.format(""))]
ModelOrExported = Annotated[str, Parameter(help=_MODEL.format("an exported model, "))]
Images = Annotated[list[str], Parameter(help="Image files, folders and globs.")]
BatchSize = Annotated[Whole, Parameter(help="Images per batch.")]
Precision = Annotated[
    Literal["fp32", "bf16"] | None,
    Parameter(
        help="fp32, or bf16: about twice as fast on processors that have it, exact to two or three digits. Default: fp32; an "
        "exported model has its own."
    ),
]
Engine = Annotated[
    Literal["auto", "torch", "onnxruntime", "openvino"],
    Parameter(help="What runs an exported model; auto takes the quicker one."),
]
Split = Annotated[
    Literal["train", "val", "test", "all"] | None,
    Parameter(help="Default: test, else val; all images of a folder without splits."),
]
Smoothing = Annotated[
    float | None,
    Parameter(
        help="Deviation by which heatmaps of joints are smoothed before a joint is read from them, in places; 0 for none. "
        "Default: as the model keeps it."
    ),
]
Start = Annotated[
    str | None,
    Parameter(
        name="--from",
        help="A trained model to start from: a run folder, a model folder, a file of weights, a hub id such as org/name, or a "
        "name of vitrail models --pretrained.",
    ),
]
Recipe = Annotated[
    str | None,
    Parameter(
        help="Settings to begin with; see vitrail recipes. Default: the task's own with --task mae, pose, caption, translate or "
        "diffusion, finetune with --from, the recipes of the digits or of CIFAR-10 for them, else scratch."
    ),
]
Config = Annotated[
    Path | None,
    Parameter(help="A YAML file over the recipe, or, if it names a model, in its place; flags stand over both."),
]
Source = Annotated[
    str | None, Parameter(help="Of sentences, the language that is read: a column of the table, or the suffix of a file.")
]
Target = Annotated[str | None, Parameter(help="Of sentences, the language that is written.")]

# flags of settings

_SECTIONS = {
    "data": ("config", "DataSettings"),
    "optimizer": ("config", "OptimizerSettings"),
    "training": ("config", "TrainingSettings"),
    "model": ("config", "ModelSettings"),
    "distillation": ("tasks", "DistillationSettings"),
    "task.text": ("tasks/captioning", "CaptionSettings"),
    "task": ("tasks/translation", "TranslationSettings"),
}
"""File and class of the settings that flags stand for."""
_KINDS = {
    "epochs": Whole, "patience": Whole, "seed": Whole, "checkpoint_every_steps": Whole, "lr": float,
    "checkpoint_every_seconds": float, "fast_dev_run": bool,
}  # fmt: skip
"""Types of flags; all others are words."""


def with_flags(own: dict[str, str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that puts a flag for each of `SHORT_NAMES` in the place of a command's ``**flags``.

    Their help is the docstring of the setting.

    Args:
        own: help of flags whose setting says too little.
    """

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        signature: Any = inspect.signature(command)
        parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        for name, setting in SHORT_NAMES.items():
            names = ["--batch-size", "--batch"] if name == "batch_size" else None
            kind = helped(_KINDS.get(name, str) | None, own.get(name) or described(setting), name=names)
            parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind))
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return command

    return decorated


def described(setting: str) -> str:
    """Return the docstring of a setting, by its dotted name, with its choices."""
    section, _, name = setting.rpartition(".")
    place, kind = _SECTIONS.get(setting) or _SECTIONS[section]
    return _docstrings(place)[f"{kind}.{name}"]


@cache
def _docstrings(place: str) -> dict[str, str]:
    """Return the docstrings of all settings in a file, which is parsed: importing it would take ten times as long."""
    tree = ast.parse((Path(__file__).parents[1] / place / "settings.py").read_text(encoding="utf-8"))
    named = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
    found = {}
    for section in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for field, text in pairwise(section.body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    choices = _choices(named.get(ast.unparse(field.annotation), field.annotation))
                    found[f"{section.name}.{name}"] = " ".join(words.replace("`", "").split()) + choices
    return found


def _choices(annotation: ast.expr) -> str:
    """Return the choices of an annotation like ``Literal["stop", "skip"]`` in words."""
    match annotation:
        case ast.Subscript(value=ast.Name(id="Literal"), slice=ast.Tuple(elts=choices)):
            return f" Choices: {', '.join(map(ast.literal_eval, choices))}."
    return ""

"""Parameters that several commands share, with their help texts, and flags for settings of a run."""

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
"""Words of the command line with settings by their dotted names."""
_MODEL = "A run folder, a model folder, {}a file of weights, a hub id or a name of vitrail models --pretrained."
Model = Annotated[str, Parameter(help=_MODEL.format(""))]
ModelOrExported = Annotated[str, Parameter(help=_MODEL.format("an exported model, "))]
Images = Annotated[list[str], Parameter(help="Image files, folders and globs.")]
BatchSize = Annotated[Whole, Parameter(help="Images per batch.")]
Precision = Annotated[
    Literal["fp32", "bf16"] | None,
    Parameter(
        help="fp32, or bf16: about twice as fast on processors that support it, exact to two or three digits. Default: fp32; an "
        "exported model has its own."
    ),
]
Engine = Annotated[
    Literal["auto", "torch", "onnxruntime", "openvino"],
    Parameter(help="Engine that runs an exported model; auto takes the faster one."),
]
Split = Annotated[
    Literal["train", "val", "test", "all"] | None,
    Parameter(help="Default: test, else val; all images of a folder without splits."),
]
Smoothing = Annotated[
    float | None,
    Parameter(
        help="For pose models: standard deviation of the Gaussian that smooths heatmaps before joints are located, in heatmap "
        "cells; 0 for none. Default: the model's own."
    ),
]
Window = Annotated[
    str | None,
    Parameter(
        help="For segmenters: height and width of windows in which images are segmented, 512 or 512x384, rounded up to what the "
        "model takes. Images of over four megapixels need them. Default: the run's setting when it is evaluated, else the whole "
        "image."
    ),
]
Overlap = Annotated[
    float | None,
    Parameter(
        help="For segmenters: fraction of a window's side that the next window shows, too; there logits are averaged. Default: "
        "0.25."
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
        help="Recipe with the basic settings; see vitrail recipes. Default: the task's recipe with --task mae, pose, segment, "
        "caption, translate or diffusion, else finetune with --from, else digits or cifar10 for these data sets, else scratch."
    ),
]
Config = Annotated[
    Path | None,
    Parameter(
        help="A YAML file whose settings override the recipe's; a file that names a model replaces the recipe. Flags override "
        "both."
    ),
]
Source = Annotated[
    str | None, Parameter(help="For translation: the source language, a column of the table or the suffix of a file.")
]
Target = Annotated[str | None, Parameter(help="For translation: the target language, a column or suffix.")]

# flags of settings

_SECTIONS = {
    "data": ("config", "DataSettings"),
    "optimizer": ("config", "OptimizerSettings"),
    "training": ("config", "TrainingSettings"),
    "model": ("config", "ModelSettings"),
    "distillation": ("tasks", "DistillationSettings"),
    "task.text": ("tasks/captioning", "CaptionSettings"),
    "task.probe": ("tasks", "FeatureSettings"),
    "task": ("tasks/translation", "TranslationSettings"),
}
"""Folder and class of the settings that flags set."""
_KINDS = {
    "epochs": Whole, "patience": Whole, "seed": Whole, "checkpoint_every_steps": Whole, "lr": float,
    "checkpoint_every_seconds": float, "fast_dev_run": bool,
}  # fmt: skip
"""Types of flags; all others are text."""


def with_flags(own: dict[str, str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that replaces a command's ``**flags`` by a flag for each of `SHORT_NAMES`.

    The help of a flag is the docstring of its setting.

    Args:
        own: help texts of flags in place of the docstring.
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
    """Return the docstring of a setting with a list of its choices; ``setting`` is the dotted name."""
    section, _, name = setting.rpartition(".")
    place, kind = _SECTIONS.get(setting) or _SECTIONS[section]
    return _docstrings(place)[f"{kind}.{name}"]


@cache
def _docstrings(place: str) -> dict[str, str]:
    """Return the docstrings of all settings in a file; it is parsed, since importing it would take ten times as long."""
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
    """Return the choices of an annotation such as ``Literal["stop", "skip"]`` as a sentence; "" for others."""
    match annotation:
        case ast.Subscript(value=ast.Name(id="Literal"), slice=ast.Tuple(elts=choices)):
            return f" Choices: {', '.join(map(ast.literal_eval, choices))}."
    return ""

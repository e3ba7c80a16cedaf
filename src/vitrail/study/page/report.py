"""The report of a run: one self-contained page with figures and tables."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from vitrail.files import write_text
from vitrail.models.configs.base import ModelConfig
from vitrail.models.cost import Cost
from vitrail.models.registry import listed_name
from vitrail.runtime.output import name_of
from vitrail.runtime.terminal import escaped
from vitrail.study.page import figures, page
from vitrail.study.page.report_part import Part, Reported
from vitrail.study.page.tables import cost_table, duration
from vitrail.task_registry import task_row
from vitrail.tasks.answer_table import write_table

CAUTIONS = {
    "val": "The saved epoch was chosen on these images, so that the result is slightly too good; there are no test images.",
    "all": "The model was trained on these images, so that this says nothing about new images.",
}
"""Warnings about the split that the report shows."""
CURVES = "Training is measured on {} during training, validation with the weights that are saved."

RATE = "_per_second"

MEAN = "The saved model is the mean of the weights at the ends of the last {} epochs{}."
PROBE_ALONE = "A head was fitted to features of the frozen model. Nothing else was trained, so there are no curves."
PROBE = "Epoch 0 is a head fitted to features of the frozen model."
PROBE_KEPT = f"{PROBE[:-1]}, and it is the saved model: no later epoch was better."


def write_report(folder: Path, run: Reported, *, environment: dict[str, Any], kept: Mapping[str, Any], cost: Cost) -> None:
    """Write a finished run's ``plots/``, ``report.html`` and the task's texts; ``kept`` are the metrics of the saved model."""
    settings, rows, plots = run.settings, run.rows, run.plots
    part: Part = task_row(run.task.name).module("report").report_part(run)
    for name, text in part.texts.items():
        write_text(folder / name, escaped(text))
    for name, table in part.tables.items():
        write_table(folder / name, table)
    seconds, epochs = sum(row["seconds"] for row in rows), rows[-1]["epoch"]
    chosen = settings["training"]["keep"] == "best"
    caution = CAUTIONS.get(run.split, "") if chosen or run.split != "val" else ""
    cards = [
        *part.cards,
        (duration(seconds), f"of training, {epochs} epoch{'s' if epochs > 1 else ''}" if epochs else "of reading features"),
        (
            f"{cost.parameters / 1e6:.2f} M",
            f"parameters; {cost.macs / 1e6:,.1f} M multiply-adds for one {_what(rows, run.data.things)}",
        ),
    ]
    if epochs:
        mean = MEAN.format(kept["averaged"], ": it was better than each of them" * chosen) if "averaged" in kept else ""
        learned = "augmented images" if _unit(rows) == "images" else run.data.things
        caption = " ".join(
            filter(
                None,
                ["" if rows[0]["epoch"] else PROBE if kept["epoch"] else PROBE_KEPT, CURVES.format(learned), part.caption, mean],
            )
        )
        figures.save(figures.curves(rows, kept["epoch"]), plots / "curves.png")
        training = page.picture(plots / "curves.png", "Curves of training", caption)
    else:
        training = page.paragraph(PROBE_ALONE)
    sections = [
        *map(page.note, _about(settings, environment)),
        page.cards(cards),
        *(page.paragraph(f"Warning: {doubt}.") for doubt in run.doubts),
        *([page.paragraph(caution)] if caution else []),
        page.section("Training", training),
        *part.sections,
        page.section("Cost", cost_table(cost), page.note(_speed(rows, run.data.things))),
        page.section("Data", part.data),
        page.section(
            "Settings",
            page.folded("config.yaml", page.verbatim(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))),
            page.folded("Machine and versions", page.verbatim(yaml.safe_dump(environment, sort_keys=False, allow_unicode=True))),
        ),
    ]
    write_text(folder / "report.html", page.page(title_of(settings, run.task.model.config), sections))


def title_of(settings: Mapping[str, Any], config: ModelConfig) -> str:
    """Return the title: model, data and start. Of a path only the last name is shown, since the rest may be private."""
    name, tune = settings["model"]["name"], settings["training"]["tune"]
    model = listed_name(config) if name == "custom" else name
    data = name_of(settings["data"]["source"])
    row = task_row(settings["task"]["name"])
    unlabelled = row.labels == "none" or (row.labels == "optional" and not getattr(config, "num_classes", 0))
    if row.items == "images" and unlabelled:
        return f"{model} on {data}, learned without labels"
    if not settings["start"]:
        return f"{model} on {data}, trained from scratch"
    if tune == "head":
        return f"{model} on {data}, a head on frozen features"
    return f"{model} fine-tuned on {data}" + (" with low-rank adapters" if tune == "lora" else "")


def _about(settings: Mapping[str, Any], environment: dict[str, Any]) -> Iterator[str]:
    """Yield notes on the machine, and on the results that the recipe expects."""
    yield ", ".join(
        [environment["processor"], f"{environment['cores']} core{'s' if environment['cores'] != 1 else ''}", *environment["gpus"]]
    )
    if settings["about"] and settings["training"]["tune"] == "all":  # it describes a training of all weights
        yield settings["about"].strip()
    if expected := [words for words in settings["expected"].values() if words]:
        yield f"Expected by the recipe: {'; '.join(expected)}."


def _speed(rows: Sequence[Mapping[str, Any]], things: str) -> str:
    seconds, epochs = sum(row["seconds"] for row in rows), max(1, rows[-1]["epoch"])
    unit = _unit(rows)
    units = sum(row["seconds"] * row[unit + RATE] for row in rows)
    rate = f" ({units / seconds:,.0f} {unit} per second)" if seconds else ""
    total = f", {duration(seconds)} for all {epochs}" if epochs > 1 else ""
    seconds_each = duration(seconds / epochs)
    return (
        f"Multiply-adds count the forward pass of one {_what(rows, things)}. Training took {seconds_each} per epoch{rate}{total}."
    )


def _unit(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the unit of the training rate: images or tokens."""
    return next(name.removesuffix(RATE) for name in rows[-1] if name.endswith(RATE))


def _what(rows: Sequence[Mapping[str, Any]], things: str) -> str:
    """Return the name of the input whose multiply-adds are counted."""
    if _unit(rows) == "images":
        return "image"
    return "text of 16 tokens into another" if things == "sentences" else "image and 16 tokens about it"

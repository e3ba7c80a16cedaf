"""Model folders of a run's best and last model, complete for later use."""

from pathlib import Path

from vitrail.config.settings import RunSettings
from vitrail.config.yaml_files import differences
from vitrail.data.items import Data
from vitrail.models.empty import empty_model
from vitrail.runtime.observer import Row
from vitrail.runtime.output import name_of
from vitrail.tasks.metrics import main_metric
from vitrail.tasks.task import Task
from vitrail.training.finetune.adapters import merge_lora, save_adapter
from vitrail.training.finetune.freezing import choose_parts
from vitrail.training.run_data import run_data_of
from vitrail.training.runs.checkpoint import Tensors
from vitrail.weights.formats.checksums import write_sums
from vitrail.weights.formats.tensor_files import write_tensors
from vitrail.weights.model_folder.card import model_card

BESIDE = "beside.safetensors"
"""File in the model folder for modules of the task outside the model, trained or carried."""


def fill(folder: Path, settings: RunSettings, task: Task, weights: Tensors, card: str) -> None:
    """Write a model folder from a task's weights: adapters are merged into the model, and also saved in PEFT's format."""
    model = empty_model(settings.model.config)
    choose_parts(model, settings)
    own = {name.removeprefix("model."): tensor for name, tensor in weights.items() if name.startswith("model.")}
    model.load_state_dict(own, assign=True)
    low_rank = settings.training.tune == "lora"
    task.trained(merge_lora(model) if low_rank else model).fill(folder, card)
    if low_rank:
        save_adapter(folder / "adapter", model, settings.lora, whole=list(model.readout()), base=settings.start)
    if beside := {name: tensor for name, tensor in weights.items() if not name.startswith("model.")}:
        write_tensors(folder / BESIDE, beside)
    write_sums(folder)


def card_of(settings: RunSettings, data: Data, row: Row, epochs: int) -> str:
    """Return the model card. Of a path it shows only the last name, since a card may be published."""
    metric = main_metric(row, "val_")
    scored_on = data.splits["val"] or data.splits["train"]
    purpose = "choose the epoch by" if settings.training.keep == "best" else "score it on"
    source, base, teacher = (name_of(path or "") for path in (data.source, settings.start, settings.distillation.teacher))
    shown = settings.changed(distillation=settings.distillation.changed(teacher=teacher or None))
    return model_card(
        name=f"{base}, fine-tuned on {source}" if base else f"{settings.model.name} on {source}",
        data=f"{source}\n\n{len(data.splits['train']):,} {data.things} to learn from, {len(scored_on):,} to {purpose}.",
        recipe=differences(shown),
        metrics={
            f"validation {metric.title}": row[f"val_{metric.name}"],
            "validation loss": row["val_loss"],
            "epoch": f"{row['epoch']} of {epochs}" + (f", the mean of the last {row['averaged']}" if "averaged" in row else ""),
        },
        base_model=base,
        **run_data_of(settings).card(settings, data),
    )

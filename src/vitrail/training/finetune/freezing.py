"""Selection of the parts of a model that a run trains."""

from torch import nn

from vitrail.config.settings import RunSettings
from vitrail.errors import ConfigError
from vitrail.models.base import Model
from vitrail.parts.normalization import batch_norms
from vitrail.training.finetune.adapters import add_adapters
from vitrail.training.loop.optimizer import layers_above


def choose_parts(model: Model, settings: RunSettings) -> None:
    """Freeze all parts that the run does not train, and add adapters for ``tune: lora``."""
    if settings.training.tune == "all":
        if settings.start is not None:
            _leave_first_layers(model, settings.training.frozen_share)
        return
    model.requires_grad_(False)
    for part in model.readout().values():
        part.requires_grad_()
    if settings.training.tune == "lora":
        add_adapters(model, settings.lora)


def require_nothing_fresh(model: Model, start: nn.Module, settings: RunSettings) -> None:
    """Raise `ConfigError` for frozen parts that the model to start from lacks, which would keep their random values."""
    known, frozen = start.state_dict().keys(), model.fresh - model.readout().keys()
    names = [name for name, _ in model.named_parameters() if name.split(".")[0] in frozen and name not in known]
    if names:
        cause = f"--tune {settings.training.tune}" if settings.training.tune != "all" else "training.frozen_share"
        what = f"{names[0]} is new and random, and {cause} would freeze it"
        raise ConfigError(what, where="model", hint="train all of the model, or build it without this part")


def _leave_first_layers(model: Model, share: float) -> None:
    """Freeze a fraction of the layers, rounded to whole layers, from the input on, and all parameters before them."""
    layers = len(model.layers())
    frozen = round(share * layers)
    if not frozen:
        return
    for parameter, above in layers_above(model).items():
        if above > layers - frozen:
            parameter.requires_grad_(False)


def start_training(model: Model, settings: RunSettings) -> None:
    """Set training mode for the parts that are trained.

    A linear probe needs the same features for an image each time, so everything but the head stays in evaluation mode: no
    dropout, no patch dropout. BatchNorm with frozen parameters also stays in evaluation mode: otherwise its running
    statistics would change, and adapters would no longer fit their base model.
    """
    model.train(settings.training.tune != "head")
    for part in model.readout().values():
        part.train()
    for norm in batch_norms(model):
        if not any(p.requires_grad for p in norm.parameters()):
            norm.eval()

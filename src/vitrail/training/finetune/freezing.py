"""Which part of a model a run trains."""

from torch import nn

from vitrail.config.settings import RunSettings
from vitrail.errors import ConfigError
from vitrail.models.base import Model
from vitrail.training.finetune.adapters import add_adapters
from vitrail.training.loop.optimizer import layers_above


def choose_parts(model: Model, settings: RunSettings) -> None:
    """Take the gradient from all parts that the run leaves as they are, and add adapters where it trains those."""
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
    """Raise `ConfigError` for parts that the model to start from lacks and that would stay as they are initialized."""
    known = start.state_dict().keys()
    names = [name for name, _ in model.named_parameters() if name.split(".")[0] in model.fresh and name not in known]
    if names:
        cause = f"--tune {settings.training.tune}" if settings.training.tune != "all" else "training.frozen_share"
        what = f"{names[0]} is new, and {cause} would leave it as it is drawn"
        raise ConfigError(what, where="model", hint="train all of the model, or leave it out")


def _leave_first_layers(model: Model, share: float) -> None:
    """Take the gradient from the nearest whole number of layers to a fraction of them, and from the parameters before them."""
    layers = len(model.layers())
    frozen = round(share * layers)
    if not frozen:
        return
    for parameter, above in layers_above(model).items():
        if above > layers - frozen:
            parameter.requires_grad_(False)


def start_training(model: Model, settings: RunSettings) -> None:
    """Set training mode for the parts that are trained.

    A linear probe reads the features of an image, so all but the head stays in evaluation mode: no dropout, no patch left out.
    BatchNorm with frozen parameters stays in it, too: else its running statistics would move, and adapters would not fit the
    model they were trained on.
    """
    model.train(settings.training.tune != "head")
    for part in model.readout().values():
        part.train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d) and not any(p.requires_grad for p in module.parameters()):
            module.eval()

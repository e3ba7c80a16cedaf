"""A trained image model with the names of its classes and its preparation of images."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn

from vitrail.data.images.preparation import Preparation
from vitrail.errors import ConfigError
from vitrail.files import write_json
from vitrail.models.base import ImageModel, Model
from vitrail.models.configs.base import ImageConfig
from vitrail.settings import Settings, brief
from vitrail.weights.formats.checksums import SUMS, write_sums
from vitrail.weights.formats.safe_files import CONFIG, PREPARED, PREPROCESSOR, read_json
from vitrail.weights.layout import Layout
from vitrail.weights.layouts import LAYOUTS
from vitrail.weights.model_folder.classifier_output import Labelled
from vitrail.weights.model_folder.description import describe
from vitrail.weights.model_folder.labels import THRESHOLDS, label_description, problem_description, require_text
from vitrail.weights.model_folder.preparation import makes_latents
from vitrail.weights.model_folder.trained import FORMAT, Trained

MOST_LABELS = 20
"""Most labels that the table of a model in a notebook shows."""


class TrainedModel(Labelled, Trained):
    """A model with its labels and preparation; maps prepared images (B, C, H, W) to logits (B, classes).

    Args:
        model: a model of this library, or any module from prepared images to logits, which only `predict` and `evaluate`
            accept.
        labels: a name for every logit, by index; empty for a model that returns feature vectors.
        preparation: converts an image to the model's input.
        multi_label: whether an image may have several labels, or none.
        card: the model card, as Markdown.
        thresholds: the least probability at which each label is accepted. With ``multi_label``, empty means 0.5 for each.
            Otherwise they are used to reject images.

    Raises:
        ConfigError: the model, the labels or the preparation have a wrong type.
    """

    layouts = LAYOUTS

    def __init__(
        self,
        model: ImageModel | nn.Module,
        labels: Sequence[str],
        preparation: Preparation,
        multi_label: bool = False,
        card: str = "",
        thresholds: Sequence[float] = (),
    ):
        _require_parts(model, labels, preparation)
        super().__init__(model, card)
        self.labels, self.preparation = [str(label) for label in labels], preparation
        self.multi_label, self.thresholds = multi_label, thresholds

    @property
    def config(self) -> ImageConfig:
        """Return the model's configuration.

        Raises:
            ConfigError: the model is not one of this library.
        """
        if not isinstance(self.model, Model):
            require_of_images(self.model)
        return cast(ImageConfig, self.model.config)

    @property
    def more(self) -> dict[str, Any]:
        """Return further entries of ``config.json``."""
        return {}

    @property
    def facts(self) -> dict[str, Any]:
        return {"labels": self.labels, "multi_label": self.multi_label}

    @property
    def rows(self) -> list[tuple[str, str]]:
        return [("images", str(self.preparation)), ("labels", self.first_labels or "none: it returns feature vectors")]

    @property
    def first_labels(self) -> str:
        """The labels with commas between them; of many labels only the first."""
        return ", ".join(self.labels[:MOST_LABELS]) + (" …" if len(self.labels) > MOST_LABELS else "")

    @property
    def uses(self) -> Sequence[str]:
        if self.labels:
            return "predict {} IMAGES", "study {}", "export {}", "serve {}"
        return "train --from {} --data FOLDER", "study {}", "summary {}"

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (B, classes) of prepared images (B, C, H, W)."""
        logits: Tensor = self.model(images)
        return logits

    def metadata(self) -> dict[str, Any]:
        return {**label_description(self), **self.more, PREPARED: self.preparation.to_hugging_face()}

    def description(self, layout: Layout | None) -> dict[str, Any]:
        """Return ``config.json``: the architecture as the layout writes it, Vitrail's training-only fields, and the labels."""
        config: Any = self.config
        if layout is None:
            return super().description(None) | label_description(self) | self.more
        if layout.describe and layout.describe_data:
            named = layout.describe_data(layout, config, self.labels, self.preparation)
            problem = problem_description(self) if self.multi_label or self.thresholds else {}
            return layout.describe(config) | named | problem | self.more
        values = config.model_dump(mode="json")
        training = {name: values[name] for name in sorted(config.training_only) if name not in layout.described}
        described = layout.describe(config) if layout.describe else describe(config, layout)
        return {**described, FORMAT: training} | label_description(self) | self.more

    def files(self, layout: Layout | None) -> Mapping[str, Mapping[str, Any] | bytes]:
        return {PREPROCESSOR: self.preparation.to_hugging_face()}

    def in_transformers(self, layout: Layout) -> bool:
        return bool(layout.classes[0 if self.config.num_classes else 1])

    def in_layout(self, name: str | None) -> tuple[Layout | None, dict[str, Tensor]]:
        require_text(self.labels)
        return super().in_layout(name)

    def require_complete(self) -> None:
        super().require_complete()
        _require_fitting(self)


def _require_parts(model: object, labels: object, preparation: object) -> None:
    """Raise `ConfigError` for arguments of `TrainedModel` that have a wrong type."""
    made_of = (("model", model, nn.Module), ("preparation", preparation, Settings))
    for where, value, kind in made_of:
        if not isinstance(value, kind):
            hint = "vitrail.TrainedModel(model, labels, preparation) takes a module, a list of names and a vitrail.Preparation"
            raise ConfigError(f"{where} is a {type(value).__name__}", where=where, hint=hint)
    if isinstance(labels, str) or not isinstance(labels, Collection) or not all(isinstance(label, str) for label in labels):
        raise ConfigError(f"labels is not a list of names: {brief(labels)}", where="labels", hint='give ["ant", "bee"]')


def require_of_images(model: nn.Module) -> None:
    """Raise `ConfigError` for a module that is not an image model of this library."""
    if isinstance(model, Model) and isinstance(model.config, ImageConfig) and not isinstance(model, ImageModel):
        hint = "give a model that was trained for another task"
        raise ConfigError(f"a {type(model).__name__} returns neither labels nor feature vectors", where="model", hint=hint)
    if not isinstance(model, ImageModel):
        hint = "only predict and evaluate accept it; otherwise give a model of vitrail.create_model, before torch.compile"
        raise ConfigError(f"{type(model).__name__} is not a model of this library", where="model", hint=hint)


def _require_fitting(trained: TrainedModel) -> None:
    """Raise `ConfigError` for labels or a preparation that do not fit the model's configuration."""
    config, preparation = trained.config, trained.preparation
    if trained.labels and len(trained.labels) != config.num_classes:
        what = f"{len(trained.labels)} labels, but the model has {config.num_classes} classes"
        raise ConfigError(what, where="labels", hint="give a name for each class")
    if isinstance(preparation, Preparation) and not makes_latents(config):
        made, taken = ((of.channels, *of.image_size) for of in (preparation, config))
        if made != taken:
            what = f"the preparation returns images of shape {made}, but the model takes {taken}"
            raise ConfigError(what, where="preparation", hint="give vitrail.Preparation.standard(model.config.image_size)")


def keep_thresholds(folder: Path, thresholds: Sequence[float]) -> None:
    """Write into a model folder the least probability at which each label is accepted."""
    values = {**read_json(folder / CONFIG), THRESHOLDS: list(thresholds)}
    (folder / SUMS).unlink(missing_ok=True)  # a process killed here leaves a folder without sums, not one with wrong sums
    write_json(folder / CONFIG, values)
    write_sums(folder)

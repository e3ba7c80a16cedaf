"""The model folder: ``config.json``, ``model.safetensors``, ``preprocessor_config.json`` and a model card.

A model that transformers has a class for is written as that class reads it, any other under our own names. Loading a
folder reads JSON and tensors and nothing else; no file in it can run code.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from torch import Tensor, nn

from vitrail.data.images.preparation import Preparation
from vitrail.errors import ConfigError, ModelFileError, unknown
from vitrail.files import is_text, write_json, write_text
from vitrail.models.base import ImageModel, Model
from vitrail.models.configs.base import ImageConfig, ModelConfig
from vitrail.models.registry import architecture_of
from vitrail.models.structure import changed_parts
from vitrail.runtime.notebook import table
from vitrail.settings import Settings, brief
from vitrail.weights.formats.checksums import SUMS, new_model_folder, write_sums
from vitrail.weights.formats.safe_files import CONFIG, read_json, some
from vitrail.weights.formats.tensor_files import write_tensors
from vitrail.weights.hub import push_saved
from vitrail.weights.layout import Layout
from vitrail.weights.layouts import LAYOUTS, family
from vitrail.weights.model_folder.card import model_card
from vitrail.weights.model_folder.classifier_output import Labelled
from vitrail.weights.model_folder.description import describe
from vitrail.weights.state_dict import first_that_holds

C = TypeVar("C", bound=ModelConfig)
FORMAT = "vitrail"
THRESHOLDS = "thresholds"
"""Under which ``config.json`` has the probabilities from which on labels are told: of one label, where images are rejected."""
PROBLEMS = ("single_label_classification", "multi_label_classification")
"""transformers' names for one label an image, and for any number."""


MOST_LABELS = 20
"""In a table of a notebook."""


class TrainedModel(Labelled, nn.Module):
    """A model with what it needs to answer: prepared images (B, C, H, W) to logits (B, classes).

    Args:
        model: what answers: a model of this library, or any module from prepared images to logits, for `predict` and `evaluate`
            alone.
        labels: a name for every logit, by index; none for a model that gives vectors.
        preparation: what makes its input of a picture.
        multi_label: whether an image may have several labels, or none.
        card: the model card, as Markdown.
        thresholds: the probability from which on each label is told: where there may be several, none for one half each; where an
            image has one, where others are rejected.

    Raises:
        ConfigError: another kind of model, labels or preparation.
    """

    def __init__(
        self,
        model: ImageModel | nn.Module,
        labels: Sequence[str],
        preparation: Preparation,
        multi_label: bool = False,
        card: str = "",
        thresholds: Sequence[float] = (),
    ):
        super().__init__()
        _require_parts(model, labels, preparation)
        self.model: Any = model
        self.labels, self.preparation = [str(label) for label in labels], preparation
        self.multi_label, self.card, self.thresholds = multi_label, card, thresholds
        self.training = model.training

    @property
    def config(self) -> ImageConfig:
        """The model's configuration.

        Raises:
            ConfigError: the model is none of this library.
        """
        require_of_images(self.model)
        return cast(ImageConfig, self.model.config)

    @property
    def more(self) -> dict[str, Any]:
        """What else ``config.json`` has to say."""
        return {}

    def forward(self, images: Tensor) -> Tensor:
        """Prepared images (B, C, H, W) to logits (B, classes)."""
        logits: Tensor = self.model(images)
        return logits

    def save_pretrained(self, folder: str | Path, *, layout: str | None = None) -> None:
        """Write the model folder, which replaces nothing but an older one; see `save_model`.

        Raises:
            ConfigError: parts of the model were changed by hand, or labels or preparation do not fit it: nothing could read that.
        """
        require_as_built(self.model, self.config)
        _require_fitting(self)
        save_model(folder, self, card=self.card or self.plain_card(), layout=layout)

    def fill(self, folder: Path, card: str) -> None:
        """Write the files of a model folder; see `fill_folder`."""
        fill_folder(folder, self, card=card)

    def push_to_hub(self, repo_id: str, *, private: bool = False, revision: str | None = None) -> str:
        """Upload the model folder to the Hugging Face hub and give the address of the commit; see `vitrail.weights.hub.push`."""
        return push_saved(self.save_pretrained, repo_id, private=private, revision=revision)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        labels = ", ".join(self.labels[:MOST_LABELS]) + (" …" if len(self.labels) > MOST_LABELS else "")
        parameters = f"{sum(parameter.numel() for parameter in self.model.parameters()):,}"
        rows = [("parameters", parameters), ("images", str(self.preparation)), ("labels", labels or "none: it gives vectors")]
        return table(f"{architecture_of(self.config).about}: {self.config.summary}", rows)

    def plain_card(self) -> str:
        """What can be said of a model that came without a card."""
        return model_card(
            name=f"{architecture_of(self.config).about}, {self.config.summary}", labels=self.labels, multi_label=self.multi_label
        )


def _require_parts(model: object, labels: object, preparation: object) -> None:
    """Refuse what no `TrainedModel` can be made of."""
    made_of = (("model", model, nn.Module), ("preparation", preparation, Settings))
    for where, value, kind in made_of:
        if not isinstance(value, kind):
            hint = "vitrail.TrainedModel(model, labels, preparation) takes a module, a list of names and a vitrail.Preparation"
            raise ConfigError(f"a {type(value).__name__} is no {where}", where=where, hint=hint)
    if isinstance(labels, str) or not isinstance(labels, Collection) or not all(isinstance(label, str) for label in labels):
        raise ConfigError(f"the labels are no list of names: {brief(labels)}", where="labels", hint='give ["ant", "bee"]')


def require_of_images(model: nn.Module) -> None:
    """Refuse a module that is no model of images of this library; raises `ConfigError`."""
    if not isinstance(model, ImageModel):
        hint = "predict and evaluate take it; all else needs a model of vitrail.create_model, before torch.compile"
        raise ConfigError(f"{type(model).__name__} is no model of this library", where="model", hint=hint)


def require_as_built(model: Model, config: ModelConfig) -> None:
    """Refuse to write a model whose configuration builds another; raises `ConfigError` with the parts that differ."""
    if changed := list(changed_parts(model).values()):
        what = f"the model is not what its configuration builds, which a folder is read by: {some(changed)}"
        hint = "keep its state_dict() in a file, and build it by the same code; predict, evaluate and study_model take this one"
        raise ConfigError(what, where="model", hint=hint)


def _require_fitting(trained: TrainedModel) -> None:
    """Refuse labels or a preparation that are not the model's; raises `ConfigError`."""
    config, preparation = trained.config, trained.preparation
    if trained.labels and len(trained.labels) != config.num_classes:
        what = f"{len(trained.labels)} labels, and the model has {config.num_classes} classes"
        raise ConfigError(what, where="labels", hint="give a name for each class")
    if isinstance(preparation, Preparation):
        made, taken = ((of.channels, *of.image_size) for of in (preparation, config))
        if made != taken:
            what = f"the preparation makes images of shape {made}, the model takes {taken}"
            raise ConfigError(what, where="preparation", hint="give vitrail.Preparation.standard(model.config.image_size)")


def save_model(folder: str | Path, trained: TrainedModel, *, card: str, layout: str | None = None) -> None:
    """Write a model folder as `fill_folder` does; see `vitrail.weights.formats.checksums.new_model_folder`."""
    with new_model_folder(folder) as draft:
        fill_folder(draft, trained, card=card, layout=layout)


def fill_folder(folder: Path, trained: TrainedModel, *, card: str, layout: str | None = None) -> None:
    """Write the files of a model folder but its sums, as others may come beside them; see `write_sums`.

    Without a ``layout`` it is the first of transformers' that can hold the model, else our own.

    Raises:
        ConfigError: the layout cannot hold the model, or a label is no text.
    """
    if strange := [label for label in trained.labels if not is_text(label)]:
        raise ConfigError(f"the label {strange[0]!r} is not in UTF-8", where="labels", hint="name the class otherwise")
    chosen, tensors = _in_layout(trained.model, layout)
    if chosen is not None and not (chosen.describe or chosen.classes[0 if trained.config.num_classes else 1]):
        hint = f"give OUT a name that ends in {chosen.suffix}"
        raise ConfigError(f"{chosen.about} has no model folders", where="--layout", hint=hint)
    write_json(folder / "config.json", {**_description(trained, chosen), **trained.more})
    write_json(folder / "preprocessor_config.json", trained.preparation.to_hugging_face())
    write_text(folder / "README.md", card)
    write_tensors(folder / "model.safetensors", tensors)


def _in_layout(model: ImageModel, name: str | None) -> tuple[Layout | None, dict[str, Tensor]]:
    """A layout and the model's tensors in it; without a name transformers' first that can hold the model. Ours is None."""
    if name is not None and name != FORMAT:
        return first_that_holds(model, family(name))
    if name is None:
        with suppress(ConfigError):
            return first_that_holds(model, [own for own in LAYOUTS.values() if own.classes[0 if model.config.num_classes else 1]])
    return None, model.state_dict()


def in_layout_of_writers(
    model: Model, name: str | None, layouts: Mapping[str, Layout]
) -> tuple[Layout, dict[str, Tensor]] | None:
    """One of the layouts of models that write texts, and the model's tensors in it; None for our own.

    Without a name it is the first that can hold the model, else our own.

    Raises:
        ConfigError: the layout cannot hold the model, or is none of these.
    """
    known = [FORMAT, *layouts]
    if name is not None and name not in known:
        raise unknown("layout of such models", name, known, where="--layout")
    if name == FORMAT:
        return None
    with suppress(ConfigError) if name is None else nullcontext():
        return first_that_holds(model, list(layouts.values()))
    return None


def _description(trained: TrainedModel, layout: Layout | None) -> dict[str, Any]:
    """``config.json``: the architecture in the words of the layout, what only training needs in ours, the labels."""
    config: Any = trained.config
    if layout is not None and layout.describe and layout.describe_data:
        named = layout.describe_data(layout, config, trained.labels, trained.preparation)
        return layout.describe(config) | named | (_kind(trained) if trained.multi_label or trained.thresholds else {})
    values = config.model_dump(mode="json")
    if layout is None:
        values = {"architectures": [architecture_of(config).name], "model_type": FORMAT, **values}
    else:
        training = {name: values[name] for name in sorted(config.training_only) if name not in layout.described}
        told = layout.describe(config) if layout.describe else describe(config, layout)
        values = {**told, FORMAT: training}
    return values | label_description(trained)


def label_description(trained: TrainedModel) -> dict[str, Any]:
    """What ``config.json`` says of the labels, in transformers' words, and of their thresholds."""
    return {
        **_kind(trained),
        "id2label": {str(i): label for i, label in enumerate(trained.labels)},
        "label2id": {label: i for i, label in enumerate(trained.labels)},
    }


def _kind(trained: TrainedModel) -> dict[str, Any]:
    """Whether there may be several labels, and from which probability on each is told."""
    bounds = {THRESHOLDS: list(trained.thresholds)} if trained.thresholds else {}
    return {"problem_type": PROBLEMS[trained.multi_label], **bounds}


def keep_thresholds(folder: Path, thresholds: Sequence[float]) -> None:
    """Write into a model folder from which probability on each of its labels is told."""
    values = {**read_json(folder / CONFIG), THRESHOLDS: list(thresholds)}
    (folder / SUMS).unlink(missing_ok=True)  # whoever is killed here leaves a folder without sums, not one that is refused
    write_json(folder / CONFIG, values)
    write_sums(folder)


def read_config(kind: type[C], values: Mapping[str, Any], where: Path) -> C:
    """The configuration in a ``config.json`` of our own; raises `ModelFileError`."""
    try:
        return kind.read(values, where="config")
    except ConfigError as error:
        raise ModelFileError(f"the configuration is damaged: {error}", where=where, hint="write the folder again") from None


def distinct(labels: list[str]) -> list[str]:
    """Names of which none stands for two classes: ImageNet has two cranes, the second becomes ``crane (517)``."""
    seen: set[str] = set()
    result = []
    for i, label in enumerate(labels):
        result.append(f"{label} ({i})" if label in seen else label)
        seen |= {label, result[-1]}
    return result


def fill(model: nn.Module, tensors: dict[str, Tensor], *, where: object) -> None:
    """Give a model built on "meta" its parameters, without a second copy; lists every key that does not fit."""
    expected = model.state_dict()
    problems = [f"missing {k}" for k in expected.keys() - tensors.keys()]
    problems += [f"unexpected {k}" for k in tensors.keys() - expected.keys()]
    problems += [
        f"{k} is {tuple(tensors[k].shape)}, expected {tuple(expected[k].shape)}"
        for k in expected.keys() & tensors.keys()
        if expected[k].shape != tensors[k].shape
    ]
    if problems:
        what = f"the weights do not fit the configuration: {some(sorted(problems))}"
        raise ModelFileError(what, where=where, hint="write the folder again")
    model.load_state_dict({k: t.to(expected[k].dtype) for k, t in tensors.items()}, assign=True)

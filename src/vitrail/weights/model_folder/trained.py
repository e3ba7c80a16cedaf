"""A model with what it needs to answer, and the model folder that keeps both: what every kind of model has.

The folder holds ``config.json``, ``model.safetensors``, a model card, and what else the kind of model needs. A model that
transformers has a class for is written as that class reads it, any other under our own names. Loading a folder reads JSON and
tensors and nothing else; no file in it can run code.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from torch import Tensor, nn

from vitrail.errors import ConfigError, ModelFileError, unknown
from vitrail.files import write_bytes, write_json, write_text
from vitrail.models.base import Model
from vitrail.models.configs.base import ModelConfig
from vitrail.models.registry import architecture_of
from vitrail.models.structure import changed_parts
from vitrail.runtime.notebook import table
from vitrail.weights.formats.checksums import new_model_folder
from vitrail.weights.formats.safe_files import CARD, CONFIG, some
from vitrail.weights.formats.tensor_files import write_tensors
from vitrail.weights.hub import push_saved
from vitrail.weights.layout import Layout
from vitrail.weights.model_folder.card import model_card
from vitrail.weights.state_dict import first_that_holds

C = TypeVar("C", bound=ModelConfig)
FORMAT = "vitrail"


class Trained(nn.Module):
    """A model with what it needs to answer, and the folder that keeps both. Each kind of model is a subclass.

    Args:
        model: what answers.
        card: the model card, as Markdown.
    """

    layouts: ClassVar[Mapping[str, Layout]]
    """The layouts of others in which such a model may be written, by name."""
    usual_layout: ClassVar[str | None] = None
    """The layout of a run's folders; see `save_pretrained`."""
    needs_folder: ClassVar[str] = ""
    """A sentence on why such a model cannot be written as a file alone; empty where it can."""
    fixed_labels: ClassVar[str] = ""
    """A sentence on why such a model cannot get other labels; empty where it can."""
    no_labels: ClassVar[tuple[str, str]] = ("", "")
    """Why such a model is not asked for labels, and what to call instead; empty where it is."""

    def __init__(self, model: Any, card: str = ""):
        super().__init__()
        self.model: Any = model
        self.card = card
        self.training = model.training

    @property
    def config(self) -> Any:
        """Return the model's configuration."""
        return self.model.config

    @property
    def facts(self) -> dict[str, Any]:
        """Return what a model card says of the kind of model, by the arguments of `model_card`."""
        return {"labels": []}

    @property
    def uses(self) -> Sequence[str]:
        """Return commands that suit such a model, with its folder as {}."""
        return ()

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Return the rows of a table in a notebook."""
        return []

    def plain_card(self) -> str:
        """Return a card with what can be said of a model that came without one."""
        return model_card(name=f"{architecture_of(self.config).about}, {self.config.summary}", **self.facts)

    def metadata(self) -> dict[str, Any]:
        """Return what a file alone says of the model beside its tensors and its configuration."""
        return {}

    def description(self, layout: Layout | None) -> dict[str, Any]:
        """Return the content of ``config.json`` in a layout; None for our own."""
        kind = architecture_of(self.config).name
        return {"architectures": [kind], "model_type": FORMAT, **self.config.model_dump(mode="json")}

    def files(self, layout: Layout | None) -> Mapping[str, Mapping[str, Any] | bytes]:
        """Return the other files that a folder in a layout needs, by name: JSON, or bytes as they are."""
        raise NotImplementedError

    def in_transformers(self, layout: Layout) -> bool:
        """Return True where transformers has a class that opens such a model in a layout."""
        return True

    def candidates(self, name: str | None) -> list[Layout]:
        """Return the layouts that a name means: one, or all of a library of which each holds other models.

        Without a name they are those of transformers.

        Raises:
            ConfigError: no layout of such models has that name.
        """
        if name is None:
            return [layout for layout in self.layouts.values() if self.in_transformers(layout)]
        if name not in self.layouts:
            known = [FORMAT, *(known for known, layout in self.layouts.items() if layout.written)]
            raise unknown("layout of such models", name, known, where="--layout")
        return [layout for layout in self.layouts.values() if name in (layout.name, layout.family)]

    def in_layout(self, name: str | None) -> tuple[Layout | None, dict[str, Tensor]]:
        """Return a layout and the model's tensors in it. Ours is None.

        Without a name it is the first of `candidates` that can hold the model, else our own.

        Raises:
            ConfigError: the layout cannot hold the model, or is none of such models.
        """
        if name != FORMAT:
            with suppress(ConfigError) if name is None else nullcontext():
                return first_that_holds(self.model, self.candidates(name))
        return None, self.model.state_dict()

    def require_complete(self) -> None:
        """Refuse a model that no folder could hold; raises `ConfigError`."""
        require_as_built(self.model, self.config)

    def save_pretrained(self, folder: str | Path, *, layout: str | None = None) -> None:
        """Write the model folder; it appears whole or not at all, and replaces nothing but an older model folder.

        Args:
            folder: to write.
            layout: ``vitrail``, or one of ``layouts``; None for transformers' where it can hold the model, else our own.

        Raises:
            ConfigError: the layout cannot hold the model, or is none of such models; or parts of the model were changed by hand,
                or labels or preparation do not fit it: nothing could read that.
        """
        self.require_complete()
        save_model(folder, self, card=self.card or self.plain_card(), layout=layout)

    def fill(self, folder: Path, card: str) -> None:
        """Write the files of a run's model folder; see `fill_folder`."""
        fill_folder(folder, self, card=card, layout=self.usual_layout)

    def push_to_hub(self, repo_id: str, *, private: bool = False, revision: str | None = None) -> str:
        """Upload the model folder to the Hugging Face hub and give the address of the commit; see `vitrail.weights.hub.push`."""
        return push_saved(self.save_pretrained, repo_id, private=private, revision=revision)

    def _repr_html_(self) -> str:
        """Return a table for a notebook."""
        parameters = f"{sum(parameter.numel() for parameter in self.model.parameters()):,}"
        return table(f"{architecture_of(self.config).about}: {self.config.summary}", [("parameters", parameters), *self.rows])


def require_as_built(model: Model, config: ModelConfig) -> None:
    """Refuse to write a model whose configuration builds another; raises `ConfigError` with the parts that differ."""
    if changed := list(changed_parts(model).values()):
        what = f"the model is not what its configuration builds, which a folder is read by: {some(changed)}"
        hint = "keep its state_dict() in a file, and build it by the same code; predict, evaluate and study_model take this one"
        raise ConfigError(what, where="model", hint=hint)


def save_model(folder: str | Path, trained: Trained, *, card: str, layout: str | None = None) -> str:
    """Write a model folder as `fill_folder` does; see `vitrail.weights.formats.checksums.new_model_folder`."""
    with new_model_folder(folder) as draft:
        return fill_folder(draft, trained, card=card, layout=layout)


def fill_folder(folder: Path, trained: Trained, *, card: str, layout: str | None = None) -> str:
    """Write the files of a model folder but its sums, as others may come beside them, and return its layout's name.

    Without a ``layout`` it is the first of transformers' that can hold the model, else our own. See `write_sums`.

    Raises:
        ConfigError: the layout cannot hold the model or has no folders, or a label is no text.
    """
    chosen, tensors = trained.in_layout(layout)
    if chosen is not None and not (chosen.describe or trained.in_transformers(chosen)):
        hint = f"give OUT a name that ends in {chosen.suffix}"
        raise ConfigError(f"{chosen.about} has no model folders", where="--layout", hint=hint)
    weights = folder / ("model.safetensors" if chosen is None else chosen.weights)
    weights.parent.mkdir(exist_ok=True)
    write_json(weights.with_name(CONFIG), trained.description(chosen))
    for name, content in trained.files(chosen).items():
        (folder / name).parent.mkdir(exist_ok=True)
        write_bytes(folder / name, content) if isinstance(content, bytes) else write_json(folder / name, content)
    write_text(folder / CARD, card)
    write_tensors(weights, tensors)
    return FORMAT if chosen is None else chosen.name


def read_config(kind: type[C], values: Mapping[str, Any], where: Path) -> C:
    """Return the configuration in a ``config.json`` of our own; raises `ModelFileError`."""
    try:
        return kind.read(values, where="config")
    except ConfigError as error:
        raise ModelFileError(f"the configuration is damaged: {error}", where=where, hint="write the folder again") from None


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

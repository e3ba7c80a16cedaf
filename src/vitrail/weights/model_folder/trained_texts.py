"""What a trained model of texts has, whatever its sources are: tokens, a card, and a folder that keeps it."""

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn

from vitrail.data.text.tokens import Tokens
from vitrail.errors import ModelFileError
from vitrail.files import write_bytes, write_json, write_text
from vitrail.models.empty import empty_model
from vitrail.models.registry import architecture_of
from vitrail.models.text.text_model import TextModel
from vitrail.weights.formats.checkpoint import Checkpoint
from vitrail.weights.formats.checksums import new_model_folder
from vitrail.weights.formats.safe_files import CARD, CONFIG
from vitrail.weights.formats.tensor_files import write_tensors
from vitrail.weights.hub import push_saved
from vitrail.weights.layout import Layout
from vitrail.weights.model_folder.folder import FORMAT, fill, in_layout_of_writers, require_as_built


class TrainedTexts(nn.Module):
    """A model of texts with what it needs to write.

    Args:
        model: sources and targets to logits.
        card: the model card, as Markdown.
    """

    labels: tuple[()] = ()
    thresholds: tuple[()] = ()
    layouts: ClassVar[Mapping[str, Layout]]
    """The layouts of others in which such a model can be written."""

    def __init__(self, model: TextModel, card: str):
        super().__init__()
        self.model, self.card = model, card
        self.training = model.training

    @property
    def config(self) -> Any:
        """The model's configuration."""
        return self.model.config

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Sources, tokens (B, S) or prepared images (B, C, H, W), and tokens (B, T) to logits (B, T, vocabulary)."""
        logits: Tensor = self.model(source, target)
        return logits

    def save_pretrained(self, folder: str | Path, *, layout: str | None = FORMAT) -> None:
        """Write the model folder; it appears whole or not at all, and replaces nothing but an older model folder.

        Args:
            folder: to write.
            layout: ``vitrail``, or one of ``layouts``; None for transformers' where it can hold the model, else our own.

        Raises:
            ConfigError: the layout cannot hold the model, or is none of such models, or parts of the model were changed by hand.
        """
        require_as_built(self.model, self.config)
        foreign = in_layout_of_writers(self.model, layout, self.layouts)
        with new_model_folder(folder) as draft:
            if foreign is None:
                self.fill(draft, self.card or self.plain_card())
            else:
                self._fill_foreign(draft, *foreign)

    def push_to_hub(self, repo_id: str, *, private: bool = False, revision: str | None = None) -> str:
        """Upload the model folder to the Hugging Face hub and give the address of the commit; see `vitrail.weights.hub.push`."""
        return push_saved(self.save_pretrained, repo_id, private=private, revision=revision)

    @abstractmethod
    def fill(self, folder: Path, card: str) -> None:
        """Write the files of a model folder of our own."""

    @abstractmethod
    def plain_card(self) -> str:
        """What can be said of a model that came without a card."""

    @abstractmethod
    def _fill_foreign(self, folder: Path, layout: Layout, tensors: dict[str, Tensor]) -> None:
        """Write the files of a folder of transformers'."""

    @property
    def _summary(self) -> str:
        return f"{architecture_of(self.config).about}, {self.config.summary}"

    def _own_values(self) -> dict[str, Any]:
        """The configuration, as a folder of our own has it."""
        kind = architecture_of(self.config).name
        return {"architectures": [kind], "model_type": FORMAT, **self.config.model_dump(mode="json")}


def write_texts(
    folder: Path, values: Mapping[str, Any], tokens: Mapping[str, bytes], card: str, tensors: Mapping[str, Tensor]
) -> None:
    """Write what every folder of a model of texts has: ``config.json``, tokens, the card and ``model.safetensors``."""
    write_json(folder / CONFIG, values)
    for name, content in tokens.items():
        write_bytes(folder / name, content)
    write_text(folder / CARD, card)
    write_tensors(folder / "model.safetensors", tensors)


def model_of_tokens(config: Any, tokens: Tokens, tensors: dict[str, Tensor], checkpoint: Checkpoint) -> Any:
    """The model that a checkpoint holds, in evaluation mode; raises `ModelFileError` for tokens that are not the model's."""
    there = {"vocabulary": len(tokens), "pad": tokens.pad, "start": tokens.start, "end": tokens.end}
    others = {name: (getattr(config, name), number) for name, number in there.items() if getattr(config, name) != number}
    if others:
        told = ", ".join(f"{name} is {own} in {CONFIG} and {number} among the tokens" for name, (own, number) in others.items())
        raise ModelFileError(told, where=checkpoint.file.parent, hint="give a complete model folder")
    model: Any = empty_model(config)
    fill(model, tensors, where=checkpoint.file)
    return model.eval()

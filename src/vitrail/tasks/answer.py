"""The prediction for one item of any task, as JSON, table rows, text or drawing."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from vitrail.tasks.answer_table import Row

if TYPE_CHECKING:
    from PIL import Image


class Answer(ABC):
    """The prediction for one item. The item's name is passed when the prediction is written, since an image may have none."""

    @abstractmethod
    def to_json(self, name: str) -> dict[str, Any]:
        """Return the prediction as a JSON object."""

    def entries(self, name: str) -> list[dict[str, Any]]:
        """Return the entries of a JSON document: one for the item, or one for each object predicted in it, such as a person."""
        return [self.to_json(name)]

    @abstractmethod
    def rows(self) -> list[Row]:
        """Return the rows of a table, without the name; `Predictor.head` names the columns."""

    @abstractmethod
    def lines(self) -> list[str]:
        """Return the lines to print, without the name."""

    def draw(self, picture: "Image.Image") -> "Image.Image":
        """Return the upright image with the prediction drawn into it, if the task can draw."""
        raise NotImplementedError

"""The prediction for one item of any task: for programs, tables, people and images."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from vitrail.tasks.answer_table import Row

if TYPE_CHECKING:
    from PIL import Image


class Answer(ABC):
    """Prediction for one item. It gets its name where it is written, as an image may have come without one."""

    @abstractmethod
    def to_json(self, name: str) -> dict[str, Any]:
        """Return the prediction for a program."""

    def entries(self, name: str) -> list[dict[str, Any]]:
        """Return the entries of a JSON document: one of the item, or one of each thing that is predicted in it."""
        return [self.to_json(name)]

    @abstractmethod
    def rows(self) -> list[Row]:
        """Return the rows of a table, without the name; `Predictor.head` names the columns."""

    @abstractmethod
    def lines(self) -> list[str]:
        """Return the lines for people, without the name."""

    def draw(self, picture: "Image.Image") -> "Image.Image":
        """Return the upright picture with the prediction in it, where the task draws one."""
        raise NotImplementedError

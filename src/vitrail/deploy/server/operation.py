"""What a task contributes to a server: an object that its room's ``service`` opens, with an `Operation` for each path."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from pydantic import BaseModel
from torch import Tensor

from vitrail.deploy.server.http.bodies import Body
from vitrail.deploy.server.http.limits import Limits
from vitrail.deploy.server.http.pages import Page
from vitrail.deploy.server.schema import Document
from vitrail.settings import Settings

Request = TypeVar("Request")
Row = TypeVar("Row")
Output = TypeVar("Output")


class ServerSettings(Settings):
    """Options of `vitrail.api.serve` that are a task's own. The ``service`` of a room has a subclass, ``Settings``."""

    limits: Limits = Limits()
    """What the server takes on."""


class NoFields(BaseModel):
    """Fields of a request that has none in its address."""


class Prepared(NamedTuple, Generic[Row]):
    """A part of a request, an image or a whole document, ready to be computed."""

    rows: list[Row]
    context: Any = None
    """What `Operation.answer` needs of the part, beside its outputs."""
    places: int = 0
    """Usual rows that the part counts as, where ``rows`` of the operation is None; 0 for the number of its rows."""


class Computed(NamedTuple, Generic[Output]):
    """A part of a request, with an output for each of its rows."""

    name: str
    context: Any
    outputs: list[Output]


@dataclass(frozen=True, kw_only=True)
class Operation(Generic[Request, Row, Output]):
    """A path of a server: what a request may hold, and how an answer is made of it, in four steps.

    ``understand`` reads the fields, ``prepare`` makes rows of a part, ``run`` computes a batch of rows, which may be of many
    requests, and ``answer`` gives the document of the answer. The first, second and last refuse a request with a `ProblemError`;
    ``prepare`` may raise a `DataError` as well.
    """

    path: str
    summary: str
    description: str
    body: Body
    fields: type[BaseModel] = NoFields
    """Fields in the address."""
    document: type[Document]
    """Schema of the answer."""
    understand: Callable[[Any], Request] = lambda fields: fields
    """Returns what is requested, from the fields; of fields in the address called before the body is read, too."""
    prepare: Callable[[bytes, Request], Prepared[Row]]
    """Called in a thread that decodes images, or in one that reads bodies."""
    rows: Callable[[Request], int] | None = lambda request: 1
    """Returns the number of rows of each part before it is prepared, or of their turns; None where only preparing it tells."""
    run: Callable[[list[Row]], Sequence[Output]]
    """Called in the one thread that computes. A row whose output is `UNFINISHED` gets another turn, in a later batch."""
    turns: int = 1
    """Turns of a usual row: ``waiting`` of the limits is multiplied by it, and a request waits for half of its deadline."""
    answer: Callable[[Request, list[Computed[Output]]], dict[str, Any]]
    """Called in a thread that reads bodies."""
    looks: bool = False
    """True for maps of attention, which cost more than an answer: they have places of their own, and a batch is one row."""
    unseen: str = ""
    """Why attention cannot be seen; then nothing is answered."""
    may_lack_attention: bool = False
    """True where a request may be refused since attention cannot be seen."""


class TensorModel(NamedTuple):
    """The network of a task of images, for clients that send tensors."""

    network: Callable[[Tensor], Tensor]
    """Maps prepared pixels, uint8 (B, C, H, W), to float32; called in the one thread that computes."""
    shape: tuple[int, int, int]
    """C, H and W."""
    output: str
    output_shape: tuple[int, ...]
    """-1 for the batch, and for sides that are not known."""


class Served(Protocol):
    """The part of a server that a task contributes: all that `vitrail.deploy.server.service.Service` knows of a model."""

    summary: str
    """What the server does, in its description."""
    items: str
    """What a row is, as metrics call it: images, people."""
    document: type[Document]
    """Schema of `described`."""
    page: Page
    limits: Limits
    tensors: TensorModel | None
    """None where the network is no function of images."""
    operations: tuple[Operation[Any, Any, Any], ...]
    """The paths; the pace of the server is learned on the first."""

    def blank(self) -> Any:
        """Return a row of nothing, by which the pace is learned."""

    def described(self) -> dict[str, Any]:
        """Return what answers, and the limits of a request; the server adds its name."""

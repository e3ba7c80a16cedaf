"""The two kinds of request bodies: images, or JSON."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers

from vitrail.deploy.server.http.forms import File, form_of, require_image
from vitrail.deploy.server.http.problems import ProblemError, mistaken
from vitrail.deploy.server.http.reading import media_type, require_plain

JSON = "application/json"


@dataclass(frozen=True)
class Images:
    """A body that is one image, or a form with several; the other fields of the request are in the query string."""

    most: int
    """Most images in a request."""
    check: Callable[[bytes], int]
    """Returns how many pixels of an image will be decoded, from the header of the file only; raises `DataError`."""
    openapi: dict[str, Any]
    """Description of the body for OpenAPI."""
    form_fields: tuple[str, ...] = ()
    """Fields of the request that may be in the form instead of the query string."""
    fields_in_address: ClassVar[bool] = True

    def require_type(self, headers: Headers) -> None:
        """Refuse a body of another type, by its headers."""
        require_image(headers)

    def read(self, content: bytes, headers: Headers, fields: BaseModel) -> tuple[BaseModel, list[File]]:
        """Return the fields of a request, from its query string and its form, and its images; raises `ProblemError`."""
        form = form_of(content, headers, self.most, tuple(type(fields).model_fields))
        for name in form.fields:
            if name not in self.form_fields:
                raise ProblemError(422, f"{name} cannot be sent in the form", hint=f"send it in the query string: ?{name}=…")
            if name in fields.model_fields_set:
                raise ProblemError(422, f"the field {name} comes twice", hint="send it in the query string or in the form")
        with _explained("form"):
            return type(fields).model_validate({**fields.model_dump(exclude_unset=True), **form.fields}), form.files


@dataclass(frozen=True)
class Json:
    """A body that is a JSON document with all fields of the request."""

    document: type[BaseModel]
    example: str
    context: Any = None
    """The context of pydantic's validators for the document."""
    check: ClassVar[None] = None
    fields_in_address: ClassVar[bool] = False

    @property
    def openapi(self) -> dict[str, Any]:
        """Description of the body."""
        content = {JSON: {"schema": self.document.model_json_schema()}}
        return {"requestBody": {"required": True, "description": "JSON; compressed no further.", "content": content}}

    def require_type(self, headers: Headers) -> None:
        """Refuse a body of another type, by its headers."""
        require_plain(headers)
        kind = media_type(headers)
        if kind not in ("", JSON):
            raise ProblemError(415, f"{kind} is not JSON", hint=f"send {self.example} as {JSON}, for example with curl --json")

    def read(self, content: bytes, headers: Headers, fields: BaseModel) -> tuple[BaseModel, list[File]]:
        """Return the fields of a request, and the whole document as its only file; raises `ProblemError`."""
        with _explained("body", hint=f"send {self.example}"):
            return self.document.model_validate_json(content, context=self.context), [File("body", content)]


Body = Images | Json


@contextmanager
def _explained(where: str, hint: str | None = None) -> Iterator[None]:
    """Raise pydantic's errors as a `ProblemError`."""
    try:
        yield
    except ValidationError as error:
        mistakes = error.errors(include_url=False, include_context=False, include_input=False)
        raise mistaken(mistakes, within=(where,), hint=hint) from None

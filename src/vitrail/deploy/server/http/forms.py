"""Images in the body of a request: a single image, or a form with files and fields."""

from typing import TYPE_CHECKING, NamedTuple

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.datastructures import Headers

from vitrail.deploy.server.http.problems import ProblemError
from vitrail.deploy.server.http.reading import media_type, require_plain

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

FIELDS = 8
"""Most parts of a form that are not images."""
LONGEST_FIELD = 2**16
"""Most bytes of a field."""
RAW = "application/octet-stream"
FORM = "multipart/form-data"


class File(NamedTuple):
    """A file of a request."""

    name: str
    content: bytes


class Form(NamedTuple):
    """The files of a body, and its fields."""

    files: list[File]
    fields: dict[str, str]


def require_image(headers: Headers) -> None:
    """Raise `ProblemError` for a body whose Content-Type cannot hold images."""
    require_plain(headers)
    kind = media_type(headers)
    if kind not in ("", RAW, FORM) and not kind.startswith("image/"):
        raise ProblemError(415, f"{kind} is not an image", hint=f"send it as image/jpeg (or similar), {RAW} or {FORM}")


def form_of(content: bytes, headers: Headers, most: int, fields: tuple[str, ...] = ()) -> Form:
    """Return the images of a body and, if it is a form, its fields that are in ``fields``; other fields are ignored.

    Raises:
        ProblemError: there are no images or more than ``most``, a field is too long, or the form is damaged.
    """
    if media_type(headers) != FORM:
        if not content:
            raise ProblemError(422, "the body is empty", hint="send an image")
        return Form([File("image", content)], {})
    form = _Parts(most, fields)
    try:
        parser = MultipartParser(parse_options_header(headers["content-type"])[1].get(b"boundary", b""), form.callbacks)
        parser.write(content)
        parser.finalize()
    except (FormParserError, ValueError) as error:
        raise ProblemError(422, f"the form is damaged: {error}") from None
    if not form.whole or not form.files:
        what = "the form has no files" if form.whole else "the form is cut off"
        raise ProblemError(422, what, hint="send each image as a file, in a part with filename=: curl -F images=@cat.jpg")
    files = [File(name or f"image {number}", bytes(data)) for number, (name, data) in enumerate(form.files, start=1)]
    return Form(files, {name: data.decode(errors="replace") for name, data in form.fields.items()})


class _Parts:
    """The files of a form and its fields named in ``wanted``, collected during parsing."""

    def __init__(self, most: int, wanted: tuple[str, ...]):
        self.files: list[tuple[str, bytearray]] = []
        self.fields: dict[str, bytearray] = {}
        self.whole = False
        self._most, self._wanted, self._parts = most, wanted, 0
        self._name, self._value, self._disposition = b"", b"", b""
        self._file: bytearray | None = None
        self._field = ""
        self.callbacks: MultipartCallbacks = {
            "on_part_begin": self._begin,
            "on_header_field": self._header_name,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_end,
            "on_part_data": self._data,
            "on_end": self._end,
        }

    def _begin(self) -> None:
        self._parts += 1
        self._disposition = b""
        if self._parts > self._most + FIELDS:
            raise self._too_many()

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        if self._name.lower() == b"content-disposition":
            self._disposition = self._value
        self._name, self._value = b"", b""

    def _headers_end(self) -> None:
        options = parse_options_header(self._disposition)[1]
        file, name = options.get(b"filename"), options.get(b"name", b"").decode(errors="replace")
        self._file = None if file is None else bytearray()
        self._field = name if file is None and name in self._wanted else ""
        if file is not None and self._file is not None:
            self.files.append((file.decode(errors="replace"), self._file))
        if self._field in self.fields:
            raise ProblemError(422, f"the form has {self._field} twice", hint="send it once")
        if self._field:
            self.fields[self._field] = bytearray()
        if len(self.files) > self._most:
            raise self._too_many()

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._file is not None:
            self._file.extend(memoryview(data)[start:end])
        elif self._field:
            value = self.fields[self._field]
            value.extend(memoryview(data)[start:end])
            if len(value) > LONGEST_FIELD:
                raise ProblemError(413, f"{self._field} is longer than {LONGEST_FIELD:,} bytes", hint="send less at a time")

    def _end(self) -> None:
        self.whole = True

    def _too_many(self) -> ProblemError:
        images = "1 image" if self._most == 1 else f"{self._most} images"
        return ProblemError(413, f"the request has more than {images}", hint="send them in several requests")

"""The server of a translator: translations of texts, and where the model looked."""

import contextlib
import time
from collections.abc import Callable, Sequence
from itertools import chain, cycle, islice
from typing import Any, NamedTuple

from fastapi import FastAPI
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from vitrail.deploy.server import schema
from vitrail.deploy.server.http.limits import Limits
from vitrail.deploy.server.http.problems import ProblemError, mistaken
from vitrail.deploy.server.http.reading import media_type, require_plain, while_connected
from vitrail.deploy.server.schema import ToTranslate, refusals
from vitrail.deploy.server.service import Service
from vitrail.deploy.server.workers.shared_state import Place
from vitrail.errors import DataError
from vitrail.tasks.translation.answer import Piece, joined
from vitrail.tasks.translation.predictor import LONGEST, Translator, Writer
from vitrail.tasks.translation.settings import BEAMS

JSON = "application/json"
MOST_SEEN = 16 * LONGEST**2
"""Numbers of the attention in an answer, by a guess from what is read: each token of a piece, written or read, has one with each
of the other language, and a translation has about as many as its source."""
REHEARSED = 32
"""Tokens of a piece that is translated to learn the pace."""


class Asked(NamedTuple):
    """A piece of a text to translate."""

    tokens: list[int]
    beams: int
    attention: bool


class TextService(Service[Asked, Piece]):
    """Translations of texts. What waits and is computed together are pieces of texts, none of which takes long.

    Args:
        writer: of the translations; used by one thread.
        name: what the model is called.
        limits: what is taken on.
        place: among the workers of the server; alone by default.
    """

    summary, page, items = "Translations of texts, and where the model looked.", "texts", "pieces"
    document = schema.TextModel

    def __init__(self, writer: Writer, name: str, limits: Limits, place: Place | None = None):
        super().__init__(name, limits, place)
        self.writer, self.attends = writer, writer.attends  # asked here, before anything is computed in another thread
        self._translators = {beams: Translator(writer, beams=beams) for beams in range(1, BEAMS + 1)}

    def add_to(self, app: FastAPI) -> None:
        """What texts are in the other language."""

        @app.post(
            "/translate",
            response_model=schema.Translations,
            responses=refusals(403, 408, 413, 415, 422, 429, 500, 501, 503, 504),
            openapi_extra=schema.TEXTS,
            summary="Translate texts",
        )
        async def translate(request: Request) -> Response:
            """The translation of every text, in their order. Either all are translated or, with the reasons, none."""
            with self.admitted():
                return await self.translate(request)

    def described(self) -> dict[str, Any]:
        """The model's languages, and the limits of a request."""
        limits = self.limits
        return {
            "name": self.name,
            "engine": self.writer.engine,
            "languages": dict(zip(("source", "target"), self.writer.languages, strict=True)),
            "attention": self.attends,
            "limits": {
                "body": limits.body,
                "texts": limits.items,
                "characters": limits.characters,
                "beams": BEAMS,
                "deadline": limits.deadline,
            },
        }

    async def translate(self, request: Request) -> Response:
        """The answer to a request."""
        require_json(request.headers)
        with contextlib.ExitStack() as held:
            texts, cut = await self._aside(self._cut, await self._body(request, held, self._queue))
        count = sum(map(len, cut))
        seconds = count * self._queue.pace
        if self._queue.taken and seconds > self.limits.deadline:  # else nothing would be computed that shows a better pace
            what = f"{count:,} pieces would take about {seconds:.0f} seconds, and the deadline is {self.limits.deadline:g}"
            raise ProblemError(413, what, hint="send less text at a time")
        with self._queue.places(count):
            expires = time.monotonic() + self.limits.deadline
            answers = self._queue.answers(list(chain.from_iterable(cut)), expires)
            found = iter(await while_connected(request, answers, expires))
        parts = [[next(found) for _ in pieces] for pieces in cut]
        return await self._aside(_answer, texts, parts)

    def _cut(self, content: bytes) -> tuple[list[str], list[list[Asked]]]:
        """The texts of a request, and the pieces of each.

        Raises:
            ProblemError: the body is no such request, or asks for too much.
        """
        asked = self._asked(content)
        translator = self._translators[asked.beams]
        try:
            cut = [[Asked(tokens, asked.beams, asked.attention) for tokens in translator.cut(text)] for text in asked.text]
        except DataError as error:  # a language that the model has not
            raise ProblemError(422, error.what, hint=error.hint) from None
        pieces = [len(piece.tokens) for piece in chain.from_iterable(cut)]
        if len(pieces) > self.limits.waiting:
            what = (
                f"the texts come to {len(pieces):,} pieces of a sentence or some, and the server has {self.limits.waiting} places"
            )
            raise ProblemError(413, what, hint="send less text at a time")
        if asked.attention and sum(length**2 for length in pieces) > MOST_SEEN:
            raise ProblemError(413, "the attention of so much text is too much", hint="send less text, or leave attention out")
        return asked.text, cut

    def _asked(self, content: bytes) -> ToTranslate:
        try:
            asked = ToTranslate.model_validate_json(content, context=self._require_few)
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            raise mistaken(found, within=("body",), hint=f"send {schema.EXAMPLE}") from None
        if (longest := max(map(len, asked.text))) > self.limits.characters:
            what = f"a text has {longest:,} characters, and {self.limits.characters:,} are translated at a time"
            raise ProblemError(413, what, hint="send it in several texts")
        if asked.attention and not self.attends:
            raise ProblemError(501, "this server cannot tell where the model looks: it has no attention", hint="ask without")
        return asked

    def _require_few(self, texts: Sequence[object]) -> None:
        if len(texts) > self.limits.items:
            what = f"the request has {len(texts):,} texts, and {self.limits.items} are translated at a time"
            raise ProblemError(413, what, hint="send them in several requests")

    def _compute(self, values: list[Asked]) -> Sequence[Piece]:
        """Translations of a batch; those are written together that are searched alike."""
        found: dict[int, Piece] = {}
        for beams, attention in {(value.beams, value.attention) for value in values}:
            places = [place for place, value in enumerate(values) if (value.beams, value.attention) == (beams, attention)]
            pieces = self._translators[beams].write([values[place].tokens for place in places], attention=attention)
            found.update(zip(places, pieces, strict=True))
        return [found[place] for place in range(len(values))]

    def _rehearse(self) -> Callable[[int], object]:
        own = self.writer.preparation
        words = [token for token in range(len(own)) if token not in (own.pad, own.start, own.end)]
        length = min(REHEARSED, self.writer.max_tokens) - 1
        piece = Asked([*islice(cycle(words), length), own.end], BEAMS, False)
        return lambda size: self._compute([piece] * size)


def require_json(headers: Headers) -> None:
    """Refuse a body whose declared type is not JSON."""
    require_plain(headers)
    kind = media_type(headers)
    if kind not in ("", JSON):
        raise ProblemError(415, f"{kind} is no JSON", hint=f"send {schema.EXAMPLE} as {JSON}: curl --json does")


def _answer(texts: Sequence[str], parts: Sequence[Sequence[Piece]]) -> Response:
    """The document of the translations; of many tokens with their attention it takes a while to write."""
    return JSONResponse({"translations": [joined(text, pieces).to_json() for text, pieces in zip(texts, parts, strict=True)]})

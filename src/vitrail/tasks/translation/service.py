"""The server's operation for translation models: translations of texts, with attention."""

from collections.abc import Sequence
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

from vitrail.checks import refuse_given
from vitrail.deploy.server.http.bodies import Json
from vitrail.deploy.server.http.limits import TEXTS, Limits
from vitrail.deploy.server.http.pages import Page
from vitrail.deploy.server.http.problems import ProblemError, unseen
from vitrail.deploy.server.operation import Computed, Operation, Prepared, ServerSettings
from vitrail.tasks.translation import schema
from vitrail.tasks.translation.predictor import LONGEST, Piece, Translator, Writer, joined, writer_of
from vitrail.tasks.translation.settings import BEAMS

MOST_SEEN = 16 * LONGEST**2
"""Most attention weights in a response, estimated from the source: a piece has one for each pair of a source and a target token,
and a translation has about as many tokens as its source."""
REHEARSED = 32
"""Tokens of the piece that is translated at the start to measure the speed."""


class Settings(ServerSettings):
    """Options of a server of translations."""

    limits: Limits = TEXTS
    engine: str = "auto"


def open_served(model: str | Path, settings: Settings) -> "ServedTranslations":
    """Open a translation model for a server."""
    refuse_given("a translator answers as it is, in Python or exported", {"--engine": settings.engine not in ("auto", "torch")})
    return ServedTranslations(writer_of(model), settings.limits)


class Row(NamedTuple):
    """A piece of a text to translate."""

    tokens: list[int]
    beams: int
    attention: bool


class ServedTranslations:
    """A service that translates texts. Texts are cut into short pieces, which are queued and batched.

    Args:
        writer: the translation model; used by one thread only.
        limits: limits of a request.
    """

    summary, items = "Translations of texts, and where the model looked.", "pieces"
    document, tensors = schema.TextModel, None
    page = Page(Path(__file__).parent / "page", "texts", """--json '{"text": "…"}' ADDRESS/translate""", pictures=False)

    def __init__(self, writer: Writer, limits: Limits):
        self.writer, self.limits = writer, limits
        self.attends = writer.attends  # computed here, before another thread uses the model
        self._translators = {beams: Translator(writer, beams=beams) for beams in range(1, BEAMS + 1)}
        self.operations = (
            Operation(
                path="/translate",
                summary="Translate texts",
                description="The translation of every text, in their order. "
                "Either all are translated or, with the reasons, none.",
                body=Json(schema.ToTranslate, schema.EXAMPLE, self._require_few),
                document=schema.Translations,
                understand=self._possible,
                prepare=self._cut,
                rows=None,
                run=self._written,
                answer=self._translations,
                may_lack_attention=True,
            ),
        )

    def described(self) -> dict[str, Any]:
        """Return the model's languages, and the limits of a request."""
        limits = self.limits
        return {
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

    def blank(self) -> Row:
        """Return a piece of arbitrary tokens, for the warm-up."""
        own = self.writer.preparation
        words = [token for token in range(len(own)) if token not in (own.pad, own.start, own.end)]
        length = min(REHEARSED, self.writer.max_tokens) - 1
        return Row([*islice(cycle(words), length), own.end], BEAMS, False)

    def _require_few(self, texts: Sequence[object]) -> None:
        if len(texts) > self.limits.items:
            what = f"the request has {len(texts):,} texts; the limit is {self.limits.items}"
            raise ProblemError(413, what, hint="send them in several requests")

    def _possible(self, fields: schema.ToTranslate) -> schema.ToTranslate:
        if (longest := max(map(len, fields.text))) > self.limits.characters:
            what = f"a text has {longest:,} characters; the limit is {self.limits.characters:,}"
            raise ProblemError(413, what, hint="split it into several texts")
        if fields.attention and not self.attends:
            raise unseen("the model has no attention", hint="leave out attention")
        return fields

    def _cut(self, content: bytes, fields: schema.ToTranslate) -> Prepared[Row]:
        """Return the pieces of all texts, and the number of pieces of each; raises `DataError` for an unknown language."""
        cut = self._translators[fields.beams].cut
        texts = [[Row(tokens, fields.beams, fields.attention) for tokens in cut(text)] for text in fields.text]
        rows = list(chain.from_iterable(texts))
        if len(rows) > self.limits.waiting:
            what = f"the texts have {len(rows):,} pieces of a sentence or some; the server's queue holds {self.limits.waiting}"
            raise ProblemError(413, what, hint="send less text at a time")
        if fields.attention and sum(len(row.tokens) ** 2 for row in rows) > MOST_SEEN:
            what = "the attention for so much text is too large"
            raise ProblemError(413, what, hint="send less text, or leave out attention")
        return Prepared(rows, [len(pieces) for pieces in texts])

    def _written(self, rows: list[Row]) -> list[Piece]:
        """Return the translations of a batch; pieces with the same options are translated together."""
        translations: dict[int, Piece] = {}
        for beams, attention in {(row.beams, row.attention) for row in rows}:
            places = [place for place, row in enumerate(rows) if (row.beams, row.attention) == (beams, attention)]
            pieces = self._translators[beams].write([rows[place].tokens for place in places], attention=attention)
            translations.update(zip(places, pieces, strict=True))
        return [translations[place] for place in range(len(rows))]

    def _translations(self, fields: schema.ToTranslate, documents: list[Computed[Piece]]) -> dict[str, Any]:
        ((_, counts, outputs),) = documents
        left = iter(outputs)
        texts = [joined(text, list(islice(left, count))) for text, count in zip(fields.text, counts, strict=True)]
        return {"translations": [text.to_json() for text in texts]}

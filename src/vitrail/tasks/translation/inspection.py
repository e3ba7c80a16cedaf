"""A check and samples of sentences with their translations."""

from collections.abc import Iterator
from typing import Any, NoReturn

from vitrail.data.checks.found import Found
from vitrail.errors import ConfigError
from vitrail.runtime.observer import Note
from vitrail.tasks.inspection import LANGUAGES, Inspection, InspectionRequest


class PairInspection(Inspection):
    """A check of every pair of sentences, and some of them as text."""

    options = LANGUAGES | {"bad_lines"}

    def check(self, request: InspectionRequest) -> Found:
        from vitrail.tasks.translation.check import check_pairs
        from vitrail.tasks.translation.settings import TranslationSettings

        languages = request.languages
        chosen = TranslationSettings.read_field("bad_lines", request.bad_lines or "stop", where="task")
        return check_pairs(request.data, languages, chosen)

    def sheet(self, run: Any, split: str, count: int, note: Note) -> NoReturn:
        what = "sentences are shown as text, by their languages"
        raise ConfigError(what, where="--source, --target", hint="name both: --source en --target de")

    def texts(self, request: InspectionRequest, split: str, count: int, seed: int, note: Note) -> Iterator[str]:
        from vitrail.data.loading.sampler import some_items
        from vitrail.tasks.translation.pairs import open_pairs

        languages = request.languages
        width = max(map(len, languages))
        opened = open_pairs(request.data, languages)
        opened.tell(note)
        for pair in some_items(opened.split(split), count, seed):
            yield pair.name
            for language, text in zip(languages, (pair.source, pair.target), strict=True):
                yield f"  {language:<{width}}  {text}"


INSPECTION = PairInspection()

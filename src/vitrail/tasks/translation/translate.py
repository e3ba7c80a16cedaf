"""``vitrail.translate``: texts in one language to texts in another."""

from collections.abc import Sequence
from pathlib import Path

from vitrail.tasks.translation.predictor import AnyTranslator, Translator
from vitrail.tasks.translation.settings import BEAMS


def translate(
    model: str | Path | AnyTranslator | Translator, texts: str | Sequence[str], *, beams: int | None = None
) -> str | list[str]:
    """Translate a text, or several.

    >>> translate("runs/en-de", "A man rides a bicycle.")  # doctest: +SKIP
    'Ein Mann fährt Fahrrad.'

    Args:
        model: a run folder, a model folder, an exported model, or a translator that is loaded: opening one takes longer than a
            sentence.
        texts: one, or several; empty ones stay empty.
        beams: translations that are followed side by side; 1 is the fastest. A translator's own by default, else 5.

    Raises:
        VitrailError: with the exit code of the command; see `vitrail.errors`.
    """
    if isinstance(model, Translator):
        translator = model if beams in (None, model.beams) else Translator(model.writer, beams=beams or 0)
    else:
        translator = Translator(model, beams=BEAMS if beams is None else beams)
    found = [done.text for done in translator.translate([texts] if isinstance(texts, str) else texts, scores=False)]
    return found[0] if isinstance(texts, str) else found

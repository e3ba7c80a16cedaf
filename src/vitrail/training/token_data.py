"""The data of a run that learns to write: images or texts, each with the texts that are to be written."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

from vitrail.config.settings import RunSettings
from vitrail.data.text.tokenizer import Tokenizer
from vitrail.data.text.tokens import Tokens, open_tokens
from vitrail.errors import ConfigError
from vitrail.runtime.observer import Note
from vitrail.training.run_data import RunData
from vitrail.training.runs.data_of_model import own_run
from vitrail.training.runs.run_folder import RunFolder


class TokenData(RunData):
    """Data whose targets are texts, with the tokens that these are cut into."""

    noun: ClassVar[str]
    """Word for a model to start from."""
    example: ClassVar[str]
    """Hint for an evaluation without data."""

    def tokens(self, settings: RunSettings, run: RunFolder | None, start: Tokens | None, texts: Iterable[str]) -> Tokens:
        """Return the tokens of a run: its own, else those of the model to start from, else tokens learned from texts."""
        if run or start is not None:
            return open_tokens(run.path) if run else start  # type: ignore[return-value]
        task: Any = settings.task
        return Tokenizer.learned(texts, task.vocabulary, task.normalization)

    def files(self, source: Any) -> dict[str, bytes]:
        files: dict[str, bytes] = source.tokenizer.files()
        return files

    def continue_from(self, model: Any, start: Any) -> None:
        """Load the weights of a model of the same kind; raises `ConfigError` for another kind."""
        if faults := model.differences(start.config, model.config, keep_head=True):
            what = f"the {self.noun} to start from is of another kind: {', '.join(faults)}"
            raise ConfigError(what, where="--from", hint="leave these settings as they are in it")
        model.load_state_dict(start.model.state_dict())

    def of_run(self, run: RunFolder) -> Any:
        """Open the data of a run, without the items that it left out."""
        return self.used(self.open_source(run.settings, run=run), run.bad_images, run.settings)

    def to_evaluate(
        self, reference: object, data: str | Path | None, split: str | None, note: Note, open_other: Callable[[str], Any]
    ) -> tuple[Any, str, RunFolder | None, bool]:
        """Return the data that a MODEL is evaluated on, the split, the run if it is one, and whether the data is the run's own.

        ``data`` is None for that of the run, ``split`` for the usual one; ``open_other`` opens any other data.

        Raises:
            ConfigError: no data is named, and the MODEL is no run.
        """
        run, own = own_run(reference, data)
        if data is None and run is None:
            raise ConfigError("no data given", where="--data", hint=self.example)
        source = self.of_run(run) if run and own else open_other(str(data))
        source.tell(note)
        return source, split or (source.evaluation_split if own or source.has_splits else "all"), run, own

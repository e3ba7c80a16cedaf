"""Data of runs that learn to write texts: images or texts, each with target texts."""

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
    """Data whose targets are texts, with their tokenizer."""

    noun: ClassVar[str]
    """Name of the kind of model, for messages: for example "captioner"."""
    example: ClassVar[str]
    """Hint of the error for an evaluation without data."""

    def tokens(self, settings: RunSettings, run: RunFolder | None, start: Tokens | None, texts: Iterable[str]) -> Tokens:
        """Return the tokenizer of a run: its own, else that of the model to start from, else one learned from ``texts``."""
        if run or start is not None:
            return open_tokens(run.path) if run else start  # type: ignore[return-value]
        task: Any = settings.task
        return Tokenizer.learned(texts, task.vocabulary, task.normalization)

    def files(self, source: Any) -> dict[str, bytes]:
        files: dict[str, bytes] = source.tokenizer.files()
        return files

    def continue_from(self, model: Any, start: Any) -> None:
        """Load the weights of a model of the same kind; raises `ConfigError` if the configurations differ."""
        if faults := model.differences(start.config, model.config, keep_head=True):
            what = f"the {self.noun} to start from differs: {', '.join(faults)}"
            raise ConfigError(what, where="--from", hint="use that model's values for these settings")
        model.load_state_dict(start.model.state_dict())

    def of_run(self, run: RunFolder) -> Any:
        """Open the data of a run, without skipped items."""
        return self.used(self.open_source(run.settings, run=run), run.bad_images, run.settings)

    def to_evaluate(
        self, reference: object, data: str | Path | None, split: str | None, note: Note, open_other: Callable[[str], Any]
    ) -> tuple[Any, str, RunFolder | None, bool]:
        """Return the data to evaluate a MODEL on, the split, the MODEL's run or None, and whether the data is that run's.

        ``data`` is None for the run's data, ``split`` None for the default; ``open_other`` opens data that is not the run's.

        Raises:
            ConfigError: no data is given, and the MODEL is not a run.
        """
        run, own = own_run(reference, data)
        if data is None and run is None:
            raise ConfigError("no data given", where="--data", hint=self.example)
        source = self.of_run(run) if run and own else open_other(str(data))
        source.tell(note)
        return source, split or (source.evaluation_split if own or source.has_splits else "all"), run, own

"""A translator for CTranslate2: its files, and the engine that runs them."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field

from vitrail.data.text.tokens import open_tokens
from vitrail.deploy.export.artefact import ExportPrecision
from vitrail.deploy.problems import explained, first_line
from vitrail.errors import ConfigError, ModelFileError
from vitrail.files import path_of, read_text, write_bytes, write_json
from vitrail.models.text.search import Written, normalized
from vitrail.models.text.text_model import Aligned
from vitrail.settings import Settings
from vitrail.tasks.translation.weights import TrainedTranslator, longest
from vitrail.weights.formats.checksums import verified
from vitrail.weights.formats.safe_files import DESCRIBING, read_json, require_regular_files
from vitrail.weights.layouts.ctranslate2 import CTRANSLATE2, variables
from vitrail.weights.locate import EXPORTED as ABOUT

MODEL, WORDS = "model.bin", "shared_vocabulary.json"
"""CTranslate2's own files of weights and of tokens."""
TYPES: dict[ExportPrecision, str] = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "int8": "int8"}
"""CTranslate2's names of precisions; a processor computes in fp32 what it has no products for."""
BATCH = 4096
"""Tokens that are translated side by side."""
HINT = "export the model again: vitrail export MODEL --to ctranslate2 --out FOLDER"


class Description(Settings):
    """Facts of a translator that CTranslate2's files do not hold."""

    name: str
    languages: tuple[str, str]
    """The one that is read, the one that is written."""
    precision: ExportPrecision
    """Precision of the weights."""
    max_tokens: Annotated[int, Field(ge=2, le=1 << 24)]
    """Tokens of the longest text, read or written."""


def ctranslate2() -> Any:
    """Import the library; raises `ConfigError` where it is not installed."""
    try:
        import ctranslate2
    except ImportError:
        hint = 'pip install "vitrail[ctranslate2]"'
        raise ConfigError("ctranslate2 is not installed", where="ctranslate2", hint=hint) from None
    return ctranslate2


def write_model(trained: TrainedTranslator, about: Description, folder: Path) -> None:
    """Write a translator as CTranslate2 reads it, with its tokens and its description; raises `ConfigError` or `ExportError`."""
    c: Any = trained.config
    tensors, library, tokens = variables(trained.model), ctranslate2(), trained.preparation
    activation = getattr(library.specs.common_spec.Activation, CTRANSLATE2.activations[c.activation])
    with explained("CTranslate2 cannot write the model"):
        depths, pre_norm = (c.depth, c.decoder_depth), c.norm == "pre"
        spec = library.specs.TransformerSpec.from_config(depths, c.heads, pre_norm=pre_norm, activation=activation)
        spec.encoder.scale_embeddings = spec.decoder.scale_embeddings = c.scale_embedding
        for name, tensor in tensors.items():
            scope, _, kind = name.rpartition("/")
            values = tensor.float().cpu().clone().numpy()  # quantised in place
            setattr(library.specs.model_spec.index_spec(spec, scope), kind, values)
        spec.register_source_vocabulary(tokens.names)
        spec.register_target_vocabulary(tokens.names)
        mark, start, end = (tokens.names[number] for number in (c.pad, c.start, c.end))
        marks = {"unk_token": mark, "bos_token": start, "decoder_start_token": start, "eos_token": end}
        for key, value in {**marks, "layer_norm_epsilon": c.norm_eps}.items():
            setattr(spec.config, key, value)
        spec.validate()
        spec.optimize(quantization=TYPES[about.precision])
        spec.save(str(folder))
    for name, content in tokens.files().items():
        write_bytes(folder / name, content)
    write_json(folder / ABOUT, about.model_dump(mode="json"))


class ExportedTranslator:
    """A translator in CTranslate2, on the processor, with as many ``threads`` as torch has by default.

    Its probabilities are shared among the tokens that may be written alone, so they are slightly greater than the model's own.
    Raises `ModelFileError` for a missing or damaged file.
    """

    task, attends = "translate", False

    def __init__(self, folder: str | Path, threads: int | None = None):
        self._folder = path = path_of(folder)
        require_regular_files(path)
        with verified(path, (*DESCRIBING, ABOUT, MODEL, WORDS)):
            self._open(path, threads)

    def _open(self, path: Path, threads: int | None) -> None:
        try:
            self.about = Description.read(read_json(path / ABOUT))
        except ConfigError as error:
            raise ModelFileError(f"{ABOUT} is damaged: {error.what}", where=path / ABOUT, hint=HINT) from None
        self.engine = f"ctranslate2 {self.about.precision}"
        self.languages, self.max_tokens = self.about.languages, self.about.max_tokens
        self.preparation = open_tokens(path)
        self._names = self.preparation.names
        self._numbers = {name: number for number, name in enumerate(self._names)}
        _require_tokens(path / WORDS, self._names)
        translator = ctranslate2().Translator
        try:
            self._engine = translator(str(path), intra_threads=threads or torch.get_num_threads())
        except Exception as error:  # the library raises plain ones
            what = f"CTranslate2 cannot open the model: {first_line(error)}"
            raise ModelFileError(what, where=path / MODEL, hint=HINT) from None

    def most(self, beams: int) -> int:
        """Return the tokens, filling included, that are read side by side."""
        return BATCH

    def write(self, sources: Sequence[list[int]], beams: int, *, scores: bool = True) -> list[Written]:
        """Return the translation of each source, which has its end; without ``scores`` these may be 0.

        Of as many finished texts as beams the best by equation (14) of Wu et al. is taken, as `beam_search` does; it may go on
        where this search ends.
        """
        limits = [longest(len(source), self.max_tokens) for source in sources]
        results = self._run(
            self._engine.translate_batch,
            [self._words(source) for source in sources],
            beam_size=beams,
            num_hypotheses=beams,
            length_penalty=0,
            min_decoding_length=0,
            max_decoding_length=max(limits),
            max_input_length=self.max_tokens,
            return_end_token=True,
            return_scores=scores or beams > 1,
        )
        return [self._best(result, limit) for result, limit in zip(results, limits, strict=True)]

    def _best(self, result: Any, limit: int) -> Written:
        """Return the best hypothesis of a source; one that is longer than allowed is cut, and has the score of the whole."""
        end = self._names[self.preparation.end]
        texts = []
        for words, score in zip(result.hypotheses, result.scores or [0.0], strict=True):
            finished = len(words) <= limit and words[-1:] == [end]
            tokens = [self._numbers[word] for word in words[:limit] if word != end]
            texts.append(Written(tokens, score, normalized(score, len(tokens) + 1), finished))
        return max(texts, key=lambda text: text.normalized)

    def log_probabilities(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[list[float]]:
        """Return the log-probability of each target token, the ends included, after the source and the tokens before."""
        words = [self._words(tokens) for tokens in sources], [self._words(tokens[:-1]) for tokens in targets]
        results = self._run(self._engine.score_batch, *words, max_input_length=self.max_tokens)
        return [list(result.log_probs) for result in results]

    def alignment(self, source: list[int], target: list[int]) -> Aligned | None:
        """Raise `ConfigError`: the engine gives no attention."""
        raise ConfigError("an exported translator does not tell where it looked", where="--attention", hint="ask the run")

    def _run(self, call: Callable[..., Any], *words: Any, **options: Any) -> Any:
        """Return the engine's result; it reads some of its files no earlier than this."""
        try:
            return call(*words, **options)
        except Exception as error:  # the library raises plain ones
            what = f"CTranslate2 cannot run the model: {first_line(error)}"
            raise ModelFileError(what, where=self._folder, hint=HINT) from error

    def _words(self, tokens: Sequence[int]) -> list[str]:
        return [self._names[token] for token in tokens]


def _require_tokens(file: Path, names: list[str]) -> None:
    """Raise `ModelFileError` where CTranslate2's tokens are not the tokenizer's."""
    try:
        same = json.loads(read_text(file)) == names
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{file.name} cannot be read: {error}", where=file, hint=HINT) from None
    if not same:
        raise ModelFileError(f"{file.name} has other tokens than the tokenizer beside it", where=file, hint=HINT)

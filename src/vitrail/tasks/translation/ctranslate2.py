"""Exported translation models for CTranslate2: writing their files, and running them."""

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
"""CTranslate2's files for weights and tokens."""
TYPES: dict[ExportPrecision, str] = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "int8": "int8"}
"""CTranslate2's names of precisions. A CPU that does not support a precision computes in fp32."""
BATCH = 4096
"""Tokens in a batch."""
HINT = "export the model again: vitrail export MODEL --to ctranslate2 --out FOLDER"


class Description(Settings):
    """Metadata of an exported translation model that CTranslate2's files do not hold."""

    name: str
    languages: tuple[str, str]
    """Source and target language."""
    precision: ExportPrecision
    """Precision of the weights."""
    max_tokens: Annotated[int, Field(ge=2, le=1 << 24)]
    """Most tokens of a source or a translation."""


def ctranslate2() -> Any:
    """Import the library; raises `ConfigError` if it is not installed."""
    try:
        import ctranslate2
    except ImportError:
        hint = 'pip install "vitrail[ctranslate2]"'
        raise ConfigError("ctranslate2 is not installed", where="ctranslate2", hint=hint) from None
    return ctranslate2


def write_model(trained: TrainedTranslator, about: Description, folder: Path) -> None:
    """Write a translation model in CTranslate2's format, with its tokens and description.

    Raises:
        ConfigError: CTranslate2 does not support the model, or is not installed.
        ExportError: CTranslate2 cannot write the model.
    """
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
    """A translation model in CTranslate2, on the CPU; ``threads`` is torch's number by default.

    Its probabilities are normalised over the tokens that may be written, so they are slightly greater than the PyTorch model's.
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
        except Exception as error:  # the library raises RuntimeError and others
            what = f"CTranslate2 cannot open the model: {first_line(error)}"
            raise ModelFileError(what, where=path / MODEL, hint=HINT) from None

    def most(self, beams: int) -> int:
        """Return the most source tokens in a batch, with padding."""
        return BATCH

    def write(self, sources: Sequence[list[int]], beams: int, *, scores: bool = True) -> list[Written]:
        """Return the translation of each source, which ends with the end token; without ``scores`` the scores may be 0.

        The best of ``beams`` finished texts by equation (14) of Wu et al. is returned, as by `beam_search`. `beam_search` may
        search longer than CTranslate2.
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
        """Return the best hypothesis for a source. One longer than ``limit`` is cut, but keeps the score of the whole text."""
        end = self._names[self.preparation.end]
        texts = []
        for words, score in zip(result.hypotheses, result.scores or [0.0], strict=True):
            finished = len(words) <= limit and words[-1:] == [end]
            tokens = [self._numbers[word] for word in words[:limit] if word != end]
            texts.append(Written(tokens, score, normalized(score, len(tokens) + 1), finished))
        return max(texts, key=lambda text: text.normalized)

    def log_probabilities(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[list[float]]:
        """Return the log-probability of each target token (with the end token), given the source and the tokens before it."""
        words = [self._words(tokens) for tokens in sources], [self._words(tokens[:-1]) for tokens in targets]
        results = self._run(self._engine.score_batch, *words, max_input_length=self.max_tokens)
        return [list(result.log_probs) for result in results]

    def alignment(self, source: list[int], target: list[int]) -> Aligned | None:
        """Raise `ConfigError`: the engine returns no attention."""
        hint = "give the run instead of the export"
        raise ConfigError("an exported translation model returns no attention", where="--attention", hint=hint)

    def _run(self, call: Callable[..., Any], *words: Any, **options: Any) -> Any:
        """Call the engine, and turn its errors into `ModelFileError`: it reads some files only now."""
        try:
            return call(*words, **options)
        except Exception as error:  # the library raises RuntimeError and others
            what = f"CTranslate2 cannot run the model: {first_line(error)}"
            raise ModelFileError(what, where=self._folder, hint=HINT) from error

    def _words(self, tokens: Sequence[int]) -> list[str]:
        return [self._names[token] for token in tokens]


def _require_tokens(file: Path, names: list[str]) -> None:
    """Raise `ModelFileError` if CTranslate2's tokens differ from the tokenizer's."""
    try:
        same = json.loads(read_text(file)) == names
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{file.name} cannot be read: {error}", where=file, hint=HINT) from None
    if not same:
        raise ModelFileError(f"{file.name} has other tokens than the tokenizer beside it", where=file, hint=HINT)

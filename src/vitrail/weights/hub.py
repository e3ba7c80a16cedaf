"""Models from the Hugging Face hub, and to it: the extra ``hf``.

Only `fetch` and `push` make connections. Address, cache, token and offline mode are as in huggingface_hub: ``HF_ENDPOINT``,
``HF_HOME``, ``HF_TOKEN``, ``HF_HUB_OFFLINE``.
"""

import glob
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vitrail.data.text.pieces import FILES
from vitrail.errors import ConfigError, ModelFileError, VitrailError
from vitrail.models.registry import NAMES
from vitrail.weights.formats.checksums import SUMS, model_sums, verified
from vitrail.weights.formats.pipeline import DENOISER, MODEL_INDEX, PIPELINE_FILES, denoiser_in
from vitrail.weights.formats.safe_files import (
    CARD,
    CONFIG,
    GENERATION,
    OPEN_CLIP_CONFIG,
    PICKLES,
    PREPROCESSOR,
    PROCESSOR,
    SHARD,
    TOKENIZER,
    WEIGHTS,
    parts_of,
    some,
)
from vitrail.weights.published import PUBLISHED

USUAL = "model.safetensors"
TOKENS = (TOKENIZER, *FILES)
"""Files of the tokens of a model of texts: the first, or the others together."""
MODEL_FILES = (
    *(CONFIG, GENERATION, PREPROCESSOR, PROCESSOR, *TOKENS, CARD, "*.safetensors"),
    *("adapter/adapter_config.json", "adapter/*.safetensors", SUMS, f"adapter/{SUMS}"),
)
"""Files of a model folder that are uploaded."""

_NAME = r"\w(?:[\w.-]{0,94}\w)?"
OF_THE_MODEL = (400, 401, 403, 404, 410, 451)
"""Status codes for a model that is not there, or not for everybody; after any other the cache is used."""
_REFERENCE = re.compile(rf"(?P<repository>{_NAME}/{_NAME})(?:@(?P<revision>{_NAME}))?", re.ASCII)
_FAMILIES = {name.partition("-")[0] for name in (*NAMES, *PUBLISHED) if "/" in name}
_ARCHITECTURE = re.compile(rf"({'|'.join(map(re.escape, sorted(_FAMILIES)))})(?:-\w+)+/[0-9]+", re.IGNORECASE)


def is_hub_id(reference: str) -> bool:
    """Return whether a text can be ``org/name`` or ``org/name@revision`` of the hub; no connection is made.

    The name of an architecture or a published model is none (``ViT-B/16``, also misspelt), nor is a path to a file of weights,
    so that neither is looked for elsewhere by mistake.
    """
    match = _REFERENCE.fullmatch(reference)
    if match is None or ".." in reference or "--" in match["repository"] or match["repository"].endswith(".git"):
        return False
    name = match["repository"]
    return not (name.lower().endswith((*WEIGHTS, *PICKLES)) or _ARCHITECTURE.fullmatch(name))


def fetch(reference: str) -> Path:
    """Download a model into huggingface_hub's cache, where it is not there yet; the folder it is in.

    Only the configuration, the preparation, the card and the weights (.safetensors or .npz) are asked for, never a
    pickle. Where the hub does not answer, what is in the cache is taken.

    Args:
        reference: ``org/name`` or ``org/name@revision``: a branch, a tag or a commit.

    Raises:
        ModelFileError: no such repository or revision, no access to it, no weights that can be read, no network.
        ConfigError: the extra is not installed.
    """
    match = _REFERENCE.fullmatch(reference)
    if match is None or not is_hub_id(reference):
        raise ModelFileError(f"{reference!r} is no id of the hub", where="MODEL", hint="give org/name or org/name@revision")
    repository, revision = match["repository"], match["revision"]
    hub = _library()
    with _failures(f"cannot fetch {reference}", reference, ModelFileError):
        try:
            found = hub.HfApi().model_info(repository, revision=revision).siblings
        except Exception as error:  # the library raises many kinds; its base for answers has their status
            if _status(error) in OF_THE_MODEL or (folder := cached(repository, revision)) is None:
                raise
            return folder
        files = _files_of_a_model([file.rfilename for file in found or ()], repository, reference)
        patterns = [glob.escape(name) for name in files]
        return Path(hub.snapshot_download(repository, revision=revision, allow_patterns=patterns))


def cached(repository: str, revision: str | None = None) -> Path | None:
    """Return the folder of huggingface_hub's cache that an earlier `fetch` filled, found without a connection; None without one.

    Raises:
        ConfigError: the extra is not installed.
    """
    hub = _library()
    complete = [CONFIG, OPEN_CLIP_CONFIG, PREPROCESSOR, PROCESSOR, *TOKENS, USUAL, *PIPELINE_FILES]  # of those that are there
    try:
        folder = Path(hub.snapshot_download(repository, revision=revision, allow_patterns=complete, local_files_only=True))
    except hub.errors.LocalEntryNotFoundError:
        return None
    return folder if _is_whole(_weights(file.name for file in denoiser_in(folder).glob("*"))) else None


def push(
    folder: Path,
    repo_id: str,
    *,
    private: bool = False,
    revision: str | None = None,
    message: str = "Add a model made with Vitrail",
) -> str:
    """Upload a model folder in one commit; what else is in the folder stays at home, what else is in the repository stays there.

    Args:
        folder: of a model.
        repo_id: ``org/name``; the repository is made where there is none.
        private: whether a new repository can be seen by its owners alone.
        revision: the branch to commit to, made where there is none; the main one by default.
        message: of the commit.

    Returns:
        The commit's address.

    Raises:
        ModelFileError: the folder is no model's.
        ConfigError: no id of a repository, nobody is logged in, private where the repository is public already, or the extra
            is not installed.
        VitrailError: the hub does not answer, or refuses.
    """
    match = _REFERENCE.fullmatch(repo_id)
    if match is None or match["revision"] or not is_hub_id(repo_id):
        raise ConfigError(f"{repo_id!r} is no id of a repository", where="the hub", hint="give org/name")
    files = _own_files(folder)
    with verified(folder, files):
        hub = _library()
    with _failures(f"cannot upload to {repo_id}", repo_id, VitrailError):
        if hub.get_token() is None:
            raise ConfigError(
                "the hub takes models only from who is logged in", where=repo_id, hint="run hf auth login, or set HF_TOKEN"
            )
        api = hub.HfApi()
        api.create_repo(repo_id, private=private, exist_ok=True)
        if private and not api.model_info(repo_id).private:
            raise ConfigError(
                "the repository exists and is public", where=repo_id, hint="make it private on its page, or give another name"
            )
        if revision is not None:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        additions = [hub.CommitOperationAdd(path_in_repo=name, path_or_fileobj=str(folder / name)) for name in files]
        if SUMS not in files:  # or the sums of an earlier upload would stay there
            additions.append(hub.CommitOperationAdd(path_in_repo=SUMS, path_or_fileobj=model_sums(folder, files).encode()))
        return str(api.create_commit(repo_id, additions, commit_message=message, revision=revision).commit_url)


def push_saved(save: Callable[[Path], None], repo_id: str, **options: Any) -> str:
    """Upload what ``save`` writes into a folder; see `push`."""
    with TemporaryDirectory() as draft:
        save(Path(draft, "model"))
        return push(Path(draft, "model"), repo_id, **options)


def _library() -> Any:
    """Return huggingface_hub, with its progress display on a terminal alone."""
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"  # the library and what it transfers files with would report how they were used
    try:
        import huggingface_hub
        import huggingface_hub.errors
        import huggingface_hub.utils
    except ImportError:
        raise ConfigError("models of the hub need an extra", where="the hub", hint="pip install 'vitrail[hf]'") from None
    hub: Any = huggingface_hub
    if not sys.stderr.isatty():
        hub.utils.disable_progress_bars()
    return hub


def _weights(names: Iterable[str]) -> list[str]:
    """Return the files of weights: the usual one alone where it is there, and parts only where there is no other."""
    names = list(names)
    if USUAL in names:
        return [USUAL]
    found = sorted(name for name in names if "/" not in name and name.lower().endswith(WEIGHTS))
    return [name for name in found if not SHARD.fullmatch(name)] or found


def _is_whole(weights: list[str]) -> bool:
    return bool(weights) and sorted(parts_of(weights[0])) == weights


def _files_of_a_model(names: list[str], repository: str, reference: str) -> list[str]:
    """Return the files to download of all that a repository has; raises `ModelFileError` where they make no model."""
    inner = f"{DENOISER}/" if MODEL_INDEX in names else ""
    own = [name.removeprefix(inner) for name in names if name.startswith(inner)]
    weights = _weights(own)
    if _is_whole(weights):
        tokens = TOKENS if FILES[0] in names else (TOKENIZER,)
        described = (CONFIG, OPEN_CLIP_CONFIG, PREPROCESSOR, PROCESSOR, *tokens, CARD, SUMS, *(PIPELINE_FILES if inner else ()))
        return [*(name for name in described if name in names), *(inner + name for name in weights)]
    pickles = sorted(name for name in own if "/" not in name and name.lower().endswith(PICKLES))
    download = f"hf download {repository}"
    if weights:
        what = f"several files of weights: {some(weights)}"
        hint = f"{download} {weights[0]} {CONFIG} --local-dir FOLDER, and give FOLDER/{weights[0]}"
    elif pickles:
        what = f"no weights but pickles, which can run code when loaded and were not downloaded: {some(pickles)}"
        files = " ".join(parts_of(pickles[0]))
        hint = f"if you trust it: {download} {files} --local-dir FOLDER, then vitrail convert FILE OUT --trust-pickle"
        if inner:
            hint = f"if you trust it: {download} --local-dir FOLDER, then vitrail convert FOLDER OUT --trust-pickle"
    else:
        what = f"no weights: {some(sorted(names)) or 'the repository is empty'}"
        hint = f"take a repository with {USUAL}"
    raise ModelFileError(what, where=reference, hint=hint)


def _own_files(folder: Path) -> list[str]:
    if not all((folder / name).is_file() for name in (CONFIG, USUAL)):
        raise ModelFileError("no model folder", where=folder, hint=f"give a folder with {CONFIG} and {USUAL}")
    found = {file for pattern in MODEL_FILES for file in folder.glob(pattern) if file.is_file() and file.name[0] != "."}
    return sorted(file.relative_to(folder).as_posix() for file in found)


@contextmanager
def _failures(what: str, where: str, kind: type[VitrailError]) -> Iterator[None]:
    try:
        yield
    except VitrailError:
        raise
    except Exception as error:  # the library raises many kinds, for the answers of the hub, the network and the files
        reason, hint = _explain(error)
        raise kind(f"{what}: {reason}", where=where, hint=hint) from error


def _explain(error: Exception) -> tuple[str, str]:
    errors = _library().errors
    if isinstance(error, errors.LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__  # a file is not in the cache because of this
    status = _status(error)
    log_in = "run hf auth login, or set HF_TOKEN"
    if isinstance(error, errors.RevisionNotFoundError):
        return "the repository has no such revision", "give one of its branches, tags or commits after the @"
    if isinstance(error, errors.GatedRepoError):
        return "its owner decides who may have it", f"ask for access on its page of the hub; then {log_in}"
    if isinstance(error, errors.RepositoryNotFoundError):
        hint = "check the name, or the path if a folder is meant"
        if status == 401:
            return "the hub has no public repository of this name", f"{hint}; for a private one {log_in}"
        return "the hub has no repository of this name that your token may see", hint
    if status == 401:
        return "the hub does not know the token", f"{log_in} to a valid one"
    if status == 403:
        return "the token does not allow it", f"{log_in} to one with access to the repository"
    if isinstance(error, errors.OfflineModeIsEnabled):
        return "it is not in the cache, and HF_HUB_OFFLINE forbids connections", "unset HF_HUB_OFFLINE once"
    reason = str(error).strip().partition("\n")[0] or type(error).__name__
    if status is not None:
        return f"the hub answers {status}: {reason}", "try again later"
    return f"{reason} ({type(error).__name__})", "check the network, HF_ENDPOINT and the space on the disk"


def _status(error: Exception) -> int | None:
    return getattr(getattr(error, "response", None), "status_code", None)

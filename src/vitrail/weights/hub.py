"""Download from and upload to the Hugging Face hub; needs the extra ``hf``.

Only `fetch` and `push` make connections. Address, cache, token and offline mode are huggingface_hub's: ``HF_ENDPOINT``,
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
"""Token files of a model that reads or writes text: either the first, or all the others together."""
MODEL_FILES = (
    *(CONFIG, GENERATION, PREPROCESSOR, PROCESSOR, *TOKENS, CARD, "*.safetensors"),
    *("adapter/adapter_config.json", "adapter/*.safetensors", SUMS, f"adapter/{SUMS}"),
)
"""Files of a model folder that are uploaded."""

_NAME = r"\w(?:[\w.-]{0,94}\w)?"
OF_THE_MODEL = (400, 401, 403, 404, 410, 451)
"""HTTP status codes for a model that does not exist or is not accessible; after any other code the cache is used."""
_REFERENCE = re.compile(rf"(?P<repository>{_NAME}/{_NAME})(?:@(?P<revision>{_NAME}))?", re.ASCII)
_FAMILIES = {name.partition("-")[0] for name in (*NAMES, *PUBLISHED) if "/" in name}
_ARCHITECTURE = re.compile(rf"({'|'.join(map(re.escape, sorted(_FAMILIES)))})(?:-\w+)+/[0-9]+", re.IGNORECASE)


def is_hub_id(reference: str) -> bool:
    """Return whether a text can be a hub id, ``org/name`` or ``org/name@revision``; makes no connection.

    Names of architectures and published models (``ViT-B/16``, even misspelt) and paths of weights files are not hub ids, so
    that they are never searched on the hub by mistake.
    """
    match = _REFERENCE.fullmatch(reference)
    if match is None or ".." in reference or "--" in match["repository"] or match["repository"].endswith(".git"):
        return False
    name = match["repository"]
    return not (name.lower().endswith((*WEIGHTS, *PICKLES)) or _ARCHITECTURE.fullmatch(name))


def fetch(reference: str) -> Path:
    """Download a model into huggingface_hub's cache if it is not there yet, and return its folder.

    Only the configuration, the preparation, the card and the weights (.safetensors or .npz) are downloaded, never a
    pickle. If the hub cannot be reached, the cached files are used.

    Args:
        reference: ``org/name`` or ``org/name@revision``: a branch, a tag or a commit.

    Raises:
        ModelFileError: the repository or revision does not exist or is not accessible, has no readable weights, or there is
            no network.
        ConfigError: the extra ``hf`` is not installed.
    """
    match = _REFERENCE.fullmatch(reference)
    if match is None or not is_hub_id(reference):
        raise ModelFileError(f"{reference!r} is not a hub id", where="MODEL", hint="give org/name or org/name@revision")
    repository, revision = match["repository"], match["revision"]
    hub = _library()
    with _failures(f"cannot fetch {reference}", reference, ModelFileError):
        try:
            found = hub.HfApi().model_info(repository, revision=revision).siblings
        except Exception as error:  # huggingface_hub raises many kinds; those for HTTP responses have a status code
            if _status(error) in OF_THE_MODEL or (folder := cached(repository, revision)) is None:
                raise
            return folder
        files = _files_of_a_model([file.rfilename for file in found or ()], repository, reference)
        patterns = [glob.escape(name) for name in files]
        return Path(hub.snapshot_download(repository, revision=revision, allow_patterns=patterns))


def cached(repository: str, revision: str | None = None) -> Path | None:
    """Return the cache folder of a model that an earlier `fetch` downloaded, else None; makes no connection.

    Raises:
        ConfigError: the extra ``hf`` is not installed.
    """
    hub = _library()
    # files that the repository lacks are skipped
    complete = [CONFIG, OPEN_CLIP_CONFIG, PREPROCESSOR, PROCESSOR, *TOKENS, USUAL, *PIPELINE_FILES]
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
    """Upload a model folder in one commit. Other files in the folder are not uploaded; other files in the repository stay.

    Args:
        folder: the model folder.
        repo_id: ``org/name``; the repository is created if it does not exist.
        private: whether a new repository is visible to its owners only.
        revision: the branch to commit to, created if it does not exist; the main branch by default.
        message: the commit message.

    Returns:
        The web address of the commit.

    Raises:
        ModelFileError: the folder is not a model folder.
        ConfigError: ``repo_id`` is no id of a repository, nobody is logged in, ``private`` is requested for a public
            repository, or the extra ``hf`` is not installed.
        VitrailError: the hub cannot be reached, or refuses the upload.
    """
    match = _REFERENCE.fullmatch(repo_id)
    if match is None or match["revision"] or not is_hub_id(repo_id):
        raise ConfigError(f"{repo_id!r} is not the id of a repository", where="the hub", hint="give org/name")
    files = _own_files(folder)
    with verified(folder, files):
        hub = _library()
    with _failures(f"cannot upload to {repo_id}", repo_id, VitrailError):
        if hub.get_token() is None:
            raise ConfigError("you are not logged in to the hub", where=repo_id, hint="run hf auth login, or set HF_TOKEN")
        api = hub.HfApi()
        api.create_repo(repo_id, private=private, exist_ok=True)
        if private and not api.model_info(repo_id).private:
            raise ConfigError(
                "the repository exists and is public", where=repo_id, hint="make it private on its page, or use another name"
            )
        if revision is not None:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        additions = [hub.CommitOperationAdd(path_in_repo=name, path_or_fileobj=str(folder / name)) for name in files]
        if SUMS not in files:  # otherwise the sums of an earlier upload would stay in the repository
            additions.append(hub.CommitOperationAdd(path_in_repo=SUMS, path_or_fileobj=model_sums(folder, files).encode()))
        return str(api.create_commit(repo_id, additions, commit_message=message, revision=revision).commit_url)


def push_saved(save: Callable[[Path], None], repo_id: str, **options: Any) -> str:
    """Call ``save`` with the path of a temporary folder to write, and upload this folder; see `push`."""
    with TemporaryDirectory() as draft:
        save(Path(draft, "model"))
        return push(Path(draft, "model"), repo_id, **options)


def _library() -> Any:
    """Import huggingface_hub; its progress bars are disabled unless stderr is a terminal."""
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"  # huggingface_hub and its transfer library would report their use
    try:
        import huggingface_hub
        import huggingface_hub.errors
        import huggingface_hub.utils
    except ImportError:
        raise ConfigError("huggingface_hub is not installed", where="the hub", hint="pip install 'vitrail[hf]'") from None
    hub: Any = huggingface_hub
    if not sys.stderr.isatty():
        hub.utils.disable_progress_bars()
    return hub


def _weights(names: Iterable[str]) -> list[str]:
    """Return the weights files among ``names``: `USUAL` if there is one, otherwise whole files, otherwise parts of one."""
    names = list(names)
    if USUAL in names:
        return [USUAL]
    found = sorted(name for name in names if "/" not in name and name.lower().endswith(WEIGHTS))
    return [name for name in found if not SHARD.fullmatch(name)] or found


def _is_whole(weights: list[str]) -> bool:
    return bool(weights) and sorted(parts_of(weights[0])) == weights


def _files_of_a_model(names: list[str], repository: str, reference: str) -> list[str]:
    """Return which of a repository's files to download; raises `ModelFileError` if they are not one model."""
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
        what = f"the repository has several weights files: {some(weights)}"
        hint = f"{download} {weights[0]} {CONFIG} --local-dir FOLDER, and give FOLDER/{weights[0]}"
    elif pickles:
        what = f"all weights are pickles, which can run code when loaded and were not downloaded: {some(pickles)}"
        files = " ".join(parts_of(pickles[0]))
        hint = f"if you trust it: {download} {files} --local-dir FOLDER, then vitrail convert FILE OUT --trust-pickle"
        if inner:
            hint = f"if you trust it: {download} --local-dir FOLDER, then vitrail convert FOLDER OUT --trust-pickle"
    else:
        what = f"no weights: {some(sorted(names)) or 'the repository is empty'}"
        hint = f"use a repository with {USUAL}"
    raise ModelFileError(what, where=reference, hint=hint)


def _own_files(folder: Path) -> list[str]:
    if not all((folder / name).is_file() for name in (CONFIG, USUAL)):
        raise ModelFileError("not a model folder", where=folder, hint=f"give a folder with {CONFIG} and {USUAL}")
    found = {file for pattern in MODEL_FILES for file in folder.glob(pattern) if file.is_file() and file.name[0] != "."}
    return sorted(file.relative_to(folder).as_posix() for file in found)


@contextmanager
def _failures(what: str, where: str, kind: type[VitrailError]) -> Iterator[None]:
    try:
        yield
    except VitrailError:
        raise
    except Exception as error:  # huggingface_hub raises many kinds, for responses of the hub, the network and files
        reason, hint = _explain(error)
        raise kind(f"{what}: {reason}", where=where, hint=hint) from error


def _explain(error: Exception) -> tuple[str, str]:
    errors = _library().errors
    if isinstance(error, errors.LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__  # the reason why the file could not be downloaded
    status = _status(error)
    log_in = "run hf auth login, or set HF_TOKEN"
    if isinstance(error, errors.RevisionNotFoundError):
        return "the repository has no such revision", "give one of its branches, tags or commits after the @"
    if isinstance(error, errors.GatedRepoError):
        return "the repository is gated: its owner must grant access", f"request access on its page; then {log_in}"
    if isinstance(error, errors.RepositoryNotFoundError):
        hint = "check the name, or the path if you mean a folder"
        if status == 401:
            return "the hub has no public repository of this name", f"{hint}; for a private one {log_in}"
        return "the hub has no repository of this name that your token can access", hint
    if status == 401:
        return "the hub rejects the token", f"{log_in} to a valid token"
    if status == 403:
        return "the token has no permission for this", f"{log_in} to a token with access to the repository"
    if isinstance(error, errors.OfflineModeIsEnabled):
        return "the model is not in the cache, and HF_HUB_OFFLINE forbids connections", "unset HF_HUB_OFFLINE for the download"
    reason = str(error).strip().partition("\n")[0] or type(error).__name__
    if status is not None:
        return f"the hub returned status {status}: {reason}", "try again later"
    return f"{reason} ({type(error).__name__})", "check the network, HF_ENDPOINT and the space on the disk"


def _status(error: Exception) -> int | None:
    return getattr(getattr(error, "response", None), "status_code", None)

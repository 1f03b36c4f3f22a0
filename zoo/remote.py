"""Talking to the hub: every failure becomes one sentence, and what arrives is verified."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from huggingface_hub import HfApi, get_token, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from zoo.errors import ZooError

WEIGHTS, CONFIG, REFERENCE, CARD = (
    "model.safetensors",
    "config.json",
    "reference.safetensors",
    "README.md",
)
TRAINING, METRICS, FIGURES = "training.yaml", "metrics.json", "figures"
NEEDED = (WEIGHTS, CONFIG, REFERENCE, CARD)  # to load a model and to check its copy
PUBLISHED = (*NEEDED, TRAINING, METRICS, f"{FIGURES}/*.png")

SCHEME = "hf://"
TIMEOUT = 10  # seconds until a hub that says nothing counts as out of reach
COMMIT = re.compile(r"[0-9a-f]{40}")
DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

# Of httpx or of httpx2, whichever this release of huggingface_hub is built on.
TransportError: type[Exception] = HfHubHTTPError.__bases__[0]


def split_source(source: str | Path) -> tuple[str, str | None]:
    """Splits ``[hf://]org/name[@revision]``.

    Raises:
        ZooError: If it is not of that form.
    """
    match = re.fullmatch(r"(?:hf://)?([\w.-]+/[\w.-]+)(?:@(.+))?", str(source))
    if match is None:
        raise ZooError(f"{source} is neither a folder nor 'org/name' or 'org/name@revision'.")
    return match[1], match[2]


def locate(
    name_or_path: str | Path,
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
    force_download: bool = False,
    files: Sequence[str] = NEEDED,
) -> Path:
    """The local folder of a published model, after fetching what is not in the cache.

    Args:
        name_or_path: A folder, or ``org/name`` or ``org/name@revision``, with or without
            ``hf://``.
        revision: Branch, tag or commit.
        token: Of the hub, for private repositories.
        cache_dir: Instead of the hub's own cache.
        local_files_only: Never ask the network.
        force_download: Fetch again what is in the cache.
        files: Names or patterns of the files to fetch.

    Raises:
        ZooError: If there is no such folder, repository or revision, or no way to it, or if what
            arrived is damaged.
    """
    if Path(name_or_path).is_dir():
        return Path(name_or_path)
    repo_id, at = split_source(name_or_path)
    revision = revision or at
    what = f"{repo_id}@{revision}" if revision else repo_id

    def fetch(local: bool, force: bool = False) -> Path:
        folder = snapshot_download(
            repo_id,
            revision=revision,
            token=token,
            cache_dir=cache_dir,
            local_files_only=local,
            force_download=force,
            allow_patterns=list(files),
        )
        return Path(folder)

    if revision is not None and COMMIT.fullmatch(revision) and not force_download:
        # A commit never changes: whole in the cache, it needs no hub.
        with suppress(LocalEntryNotFoundError):
            folder = fetch(local=True)
            if all((folder / name).is_file() for name in files if name in (WEIGHTS, CONFIG)):
                return _verified(folder, what)
    # The cache answers at once where the client would ask again and again for half a minute.
    silence = None if local_files_only else _why_silent(what, repo_id, revision, token)
    try:
        with hub_errors(what, token):
            offline = local_files_only or silence is not None
            folder = fetch(offline, force_download and not offline)
    except ZooError as error:
        if silence is not None and isinstance(error.__cause__, LocalEntryNotFoundError):
            raise ZooError(f"{what} is not in the cache, and {silence}.") from error
        raise
    return _verified(folder, what)


def list_files(
    repo_id: str, revision: str | None = None, token: str | bool | None = None
) -> list[str]:
    """The names of all files of a repository.

    Raises:
        ZooError: If there is no such repository or revision, or no way to it.
    """
    what = f"{repo_id}@{revision}" if revision else repo_id
    with hub_errors(what, token):
        info = HfApi(token=token).model_info(repo_id, revision=revision, timeout=TIMEOUT)
    return [sibling.rfilename for sibling in info.siblings or []]


@contextmanager
def hub_errors(what: str, token: str | bool | None = None) -> Iterator[None]:
    """Inside, whatever goes wrong between here and the hub is raised as a ZooError.

    Args:
        what: The repository, for the sentence.
        token: Never shown, even if the hub's own message should repeat it.
    """
    try:
        yield
    except ZooError:
        raise
    except HFValidationError as error:
        raise ZooError(f"{what} is no valid repository name ('org/name').") from error
    except GatedRepoError as error:
        raise ZooError(f"{what} is gated: ask for access there, and give a token.") from error
    except RepositoryNotFoundError as error:
        raise ZooError(f"No repository {what}, or it is private: give a token.") from error
    except RevisionNotFoundError as error:
        repo_id, _, revision = what.partition("@")
        raise ZooError(f"{repo_id} has no revision '{revision or 'main'}'.") from error
    except LocalEntryNotFoundError as error:
        reason = "the hub cannot be reached" if error.__cause__ else "it was not to be fetched"
        raise ZooError(f"{what} is not whole in the cache, and {reason}.") from error
    except HfHubHTTPError as error:
        raise ZooError(f"{what}: {_hide(_refusal(error), token)}.") from error
    except OfflineModeIsEnabled as error:
        raise ZooError(f"{what}: HF_HUB_OFFLINE forbids to ask the hub.") from error
    except TransportError as error:
        reason = _hide(str(error) or type(error).__name__, token)
        raise ZooError(
            f"{what}: the connection to the hub failed ({reason}); try again."
        ) from error
    except (OSError, ValueError, RuntimeError) as error:  # a full disk, a bad card, hf_xet's own
        reason = _hide((str(error) or type(error).__name__).splitlines()[0], token)
        raise ZooError(f"{what} failed: {reason}") from error


def has_content(path: Path, digest: str) -> bool:
    """Whether a file is the one that the hub names by ``digest``.

    Args:
        path: Local file.
        digest: SHA-256 of the content for large files, or git's SHA-1 of blob header and content.
    """
    if len(digest) == 64:
        return sha256(path) == digest
    state = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    return _digest(path, state) == digest


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    return _digest(path, hashlib.sha256())


def _digest(path: Path, state: hashlib._Hash) -> str:
    with path.open("rb") as file:
        while chunk := file.read(2**20):
            state.update(chunk)
    return state.hexdigest()


def _why_silent(
    what: str, repo_id: str, revision: str | None, token: str | bool | None
) -> str | None:
    """Asks for the revision; what keeps the hub from answering, or ``None`` if it answers.

    Raises:
        ZooError: If it answers that there is no such repository or revision, or shows it not.
    """
    try:
        with hub_errors(what, token):
            HfApi(token=token).model_info(repo_id, revision=revision, timeout=TIMEOUT)
    except ZooError as error:
        cause = error.__cause__
        if isinstance(cause, OfflineModeIsEnabled):
            return "HF_HUB_OFFLINE forbids to ask the hub"
        if isinstance(cause, HfHubHTTPError):
            if cause.response.status_code < 500 and cause.response.status_code != 429:
                raise
            return _hide(_refusal(cause), token)
        if isinstance(cause, TransportError):
            return "the hub cannot be reached"
        raise
    return None


def _verified(folder: Path, what: str) -> Path:
    """Compares what is in the cache with the checksums under whose names it is kept there.

    The client compares sizes only. What is damaged is removed, so that the next try fetches it.
    """
    damaged = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        blob = path.resolve()
        if blob.parent.name != "blobs" or not DIGEST.fullmatch(blob.name):
            continue  # a cache without links keeps no checksums
        if not has_content(blob, blob.name):
            damaged.append(path)
    for path in damaged:
        path.resolve().unlink(missing_ok=True)
        path.unlink()
    if damaged:
        names = ", ".join(str(path.relative_to(folder)) for path in damaged)
        raise ZooError(
            f"{what}: {names} arrived damaged (the checksum is not the hub's) and was removed from "
            "the cache; try again."
        )
    return folder


def _refusal(error: HfHubHTTPError) -> str:
    status = error.response.status_code
    said = " ".join((error.server_message or "").split()).rstrip(".")
    sentence = f"the hub answered {status}" + (f" ({said})" if said else "")
    if status in (401, 403):
        return f"{sentence}: log in with 'hf auth login' or set HF_TOKEN, with the right to do this"
    if status == 429:
        wait = error.response.headers.get("Retry-After")
        return f"{sentence}: too many requests" + (f", try again in {wait} s" if wait else "")
    return f"{sentence}, try again later" if status >= 500 else sentence


def _hide(text: str, token: str | bool | None) -> str:
    for secret in {token if isinstance(token, str) else None, get_token()} - {None, ""}:
        text = text.replace(str(secret), "***")
    return text

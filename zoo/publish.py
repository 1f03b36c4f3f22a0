"""Publishes a checkpoint: builds its folder, verifies it, uploads it in one commit, tags that."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.hf_api import RepoFile

from zoo.atomic import write_text
from zoo.card import check_license
from zoo.check import check_folder
from zoo.errors import ZooError
from zoo.hub import read_metrics, write_folder
from zoo.remote import (
    FIGURES,
    METRICS,
    TIMEOUT,
    TRAINING,
    TransportError,
    has_content,
    hub_errors,
    sha256,
    split_source,
)

if TYPE_CHECKING:
    from zoo.base import ZooModule

RUNS = "runs"  # where the command line puts run folders, below the working folder
SECRET_KEY = re.compile(r"token|secret|password|passwd|api_?key|credential", re.IGNORECASE)
SECRET_VALUE = re.compile(r"\bhf_[A-Za-z0-9]{8,}|(?<=://)[^/@\s]+@")


@dataclass(frozen=True)
class Run:
    """What is known of the run that made a checkpoint.

    Attributes:
        metrics: The content of ``metrics.json``; ``None`` if this checkpoint was never tested.
        training: The resolved config of the training; ``None`` if it was not recorded.
        figures: Pictures of the test run.
    """

    metrics: Mapping[str, Any] | None = None
    training: Any = None
    figures: list[Path] = field(default_factory=list)


class Published(NamedTuple):
    """Where a model was published.

    Attributes:
        repo_id: ``org/name``.
        commit: Full id of the commit that holds the files.
        tag: The version's tag; ``None`` on another branch than main.
        new: Whether there was anything to upload.
    """

    repo_id: str
    commit: str
    tag: str | None
    new: bool

    def __str__(self) -> str:
        version = self.tag or self.commit
        return f"{self.repo_id}@{version} ({'new' if self.new else 'unchanged'}, {self.commit[:7]})"


def publish(
    cls: type[ZooModule],
    checkpoint: str | Path,
    repo_id: str,
    *,
    license: str | None,
    branch: str | None = None,
    private: bool = False,
    allow_no_metrics: bool = False,
    token: str | None = None,
) -> Published:
    """Builds and verifies the folder of a checkpoint in a temporary place, then uploads it.

    Args:
        cls: The method's class.
        checkpoint: A ``.ckpt`` file of ``zoo fit``; metrics and figures are found beside it.
        repo_id: ``org/name``; made if need be.
        license: Of the weights; required.
        branch: Other than main; made if need be.
        private: Make the repository private.
        allow_no_metrics: Publish a checkpoint that was never tested.
        token: Of the hub, instead of the one that is logged in.

    Raises:
        ZooError: If anything is missing or fails; up to the commit, nothing has been published.
    """
    _check_repo_id(repo_id)
    with tempfile.TemporaryDirectory(prefix="zoo-push-") as folder:
        build(
            cls,
            checkpoint,
            Path(folder),
            repo_id=repo_id,
            license=license,
            allow_no_metrics=allow_no_metrics,
        )
        return upload(Path(folder), repo_id, branch=branch, private=private, token=token)


def build(
    cls: type[ZooModule],
    checkpoint: str | Path,
    folder: Path,
    *,
    repo_id: str,
    license: str | None,
    allow_no_metrics: bool = False,
) -> None:
    """Writes the folder of a checkpoint, loads it back, and compares the output bit for bit.

    Args:
        cls: The method's class.
        checkpoint: A ``.ckpt`` file of ``zoo fit``; metrics and figures are found beside it.
        folder: Empty, or made.
        repo_id: Where the card says that the weights are to be found.
        license: Of the weights; required.
        allow_no_metrics: Go on if the checkpoint was never tested.

    Raises:
        ZooError: If the licence or the test run is missing, the folder is not empty, or the
            checkpoint is not one of ``cls``.
    """
    license = check_license(license)
    _check_repo_id(repo_id)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ZooError(f"{folder} is not empty: a model is written into a folder of its own.")
    model = cls.load_from_checkpoint(checkpoint)
    run = read_run(Path(checkpoint), cls.__name__)
    if run.metrics is None and not allow_no_metrics:
        raise ZooError(
            f"There is no recorded test run of {checkpoint}: "
            f"run 'zoo test --ckpt_path {checkpoint}' first."
        )
    folder.mkdir(parents=True, exist_ok=True)
    if run.training is not None:
        note = (
            "# As trained. Absolute paths are reduced to their last part, secrets are left out.\n"
        )
        text = yaml.safe_dump(run.training, sort_keys=False, allow_unicode=True)
        write_text(folder / TRAINING, note + text)
    figures = [f"{FIGURES}/{path.name}" for path in run.figures]
    for path, name in zip(run.figures, figures, strict=True):
        (folder / FIGURES).mkdir(exist_ok=True)
        shutil.copyfile(path, folder / name)
    write_folder(
        model, folder, license=license, repo_id=repo_id, metrics=run.metrics, figures=figures
    )
    check_folder(folder, expected=cls, exact=True)


def read_run(checkpoint: Path, cls: str) -> Run:
    """Finds what was recorded of a checkpoint, without what is only of this machine.

    ``zoo fit`` tests the best checkpoint into the same run folder, ``zoo test`` into one beside it
    or below the working folder. A record counts if it is of these very bytes (SHA-256), so that a
    checkpoint trained further needs another test; of several the last one does.

    Args:
        checkpoint: ``<run folder>/checkpoints/<name>.ckpt``, or a file beside ``metrics.json``.
        cls: Name of the class that was tested.

    Raises:
        ZooError: If a record is unreadable.
    """
    checkpoint = checkpoint.resolve()
    folder = checkpoint.parent
    folder = folder.parent if folder.name == "checkpoints" else folder
    beside = [folder / METRICS, *folder.parent.glob(f"*/{METRICS}")]
    digest, records = sha256(checkpoint), []
    for path in sorted({*beside, *Path(RUNS).resolve().glob(f"*/*/{METRICS}")}):
        if path.is_file():
            record = read_metrics(path)
            if (record.get("class"), record.get("checkpoint_sha256")) == (cls, digest):
                records.append((str(record.get("date")), path, record))
    training = folder / TRAINING
    try:
        config = yaml.safe_load(training.read_text("utf-8")) if training.is_file() else None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ZooError(f"{training} is no valid YAML: {' '.join(str(error).split())}") from error
    if not records:
        return Run(training=without_secrets(config))
    _, path, record = max(records, key=itemgetter(0))
    figures = sorted((path.parent / FIGURES).glob("test_*.png"))
    return Run(without_secrets(record), without_secrets(config), figures)


def without_secrets(value: Any, key: str = "") -> Any:
    """Plain data without what identifies this machine or opens a door.

    Absolute paths keep their last part; values whose key or form says that they are secret become
    ``None`` or stars. Every key stays.
    """
    if isinstance(value, Mapping):
        return {k: without_secrets(v, str(k)) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(v, key) for v in value]
    if isinstance(value, str):
        if SECRET_KEY.search(key):
            return None
        return SECRET_VALUE.sub("***", _last_part(value).replace(str(Path.home()), "~"))
    return value


def upload(
    folder: Path,
    repo_id: str,
    *,
    branch: str | None = None,
    private: bool = False,
    token: str | None = None,
) -> Published:
    """Uploads a folder in one commit, or in none if the hub has the same files, and tags it.

    Versions are v1, v2 and so on, on the main branch. Files that the zoo wrote there and this
    folder has not are deleted in the same commit; what others added stays.

    Args:
        folder: Made by :func:`build`.
        repo_id: ``org/name``; made if need be.
        branch: Other than main; made if need be.
        private: Make the repository private.
        token: Of the hub, instead of the one that is logged in.

    Raises:
        ZooError: If the hub refuses or cannot be reached, or the repository is public but should
            be private.
    """
    _check_repo_id(repo_id)
    api = HfApi(token=token)
    with hub_errors(repo_id, token):
        api.create_repo(repo_id, private=private or None, exist_ok=True)
        if private and not api.model_info(repo_id, timeout=TIMEOUT).private:
            raise ZooError(f"{repo_id} exists and is public: make it private on the hub first.")
        if branch is not None:
            api.create_branch(repo_id, branch=branch, exist_ok=True)
        try:
            commit, new = _commit(api, folder, repo_id, branch)
        except TransportError as error:
            if isinstance(error, HfHubHTTPError) and error.response.status_code < 500:
                raise
            # The commit may or may not have been made: look again, and make it if not.
            commit, new = _commit(api, folder, repo_id, branch)
        tag = _tag(api, repo_id, commit) if branch in (None, "main") else None
    return Published(repo_id, commit, tag, new)


def _commit(api: HfApi, folder: Path, repo_id: str, branch: str | None) -> tuple[str, bool]:
    """Makes the one commit that turns what the hub has into the folder, unless it is the same."""
    head = api.model_info(repo_id, revision=branch, timeout=TIMEOUT).sha
    tree = api.list_repo_tree(repo_id, recursive=True, revision=head)
    there = {e.path: e.lfs.sha256 if e.lfs else e.blob_id for e in tree if isinstance(e, RepoFile)}
    here = {p.relative_to(folder).as_posix(): p for p in sorted(folder.rglob("*")) if p.is_file()}
    operations: list[CommitOperationAdd | CommitOperationDelete] = [
        CommitOperationAdd(name, path)
        for name, path in here.items()
        if name not in there or not has_content(path, there[name])
    ]
    operations += [CommitOperationDelete(name) for name in there if _is_stale(name, here)]
    if not operations:
        return str(head), False
    made = api.create_commit(
        repo_id,
        operations,
        commit_message=f"Publish {repo_id.rpartition('/')[2]}",
        revision=branch,
        parent_commit=head,  # if somebody else has committed meanwhile, the hub refuses
    )
    return made.oid, True


def _is_stale(name: str, here: Mapping[str, Path]) -> bool:
    own = name in (TRAINING, METRICS) or re.fullmatch(rf"{FIGURES}/[^/]+\.png", name)
    return bool(own) and name not in here


def _tag(api: HfApi, repo_id: str, commit: str) -> str:
    """The version tag of a commit: the one it has, or the next number."""
    versions = {}
    for ref in api.list_repo_refs(repo_id).tags:
        if match := re.fullmatch(r"v(\d+)", ref.name):
            versions[int(match[1])] = ref.target_commit
    for number, target in versions.items():
        if target == commit:
            return f"v{number}"
    tag = f"v{max(versions, default=0) + 1}"
    api.create_tag(repo_id, tag=tag, revision=commit)
    return tag


def _check_repo_id(repo_id: str) -> None:
    if split_source(repo_id) != (repo_id, None):
        raise ZooError(f"--repo-id is {repo_id!r}; it must be 'org/name'.")


def _last_part(text: str) -> str:
    for path in (PurePosixPath(text), PureWindowsPath(text)):
        if path.is_absolute() or text.startswith("~"):
            return path.name
    return text

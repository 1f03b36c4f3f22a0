"""What the test hub keeps: repositories as commits of path -> bytes, and the rules for cards."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from http import HTTPStatus
from pathlib import PurePosixPath
from typing import Any

import yaml

Json = dict[str, Any]


class Refused(Exception):
    """An error answer; from `code` (X-Error-Code) the client picks its exception class."""

    def __init__(self, status: int, message: str = "", code: str = "") -> None:
        super().__init__(message or HTTPStatus(status).phrase)
        self.status, self.code = status, code
        self.headers: dict[str, str] = {}


def blob_id(content: bytes) -> str:
    """Git's object id of a file, 40 hex digits: its ETag, and what the client compares."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass(frozen=True)
class Commit:
    """A snapshot; its id follows from parent, title and content."""

    files: Mapping[str, bytes]
    title: str
    description: str = ""
    parent: str | None = None
    date: str = field(
        default_factory=lambda: f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%S.000Z}"
    )
    oid: str = field(init=False)  # 40 hex digits

    def __post_init__(self) -> None:
        blobs = sorted((path, blob_id(content)) for path, content in self.files.items())
        named = repr((self.parent, self.title, self.description, blobs))
        object.__setattr__(self, "oid", hashlib.sha1(named.encode()).hexdigest())

    def entries(self) -> dict[str, Json]:
        """Files and folders by path, as the tree endpoints list them."""
        found: dict[str, Json] = {}
        for path, content in sorted(self.files.items()):
            for folder in list(PurePosixPath(path).parents)[-2::-1]:  # outermost first, no "."
                tree_id = hashlib.sha1(f"{self.oid}/{folder}".encode()).hexdigest()
                found[str(folder)] = {"type": "directory", "oid": tree_id, "size": 0}
            found[path] = {"type": "file", "oid": blob_id(content), "size": len(content)}
        return {path: {"path": path, **entry} for path, entry in found.items()}


@dataclass
class Repo:
    """Commits, and the branches and tags that point at them."""

    id: str
    kind: str = "models"
    private: bool = False
    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def at(self, revision: str) -> Commit:
        """The commit of a branch, a tag, or a commit id of at least 7 digits."""
        oid = self.branches.get(revision) or self.tags.get(revision)
        if oid is None and re.fullmatch("[0-9a-f]{7,40}", revision):
            oid = next((known for known in self.commits if known.startswith(revision)), None)
        if oid is None:
            raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return self.commits[oid]

    def add(self, branch: str, commit: Commit) -> Commit:
        """Store a commit and let the branch point at it."""
        self.commits[commit.oid] = commit
        self.branches[branch] = commit.oid
        return commit

    def history(self, revision: str = "main") -> list[Commit]:
        """The commits up to a revision, newest first."""
        chain = [self.at(revision)]
        while (parent := chain[-1].parent) is not None:
            chain.append(self.commits[parent])
        return chain


def front_matter(card: str) -> Json:
    """The metadata of a model card; raises `ValueError` if it is no YAML mapping."""
    block = re.match(r"\s*---[ \t]*\r?\n(.*?)^---\s*$", card, re.DOTALL | re.MULTILINE)
    try:
        data = yaml.safe_load(block[1]) if block else {}
    except yaml.YAMLError as error:
        raise ValueError(f"Invalid YAML: {error}") from error
    if not isinstance(data or {}, dict):
        raise ValueError("The metadata must be a mapping")
    return data or {}


def card_errors(card: Json) -> Iterator[str]:
    """The rules of the real hub that a generated card is likely to break."""
    for key in ("license", "language", "tags", "datasets", "metrics", "base_model"):
        value = card.get(key, [])
        if not all(isinstance(v, str) for v in (value if isinstance(value, list) else [value])):
            yield f'"{key}" must be a string or an array of strings'
    models = card.get("model-index", [])
    if not isinstance(models, list):
        yield '"model-index" must be an array'
        return
    for i, model in enumerate(models):
        for key, kind in (("name", str), ("results", list)):
            if not isinstance(model.get(key), kind):
                yield f'"model-index[{i}].{key}" must be {kind.__name__}'
        for j, result in enumerate(model.get("results") or []):
            parts = {"task": ["type"], "dataset": ["type", "name"]}
            wanted = [(part, result.get(part) or {}, keys) for part, keys in parts.items()]
            metrics = result.get("metrics") or [{}]
            wanted += [(f"metrics[{k}]", m, ["type", "value"]) for k, m in enumerate(metrics)]
            for part, found, keys in wanted:
                for key in keys:
                    if found.get(key) is None:
                        yield f'"model-index[{i}].results[{j}].{part}.{key}" is required'

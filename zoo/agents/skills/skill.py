"""One skill: what SKILL.md may hold, read from folders that nobody vouches for."""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

import yaml

from zoo.errors import ZooError, did_you_mean

FILE = "SKILL.md"
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
# Sizes of names and texts are the format's; those of files and folders are this library's.
MAX_NAME, MAX_DESCRIPTION, MAX_COMPATIBILITY = 64, 1024, 500  # characters
MAX_FILE, MAX_FOLDER = 64 << 10, 5 << 20  # bytes
MAX_FILES = 200
MAX_DEPTH = 4  # of the front matter's nesting
FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class SkillError(ZooError):
    """A skill that is not well-formed, or not safe to read."""


@dataclass(frozen=True)
class Skill:
    """A procedure that an agent may follow.

    Attributes:
        name: 1 to 64 of a-z, 0-9 and single hyphens; also the folder's name.
        description: What it does and when to use it, 1 to 1024 characters.
        body: The instructions, Markdown.
        metadata: Further words, such as ``families``, the task families it is for.
        license: Of the skill.
        compatibility: What it needs, at most 500 characters.
        allowed_tools: Tools it may use without asking.
        files: Further files: path below the folder to content.

    Raises:
        SkillError: If one of these is not so.
    """

    name: str
    description: str
    body: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    license: str = ""
    compatibility: str = ""
    allowed_tools: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_name(self.name)
        check_text(self.name, "description", self.description, MAX_DESCRIPTION)
        if self.compatibility:
            check_text(self.name, "compatibility", self.compatibility, MAX_COMPATIBILITY)
        if match := CONTROL.search(self.body):
            _refuse(self.name, f"its body has the control character {match[0]!r}")
        if "families" in self.metadata and not self.families:
            _refuse(self.name, "metadata.families is empty: leave it out, or name families")
        size = len(self.text().encode())
        if size > MAX_FILE:
            _refuse(self.name, f"{FILE} has {size} bytes, at most {MAX_FILE} are allowed")
        for path in self.files:
            check_path(self.name, path)
        if len(self.files) + 1 > MAX_FILES:
            _refuse(self.name, f"it has {len(self.files) + 1} files, at most {MAX_FILES}")
        size += sum(map(len, self.files.values()))
        if size > MAX_FOLDER:
            _refuse(self.name, f"its folder has {size} bytes, at most {MAX_FOLDER}")

    @property
    def families(self) -> frozenset[str]:
        """Task families it is for, from ``metadata.families``; empty stands for all."""
        return frozenset(re.split(r"[\s,]+", self.metadata.get("families", ""))) - {""}

    def text(self) -> str:
        """SKILL.md."""
        fields: dict[str, Any] = {
            "name": self.name,
            "description": self.description,
            "license": self.license,
            "compatibility": self.compatibility,
            "metadata": dict(self.metadata),
            "allowed-tools": " ".join(self.allowed_tools),
        }
        front = {key: value for key, value in fields.items() if value}
        head = yaml.safe_dump(front, sort_keys=False, allow_unicode=True, width=1 << 20)
        return f"---\n{head}---\n\n{self.body.strip()}\n"


def slug(title: str) -> str:
    """A skill's name made of a title: ``Look at O`` becomes ``look-at-o``."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:MAX_NAME].strip("-") or "skill"


def check_name(name: object) -> str:
    """The name, if it is one."""
    if not isinstance(name, str):
        raise SkillError(f"A skill's name is text: {name!r} is {type(name).__name__}; quote it.")
    if not name or len(name) > MAX_NAME:
        raise SkillError(f"Skill '{name}': a name has 1 to {MAX_NAME} characters.")
    if not NAME.fullmatch(name):
        raise SkillError(
            f"Skill '{name}': a name is of a-z, 0-9 and single hyphens between them, such as "
            f"'{slug(name)}'."
        )
    return name


def check_text(skill: str, key: str, value: object, limit: int) -> str:
    """A field's text, if it has 1 to ``limit`` characters and no control characters."""
    if not isinstance(value, str):
        _refuse(skill, f"{key} is text, not {type(value).__name__}")
    if not value.strip():
        _refuse(skill, f"{key} is empty")
    if len(value) > limit:
        _refuse(skill, f"{key} has {len(value)} characters, at most {limit} are allowed")
    if match := CONTROL.search(value):
        _refuse(skill, f"{key} has the control character {match[0]!r}")
    return value


def check_path(skill: str, path: str) -> None:
    """Raises unless a further file's path stays in the folder."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts or "\\" in path or "\0" in path:
        _refuse(skill, f"the path {path!r} leads out of its folder")
    if str(pure) == FILE:
        _refuse(skill, f"{FILE} is written from the fields, not as a further file")


def _refuse(skill: str, why: str) -> NoReturn:
    raise SkillError(f"Skill '{skill}': {why}.")


class _PlainLoader(yaml.SafeLoader):
    """Safe YAML without aliases, which can blow up, duplicate keys, and deep nesting."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise SkillError("the front matter has an alias ('*name'), which is not allowed")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise SkillError(f"the front matter is nested more than {MAX_DEPTH} deep")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise SkillError(f"the front matter has the key '{key}' twice")
        return super().construct_mapping(node, deep=deep)


def parse_skill(text: str, folder: str, files: Mapping[str, bytes] | None = None) -> Skill:
    """Reads SKILL.md.

    Args:
        text: Its content.
        folder: The folder's name, which the skill's has to equal.
        files: Further files.

    Raises:
        SkillError: If it is malformed; each fault has a sentence of its own.
    """
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != "---":
        _refuse(folder, f"{FILE} does not begin with a line '---'")
    end = next((i for i, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        _refuse(folder, f"{FILE} has no second line '---', which ends the front matter")
    try:
        front = yaml.load("\n".join(lines[1:end]), _PlainLoader)
    except SkillError as error:
        _refuse(folder, str(error))
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        problem = getattr(error, "problem", None) or str(error).split("\n")[0]
        _refuse(folder, f"the front matter is no YAML: {problem}")
    if not isinstance(front, dict):
        _refuse(folder, f"the front matter is {type(front).__name__}, not keys and values")
    for key in front:
        if key not in FIELDS:
            hint = did_you_mean(str(key), FIELDS).rstrip("?").replace(" Did you mean", "; nearest:")
            _refuse(folder, f"unknown key '{key}', known are {', '.join(FIELDS)}{hint}")
    for key in ("name", "description"):
        if key not in front:
            _refuse(folder, f"the front matter has no '{key}'")
    name = check_name(front["name"])
    if name != folder:
        _refuse(folder, f"its name is '{name}', but a skill is named as its folder")
    for key, limit in (("license", MAX_DESCRIPTION), ("compatibility", MAX_COMPATIBILITY)):
        if key in front:
            check_text(folder, key, front[key], limit)
    return Skill(
        name=name,
        description=check_text(folder, "description", front["description"], MAX_DESCRIPTION),
        body="\n".join(lines[end + 1 :]).strip(),
        metadata=_metadata(folder, front.get("metadata")),
        license=front.get("license", ""),
        compatibility=front.get("compatibility", ""),
        allowed_tools=_tools(folder, front.get("allowed-tools")),
        files=dict(files or {}),
    )


def _metadata(skill: str, value: object) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        _refuse(skill, f"metadata is {type(value).__name__}, not keys and values")
    for key, item in value.items():
        if not isinstance(key, str) or isinstance(item, dict | list):
            _refuse(skill, f"metadata.{key} is {type(item).__name__}: keys and values are text")
    return {key: "" if item is None else str(item) for key, item in value.items()}


def _tools(skill: str, value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    items = re.split(r"[\s,]+", value.strip()) if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        _refuse(skill, "allowed-tools is text, names with spaces between")
    return tuple(item for item in items if item)


def load_skill(folder: str | os.PathLike[str]) -> Skill:
    """Reads a skill's folder, with its further files.

    Raises:
        SkillError: If it is malformed, too large, or holds a link or anything but files.
    """
    path = Path(folder)
    name = path.name
    if path.is_symlink():
        _refuse(name, "its folder is a symbolic link")
    if not path.is_dir():
        _refuse(name, f"{path} is no folder")
    files: dict[str, bytes] = {}
    total = 0
    for relative, status in _tree(path, name):
        total += status.st_size
        if len(files) + 1 > MAX_FILES:
            _refuse(name, f"it has more than {MAX_FILES} files")
        if relative == FILE and status.st_size > MAX_FILE:
            _refuse(name, f"{FILE} has {status.st_size} bytes, at most {MAX_FILE} are allowed")
        if total > MAX_FOLDER:
            _refuse(name, f"its folder has more than {MAX_FOLDER} bytes")
        files[relative] = _read(path / relative, name, relative)
    if FILE not in files:
        _refuse(name, f"there is no {FILE} in {path}")
    try:
        text = files.pop(FILE).decode("utf-8")
    except UnicodeDecodeError as error:
        _refuse(name, f"{FILE} is not UTF-8 at byte {error.start}")
    return parse_skill(text, name, files)


def _tree(root: Path, name: str) -> list[tuple[str, os.stat_result]]:
    """Path and status of the regular files, sorted; anything else raises."""
    found, stack = [], [root]
    while stack:
        with os.scandir(stack.pop()) as entries:
            listed = list(entries)
        for entry in listed:
            relative = Path(entry.path).relative_to(root).as_posix()
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                _refuse(name, f"'{relative}' is a symbolic link")
            if stat.S_ISDIR(status.st_mode):
                stack.append(Path(entry.path))
            elif stat.S_ISREG(status.st_mode):
                found.append((relative, status))
            else:
                _refuse(name, f"'{relative}' is neither a file nor a folder")
        if len(found) + len(stack) > 4 * MAX_FILES:
            _refuse(name, f"it has more than {MAX_FILES} files")
    return sorted(found)


def _read(path: Path, name: str, relative: str) -> bytes:
    """A file's bytes; it may have been swapped for a link since it was listed."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        _refuse(name, f"'{relative}' can't be read: {error.strerror}")
    with os.fdopen(handle, "rb") as file:
        data = file.read(MAX_FOLDER + 1)
    if len(data) > MAX_FOLDER:
        _refuse(name, f"its folder has more than {MAX_FOLDER} bytes")
    return data

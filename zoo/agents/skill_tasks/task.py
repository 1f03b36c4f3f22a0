"""A task and the skills that were written for it, read from a task folder.

The layout is Harbor's (https://harborframework.com), with the skills in
``environment/skills/<name>/SKILL.md``, as SkillsBench has them (arXiv 2602.12670). Skills are kept
apart from the files that an agent finds, so that none is there in a condition without skills.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from zoo.agents.envs.base import Task
from zoo.agents.envs.workspace import decode, encode, harbor_folders, harbor_task
from zoo.agents.skills import Skill, load_skill, parse_skill
from zoo.errors import ZooError

FOLDER = "skills"  # below environment/


@dataclass(frozen=True)
class SkillTask:
    """A task with its curated skills.

    Attributes:
        task: Its payload holds no skill. ``family`` is the domain.
        skills: Written by people for it.
    """

    task: Task
    skills: tuple[Skill, ...]

    @property
    def name(self) -> str:
        """Of the folder."""
        return self.task.task_id

    @property
    def instruction(self) -> str:
        """What the agent is asked to do."""
        return str(self.task.payload["instruction"])

    def with_skills(self, skills: tuple[Skill, ...]) -> SkillTask:
        """The task with others in place of its own."""
        return replace(self, skills=skills)

    def to_json(self) -> str:
        """All of it as text, for a batch."""
        skills = [
            {"name": s.name, "text": s.text(), "files": encode(dict(s.files))} for s in self.skills
        ]
        return json.dumps({"task": self.task.to_dict(), "skills": skills})

    @classmethod
    def from_json(cls, text: str) -> SkillTask:
        """The inverse of :meth:`to_json`."""
        row = json.loads(text)
        skills = [parse_skill(s["text"], s["name"], decode(s["files"])) for s in row["skills"]]
        return cls(Task(**row["task"]), tuple(skills))


def skills_digest(skills: tuple[Skill, ...]) -> str:
    """SHA-256 of skills, whatever their order."""
    texts = sorted(json.dumps([s.name, s.text(), encode(dict(s.files))]) for s in skills)
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def read_task(folder: str | os.PathLike[str]) -> SkillTask:
    """Reads a task folder with its skills.

    A folder ``simulation`` beside the others, with ``simulation.json`` and wrong programs, is for
    simulated agents alone; nobody else is told of it.

    Raises:
        ZooError: If something is missing, malformed, a link, or too large; it names the place.
    """
    folder = Path(folder)
    task = harbor_task(folder)
    if not task.payload["instruction"].strip():
        raise ZooError(f"{folder / 'instruction.md'} is empty.")
    payload = dict(task.payload)
    prefix = f"{FOLDER}/"
    payload["files"] = {p: d for p, d in payload["files"].items() if not p.startswith(prefix)}
    root = folder / "environment" / FOLDER
    skills = [load_skill(p) for p in sorted(root.iterdir())] if root.is_dir() else []
    if (folder / "simulation").is_dir():
        payload["simulation"] = _simulation(folder, payload["solution"])
    return SkillTask(replace(task, payload=payload), tuple(skills))


def _simulation(folder: Path, solution: Mapping[str, str]) -> dict[str, Any]:
    path = folder / "simulation" / "simulation.json"
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        skill, hint = str(known["skill"]), str(known["hint"])
        answer = decode(solution)["solve.py"].decode()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ZooError(
            f"{path}: expected skill and hint, and a solution/solve.py ({error!r})."
        ) from None
    wrong = [p.read_text(encoding="utf-8") for p in sorted(path.parent.glob("*.py"))]
    if not wrong:
        raise ZooError(f"{path.parent} holds no wrong programs (*.py).")
    return {"skill": skill, "hint": hint, "answer": answer, "wrong": wrong}


def read_tasks(root: str | os.PathLike[str]) -> list[SkillTask]:
    """The tasks below ``root``, or below its ``tasks/``, by name.

    Raises:
        ZooError: If there are none, or one is malformed.
    """
    return [read_task(folder) for folder in harbor_folders(root)]


def embedded_tasks() -> list[SkillTask]:
    """The 24 tasks that come with the package, by name."""
    return read_tasks(Path(str(files("zoo.datamodules") / "samples" / "skills_bench")))

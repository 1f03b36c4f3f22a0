"""The folder that an agent works in, with its skills mounted beside the task's files."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from zoo.agents.envs import State, Task, Verdict, run_tests
from zoo.agents.envs.workspace import SandboxEnv, decode, encode
from zoo.agents.sandbox import Limits, Sandbox
from zoo.agents.skill_tasks.task import FOLDER, SkillTask
from zoo.agents.skills import Skill
from zoo.errors import ZooError, check_choice
from zoo.skills_bench.container import Container

EXECUTORS = ("sandbox", "docker")


class Verdicts:
    """Verdicts on files, each asked for once: admitted tests are deterministic.

    Agents leave the same few files many times, and tests cost more than all the rest of a
    trajectory.
    """

    def __init__(self) -> None:
        self._known: dict[str, Verdict] = {}
        self._lock = threading.Lock()

    def ask(self, task: Task, files: Mapping[str, bytes], limits: Limits) -> Verdict:
        """What the task's tests say of files."""
        digest = hashlib.sha256(json.dumps([task.payload_hash, encode(files)]).encode())
        key = digest.hexdigest()
        with self._lock:
            known = self._known.get(key)
        if known is None:
            known = run_tests(task, files, limits)
            with self._lock:
                self._known[key] = known
        return known


class SkillEnv(SandboxEnv):
    """A task's folder with skills at ``skills/<name>/``, read-only.

    Skills are read from memory, so that no program of the agent can change what it reads; the copy
    in the folder is for their scripts. They are not listed among the files, and not tested.

    Args:
        verdicts: Shared by all who do the same tasks.
        executor: "sandbox", or "docker": the task's own image, built from its Dockerfile.
        limits: Of each command.
        max_steps: Actions of an episode.
    """

    def __init__(
        self,
        verdicts: Verdicts,
        executor: str = "sandbox",
        limits: Limits | None = None,
        max_steps: int = 30,
    ) -> None:
        super().__init__(limits=limits, max_steps=max_steps)
        check_choice("executor", executor, EXECUTORS)
        self.verdicts, self.executor = verdicts, executor
        self.skills: dict[str, bytes] = {}
        self.verdict, self.ended = Verdict(False), False

    def begin(self, item: SkillTask, skills: Sequence[Skill]) -> str:
        """A fresh folder; returns the task as the agent is told of it, skills apart."""
        self.skills = {
            f"{FOLDER}/{skill.name}/{path}": data
            for skill in skills
            for path, data in {"SKILL.md": skill.text().encode(), **skill.files}.items()
        }
        self.verdict, self.ended = Verdict(False), False
        text = self.reset(item.task).text
        assert self.box is not None
        for path, data in self.skills.items():
            self.box.write(path, data, readonly=True)
        return text

    def _fresh(self, files: Mapping[str, bytes]) -> Sandbox:
        if self.executor == "docker":
            return Container(files, self.task, self.limits)  # type: ignore[return-value]
        return super()._fresh(files)

    def _perform(self, name: str, arguments: dict[str, Any]) -> str:
        path = str(PurePosixPath(str(arguments.get("path", ""))))
        if name == "read" and path in self.skills:
            return self.skills[path].decode(errors="replace")
        if name == "write" and path.split("/")[0] == FOLDER and self.skills:
            raise ZooError(f"{FOLDER}/ is read-only")
        text = super()._perform(name, arguments)
        self.ended = self.ended or name == "done"
        if name == "list":
            kept = [p for p in text.splitlines() if not p.startswith(f"{FOLDER}/")]
            text = "\n".join(kept) or "none"
        return text

    def verify(self, task: Task, state: State) -> bool:
        """Whether the files of a state do the task."""
        found = decode(state["files"])
        kept = {p: d for p, d in found.items() if not p.startswith(f"{FOLDER}/")}
        if self.executor == "docker":
            assert isinstance(self.box, Container)
            self.verdict = self.box.verify()
        else:
            self.verdict = self.verdicts.ask(task, kept, self.limits)
        return self.verdict.passed

    def finish(self) -> Verdict:
        """What the tests say of the files as they are now; the episode is over."""
        if not self.done:
            self.verify(self.task, self.state_dict())
            self.done = True
        return self.verdict

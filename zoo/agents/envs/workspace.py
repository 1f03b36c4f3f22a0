"""Tasks on files and code in a sandbox, and task folders in the layout of Harbor.

A task folder (Terminal-Bench 2, SkillsBench; https://harborframework.com) has ``task.toml``,
``instruction.md``, ``environment/`` with the files to begin with, ``tests/`` and ``solution/``. Its
tests run on a copy of what the agent left, in a sandbox of their own. Images are not built: what a
Dockerfile does besides naming its ``WORKDIR`` is not done.
"""

from __future__ import annotations

import base64
import os
import re
import secrets
import stat
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from zoo.agents.envs.base import Obs, State, Step, Task
from zoo.agents.envs.tools.calls import CallError, parse_calls
from zoo.agents.sandbox import Limits, Sandbox
from zoo.agents.sandbox.box import INSIDE
from zoo.errors import ZooError, missing_extra

Verifier = Callable[[Mapping[str, bytes]], bool]
"""Path to content of every file that the agent left, to whether the task is done."""

MAX_STEPS = 30
MAX_SHOWN = 4000  # characters of an observation
MAX_FILES, MAX_BYTES = 2000, 64 << 20  # of a task folder, and of what an agent may leave
ACTIONS = 'run(command="..."), write(path="...", text="..."), read(path="..."), list(), done()'
# What would change how the tests run, were it left beside them.
MEDDLING = re.compile(
    r"(conftest|sitecustomize|usercustomize)\.py|.*\.pth|pytest\.ini|\.pytest\.ini|tox\.ini|"
    r"setup\.cfg|pyproject\.toml"
)


def encode(files: Mapping[str, bytes]) -> dict[str, str]:
    """Files as plain JSON values."""
    return {path: base64.b64encode(data).decode() for path, data in sorted(files.items())}


def decode(files: Mapping[str, str]) -> dict[str, bytes]:
    """The files that ``encode`` encoded."""
    return {path: base64.b64decode(data) for path, data in files.items()}


# --------------------------------------------------------------------------------- task folders
def harbor_task(folder: str | os.PathLike[str], split: str = "test") -> Task:
    """Reads a task folder.

    Args:
        folder: With ``task.toml``, ``instruction.md``, ``environment/``, ``tests/``, and maybe
            ``solution/``.
        split: A word for the task.

    Returns:
        A task of the family that the folder's ``category`` names. Of its payload, the agent is told
        the instruction, and finds the ``files``.

    Raises:
        ZooError: If something is missing, malformed, a link, or too large.
    """
    folder = Path(folder)
    for name in ("task.toml", "instruction.md", "tests"):
        if not (folder / name).exists():
            raise ZooError(f"{folder} is no task folder: it lacks {name}.")
    settings = _toml(folder / "task.toml")
    metadata = settings.get("metadata", {})
    environment = _tree(folder, "environment")
    dockerfile = environment.pop("Dockerfile", b"").decode("utf-8", errors="replace")
    workdir = re.findall(r"^\s*WORKDIR\s+(\S+)", dockerfile, re.MULTILINE)
    tests = _tree(folder, "tests")
    if not {"test_outputs.py", "test.sh"} & set(tests):
        raise ZooError(f"{folder}/tests has neither test_outputs.py nor test.sh.")
    try:
        instruction = (folder / "instruction.md").read_text(encoding="utf-8")
        timeouts = {
            part: float(settings.get(part, {}).get("timeout_sec", 600))
            for part in ("agent", "verifier")
        }
    except (UnicodeDecodeError, TypeError, ValueError, AttributeError) as error:
        raise ZooError(f"{folder} is malformed: {error}.") from None
    payload = {
        "instruction": instruction,
        "files": encode(environment),
        "tests": encode(tests),
        "solution": encode(_tree(folder, "solution")),
        "timeouts": timeouts,
        "inside": workdir[-1].rstrip("/") if workdir else INSIDE,
        "dockerfile": dockerfile,
    }
    return Task(folder.name, str(metadata.get("category", "task")), split, 0, payload)


def harbor_folders(root: str | os.PathLike[str]) -> list[Path]:
    """The task folders below ``root``, or below its ``tasks/``, by name.

    Raises:
        ZooError: If there are none.
    """
    root = Path(root)
    base = root / "tasks" if (root / "tasks").is_dir() else root
    folders = sorted(p.parent for p in base.glob("*/task.toml"))
    if not folders:
        raise ZooError(
            f"{base} holds no task folders: expected <task>/task.toml, with instruction.md, "
            "environment/, tests/ and solution/ beside it."
        )
    return folders


def harbor_tasks(root: str | os.PathLike[str], split: str = "test") -> list[Task]:
    """The tasks of :func:`harbor_folders`.

    Raises:
        ZooError: If there are none, or one is malformed.
    """
    return [harbor_task(folder, split) for folder in harbor_folders(root)]


def _toml(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return dict(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ZooError(f"{path} is no TOML: {error}.") from None


def _tree(folder: Path, name: str) -> dict[str, bytes]:
    """Path to content of the files below a folder, which may be absent."""
    found: dict[str, bytes] = {}
    size, stack = 0, [folder / name] if (folder / name).is_dir() else []
    while stack:
        for path in sorted(stack.pop().iterdir()):
            status = path.lstat()
            relative = path.relative_to(folder / name).as_posix()
            if stat.S_ISDIR(status.st_mode):
                if path.name != "__pycache__":  # which installing a package leaves behind
                    stack.append(path)
            elif not stat.S_ISREG(status.st_mode):
                raise ZooError(f"{path} is a link or no regular file: a task folder holds files.")
            else:
                size += status.st_size
                if size > MAX_BYTES or len(found) >= MAX_FILES:
                    raise ZooError(
                        f"{folder / name} is too large: at most {MAX_FILES} files and "
                        f"{MAX_BYTES >> 20} MiB."
                    )
                found[relative] = path.read_bytes()
    return found


# ----------------------------------------------------------------------------------------- env
class SandboxEnv:
    """Tasks to do with files and commands; reward 1 for ``done()`` when the task is done.

    A task's payload has ``instruction``, ``files`` (see ``encode``), and either ``tests``, as of a
    task folder, or ``verifier``, the name of a function.

    Args:
        verifiers: Functions over the files that the agent left, by name.
        limits: Of each command.
        strict: See :class:`~zoo.agents.sandbox.Sandbox`.
        max_steps: Actions of an episode.
    """

    def __init__(
        self,
        verifiers: Mapping[str, Verifier] | None = None,
        limits: Limits | None = None,
        strict: bool = False,
        max_steps: int = MAX_STEPS,
    ) -> None:
        self.verifiers = dict(verifiers or {})
        self.limits, self.strict, self.max_steps = limits or Limits(), strict, max_steps
        self.box: Sandbox | None = None

    def reset(self, task: Task) -> Obs:
        """A fresh folder with the task's files.

        Raises:
            ZooError: If the payload is not that of such a task.
        """
        self.close()
        payload = task.payload
        if "instruction" not in payload or not {"tests", "verifier"} & set(payload):
            raise ZooError(f"Task '{task.task_id}' is no sandbox task: it has no verifier.")
        if "verifier" in payload and payload["verifier"] not in self.verifiers:
            raise ZooError(f"Task '{task.task_id}' asks for the verifier {payload['verifier']!r}.")
        self.task, self.steps, self.done = task, 0, False
        self.box = self._fresh(decode(payload.get("files", {})))
        listed = "\n".join(self.box.files()) or "none"
        return Obs(f"{payload['instruction'].strip()}\n\nActions: {ACTIONS}\nFiles:\n{listed}")

    def _fresh(self, files: Mapping[str, bytes]) -> Sandbox:
        return Sandbox(
            files,
            self.limits,
            strict=self.strict,
            inside=self.task.payload.get("inside", INSIDE),
        )

    def step(self, action: str) -> Step:
        """Carries out one of ``run``, ``write``, ``read``, ``list`` and ``done``."""
        if self.box is None or self.done:
            raise ZooError("A sandbox episode begins with reset, and ends when done is true.")
        self.steps += 1
        valid, success = True, False
        try:
            (call,) = parse_calls(action)
            text = self._perform(call.name, call.arguments)
        except (CallError, ZooError, ValueError, TypeError, KeyError) as error:
            text, valid = f"error: {error}. Actions: {ACTIONS}", False
        else:
            self.done = call.name == "done"
        self.done = self.done or self.steps >= self.max_steps
        if self.done:
            success = self.verify(self.task, self.state_dict())
        if len(text) > MAX_SHOWN:
            text = f"{text[: MAX_SHOWN // 2]}\n[...]\n{text[-MAX_SHOWN // 2 :]}"
        return Step(Obs(text), float(success), self.done, {"success": success, "valid": valid})

    def _perform(self, name: str, arguments: dict[str, Any]) -> str:
        box = self.box
        assert box is not None
        texts = {key: str(value) for key, value in arguments.items()}
        if name == "run":
            result = box.run(texts["command"])
            ended = f", ended by the limit on {result.killed_by}" if result.killed_by else ""
            return f"{result.stdout}{result.stderr}\nexit status {result.returncode}{ended}"
        if name == "write":
            box.write(texts["path"], texts["text"])
            return "written"
        if name == "read":
            return box.read(texts["path"]).decode(errors="replace")
        if name == "list":
            return "\n".join(box.files()) or "none"
        if name == "done":
            return "Finished."
        raise CallError(f"there is no action '{name}'")

    def close(self) -> None:
        """Deletes the folder."""
        if self.box is not None:
            self.box.close()
            self.box = None

    def vocabulary(self) -> list[str]:
        """Open: a language model's own tokenizer is needed."""
        return []

    def verify(self, task: Task, state: State) -> bool:
        """Whether the files of a state do the task.

        Tests run on a copy, isolated from what the agent left that would change how they run; they
        count when at least one ran, and all that ran passed.
        """
        files = decode(state["files"])
        if "verifier" in task.payload:
            return bool(self.verifiers[task.payload["verifier"]](files))
        return run_tests(task, files, self.limits, self.strict).passed

    def state_dict(self) -> State:
        """All files, and the steps taken."""
        box = self.box
        assert box is not None
        return {"files": encode(_contents(box)), "steps": self.steps, "done": self.done}

    def load_state_dict(self, state: State) -> None:
        """A fresh folder with the files of a state of the present task."""
        self.close()
        self.box = self._fresh(decode(state["files"]))
        self.steps, self.done = state["steps"], state["done"]


def _contents(box: Sandbox) -> dict[str, bytes]:
    """What an agent left, up to a size that it can't have exceeded unnoticed."""
    found, size = {}, 0
    for path in box.files()[:MAX_FILES]:
        try:
            data = box.read(path, MAX_BYTES - size)
        except ZooError:  # unreadable, or more than is kept
            continue
        found[path] = data
        size += len(data)
    return found


# --------------------------------------------------------------------------------------- tests
@dataclass(frozen=True)
class Verdict:
    """What a task's tests say.

    Attributes:
        passed: At least one ran, and all that ran passed.
        tests: Whether each passed, by name; empty where they are a script.
    """

    passed: bool
    tests: Mapping[str, bool] = field(default_factory=dict)


def run_tests(
    task: Task, files: Mapping[str, bytes], limits: Limits | None = None, strict: bool = False
) -> Verdict:
    """Runs a task's tests on a copy of files, in a sandbox of their own.

    What would change how they run is left out of the copy; they import nothing of it but what they
    name.

    Args:
        task: Whose payload has ``tests``.
        files: What the agent left.
        limits: Of the tests; the task's own time-out goes before theirs.
        strict: See :class:`~zoo.agents.sandbox.Sandbox`.

    Raises:
        SandboxError: If the sandbox can't be had.
        ZooError: If pytest is not there to run them.
    """
    if find_spec("pytest") is None:
        raise missing_extra("pytest", "agents")
    tests = decode(task.payload["tests"])
    timeout = float(task.payload.get("timeouts", {}).get("verifier", 60))
    limits = replace(limits or Limits(), timeout_s=timeout)
    kept = {p: d for p, d in files.items() if not MEDDLING.fullmatch(PurePosixPath(p).name)}
    folder = f".verifier-{secrets.token_hex(8)}"
    kept.update({f"{folder}/{path}": data for path, data in tests.items()})
    inside = task.payload.get("inside", INSIDE)
    with Sandbox(kept, limits, strict=strict, inside=inside) as box:
        if "test_outputs.py" not in tests:
            return Verdict(box.run(["sh", f"{folder}/test.sh"]).ok)
        # -I: no modules of the folder; importlib: nor of the tests' own, but those they name.
        result = box.run(
            [
                *("env", "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1", "python", "-I", "-m", "pytest"),
                *("-q", "--noconftest", "-c", "/dev/null"),
                *("-p", "no:cacheprovider", "--import-mode=importlib", "--rootdir", folder),
                *(f"--junitxml={folder}/report.xml", f"{folder}/test_outputs.py"),
            ]
        )
        try:
            found = _report(box.read(f"{folder}/report.xml"))
        except ZooError:  # ended before it was written, as by os._exit(0) in a tested program
            return Verdict(False)
    return Verdict(result.ok and bool(found) and all(found.values()), found)


def _report(report: bytes) -> dict[str, bool]:
    """Whether each test passed, from JUnit's XML; those that were skipped are left out."""
    try:
        cases = list(ElementTree.fromstring(report).iter("testcase"))
    except ElementTree.ParseError:
        return {}
    found: dict[str, bool] = {}
    for case in cases:
        name = case.get("name", "")
        passed = case.find("failure") is None and case.find("error") is None
        if case.find("skipped") is None:
            found[name] = passed and found.get(name, True)
    return found

"""A task's own image as the folder of an agent: docker, or podman where it is there instead.

The public tasks of SkillsBench need what their Dockerfiles install. The image is built once for
each task; the container has no network, and ends with the trajectory. Tests are copied in after
the agent has finished.
"""

from __future__ import annotations

import hashlib
import secrets
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from zoo.agents.envs import Task, Verdict
from zoo.agents.envs.workspace import decode
from zoo.agents.sandbox import Limits, Result, SandboxError
from zoo.agents.sandbox.box import INSIDE, OUTPUT
from zoo.agents.sandbox.files import parts_of
from zoo.errors import ZooError

BUILD_S = 1800.0  # seconds of building an image
REWARD = "/logs/verifier/reward.txt"  # where Harbor's test.sh writes 1 or 0


def engine() -> str:
    """The program that runs containers.

    Raises:
        SandboxError: If there is none.
    """
    for name in ("docker", "podman"):
        if shutil.which(name):
            return name
    raise SandboxError("executor='docker' needs docker or podman, and neither is installed.")


class Container:
    """A running container, used as a :class:`~zoo.agents.sandbox.Sandbox` is.

    Args:
        files: Of the task's ``environment/``.
        task: Its payload may hold a ``dockerfile``.
        limits: Of each command; memory and processes of the whole container.

    Raises:
        SandboxError: If the image can't be built or started.
    """

    def __init__(self, files: Mapping[str, bytes], task: Task, limits: Limits) -> None:
        self.task, self.limits, self.engine = task, limits, engine()
        self.inside = str(task.payload.get("inside", INSIDE))
        image = self._build(files)
        self.name = f"zoo-{secrets.token_hex(8)}"
        self._engine(
            *("run", "-d", "--rm", "--name", self.name, "--network", "none"),
            *("--memory", f"{limits.mem_mb}m", "--pids-limit", str(limits.nproc)),
            *("-w", self.inside, image, "sleep", "infinity"),
        )
        if not task.payload.get("dockerfile"):  # an image without the task's files
            for path, data in files.items():
                self.write(path, data)

    def _build(self, files: Mapping[str, bytes]) -> str:
        """The image's name; it is built unless it is there."""
        text = self.task.payload.get("dockerfile") or (
            f"FROM python:3.12-slim\nRUN pip install pytest\nWORKDIR {self.inside}\n"
        )
        digest = hashlib.sha256(f"{text}{self.task.payload_hash}".encode()).hexdigest()[:16]
        image = f"zoo-task:{digest}"
        if self._call("image", "inspect", image).returncode == 0:
            return image
        with tempfile.TemporaryDirectory() as folder:
            _lay_out(folder, {**files, "Dockerfile": text.encode()})
            self._engine("build", "-t", image, folder, timeout=BUILD_S)
        return image

    def _call(
        self, *words: str, stdin: bytes = b"", timeout: float = 120.0
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [self.engine, *words], input=stdin, capture_output=True, timeout=timeout, check=False
        )

    def _engine(self, *words: str, timeout: float = 120.0) -> None:
        try:
            found = self._call(*words, timeout=timeout)
        except subprocess.TimeoutExpired:
            raise SandboxError(
                f"{self.engine} {words[0]} took more than {timeout:.0f} s."
            ) from None
        if found.returncode:
            error = found.stderr.decode(errors="replace").strip()[-300:]
            raise SandboxError(f"{self.engine} {words[0]} failed: {error}")

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the container."""
        self._call("rm", "-f", self.name)

    def write(self, path: str, content: str | bytes, readonly: bool = False) -> None:
        """Writes a file below the working folder."""
        parts_of(path)
        data = content.encode() if isinstance(content, str) else content
        place = shlex.quote(path)
        mode = "0444" if readonly else "0644"
        folder = shlex.quote(str(PurePosixPath(path).parent))
        script = f"mkdir -p {folder} && cat > {place} && chmod {mode} {place}"
        found = self._call(
            "exec", "-i", "-w", self.inside, self.name, "sh", "-c", script, stdin=data
        )
        if found.returncode:
            raise ZooError(f"{path!r} can't be written: {found.stderr.decode(errors='replace')}")

    def read(self, path: str, limit: int = 1 << 20) -> bytes:
        """A file's content; a :class:`ZooError` for more than ``limit`` bytes."""
        parts_of(path)
        found = self._call("exec", "-w", self.inside, self.name, "head", "-c", str(limit + 1), path)
        if found.returncode or len(found.stdout) > limit:
            raise ZooError(f"{path!r} can't be read, or is larger than {limit} bytes.")
        return found.stdout

    def files(self) -> list[str]:
        """Paths of the regular files below the working folder, sorted."""
        found = self._call("exec", "-w", self.inside, self.name, "find", ".", "-type", "f")
        return sorted(p.removeprefix("./") for p in found.stdout.decode().splitlines())

    def run(
        self, command: str | Sequence[str], stdin: str = "", timeout_s: float | None = None
    ) -> Result:
        """Runs a command in the working folder."""
        words = ["sh", "-c", command] if isinstance(command, str) else list(command)
        seconds = timeout_s or self.limits.timeout_s
        began = time.monotonic()
        found = self._call(
            *("exec", "-i", "-w", self.inside, self.name, "timeout", "-s", "KILL"),
            *(f"{seconds:g}", *words),
            stdin=stdin.encode(),
            timeout=seconds + 60,
        )
        out, err = (x[:OUTPUT].decode(errors="replace") for x in (found.stdout, found.stderr))
        late = found.returncode == 137 and time.monotonic() - began >= seconds
        return Result(
            found.returncode,
            out,
            err,
            killed_by="time" if late else "",
            truncated=max(len(found.stdout), len(found.stderr)) > OUTPUT,
            seconds=time.monotonic() - began,
        )

    def verify(self) -> Verdict:
        """Copies the tests to ``/tests``, and runs ``test.sh``, or pytest where there is none."""
        tests = decode(self.task.payload["tests"])
        with tempfile.TemporaryDirectory() as folder:
            _lay_out(folder, tests)
            self._engine("cp", f"{folder}/.", f"{self.name}:/tests")
        seconds = float(self.task.payload.get("timeouts", {}).get("verifier", 600))
        if "test.sh" not in tests:
            command = "python -I -m pytest -q --noconftest -c /dev/null /tests/test_outputs.py"
            return Verdict(self.run(command, timeout_s=seconds).ok)
        result = self.run("mkdir -p /logs/verifier; sh /tests/test.sh", timeout_s=seconds)
        reward = self._call("exec", self.name, "cat", REWARD)
        if reward.returncode == 0:
            return Verdict(reward.stdout.decode(errors="replace").strip() in ("1", "1.0"))
        return Verdict(result.ok)


def _lay_out(folder: str, files: Mapping[str, bytes]) -> None:
    """Writes files below a folder; a :class:`ZooError` for a path that leads out."""
    for path, data in files.items():
        target = Path(folder, *parts_of(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

"""The trainer's half of the sandbox: a folder, and commands that run in it under limits."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import selectors
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, cast

from zoo.agents.sandbox import files as folder_files
from zoo.agents.sandbox.walls import (
    Walls,
    best_walls,
    descendants_memory,
    processes,
    readable_folders,
)
from zoo.errors import ZooError

LAUNCHER = Path(__file__).with_name("launcher.py")
INSIDE = "/sandbox"  # where the folder lies in namespaces, the same in every run
INSIDE_NAME = re.compile(r"(/[A-Za-z0-9_-]+)+")
TAKEN = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "etc", "dev", "proc", "tmp")
OUTPUT = 64 * 1024  # bytes kept of each stream
FLOOD = 64 * OUTPUT  # bytes after which the command is ended
ENTRIES = 10_000  # files and folders
WATCH = 0.1  # seconds between looks at memory and disk
USERS = range(61184, 65520)  # uids that belong to nobody: systemd's range for passing services

# Where no filter of the kernel's is to be had: refuses sockets in Python programs.
HOOK = """
import sys
def refuse(event, args):
    if event.startswith("socket."):
        raise PermissionError("the sandbox has no network")
sys.addaudithook(refuse)
"""


class SandboxError(RuntimeError):
    """The sandbox itself failed, or can't be had as asked: nothing ran."""


@dataclass(frozen=True)
class Limits:
    """What a command may use.

    Attributes:
        timeout_s: Seconds of wall time.
        cpu_s: Seconds of CPU time of each process, whole.
        mem_mb: MiB of address space of each process, and of resident memory of all together.
        nproc: Processes and threads at a time.
        fsize_mb: MiB of each file.
        disk_mb: MiB of all files together.
    """

    timeout_s: float = 10
    cpu_s: int = 5
    mem_mb: int = 512
    nproc: int = 32
    fsize_mb: int = 16
    disk_mb: int = 64

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 < value < 1_000_000:
                raise ZooError(f"Sandbox limit {name}={value}: expected more than 0.")


@dataclass(frozen=True)
class Result:
    """How a command ended.

    Attributes:
        returncode: Exit status; 128 plus the signal's number if one ended it; 127 not found.
        stdout: First 64 KiB, undecodable bytes replaced.
        stderr: Likewise.
        killed_by: ``time``, ``output``, ``memory`` or ``disk`` if the sandbox ended it, else empty.
        truncated: Whether more was written to a stream than is kept.
        seconds: Wall time.
    """

    returncode: int
    stdout: str
    stderr: str
    killed_by: str = ""
    truncated: bool = False
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Exit status 0, and not ended by the sandbox."""
        return self.returncode == 0 and not self.killed_by


class Sandbox:
    """A temporary folder in which untrusted commands run, one at a time.

    Use it as a context manager, or call ``close``.

    Args:
        files: Path below the folder: content.
        limits: Of each command.
        network: Whether commands may use the network.
        strict: Refuse to run unless the kernel refuses network and outside files.
        inside: Path at which commands see the folder, where there are namespaces.
        walls: Those of the machine unless given.

    Raises:
        SandboxError: If ``strict`` can't be had.
        ZooError: If a path leads out of the folder.
    """

    def __init__(
        self,
        files: Mapping[str, str | bytes] | None = None,
        limits: Limits | None = None,
        *,
        network: bool = False,
        strict: bool = False,
        inside: str = INSIDE,
        walls: Walls | None = None,
    ) -> None:
        if sys.platform != "linux":
            raise SandboxError(f"The sandbox needs Linux, not {sys.platform}.")
        self.walls = walls or best_walls()
        self.limits, self.network = limits or Limits(), network
        if strict and not self.walls.strict:
            raise SandboxError(
                f"strict=True, but on this machine the network is refused by {self.walls.network} "
                f"and files by {self.walls.files}: allow user namespaces, or use a kernel with "
                "landlock and seccomp."
            )
        if not INSIDE_NAME.fullmatch(inside) or inside.split("/")[1] in TAKEN:
            raise ZooError(f"A sandbox can't lie at {inside!r}: expected such as '/app'.")
        if any(Path(path).is_relative_to(inside) for path in readable_folders()):
            raise ZooError(f"A sandbox at {inside!r} would hide the folder of this Python.")
        self._inside = inside
        self.uid = random.SystemRandom().choice(USERS) if self.walls.root else None
        self._base = Path(tempfile.mkdtemp(prefix="sandbox-"))
        self.folder = self._base / "work"
        for name in ("work", "root"):
            (self._base / name).mkdir()
        self._base.chmod(0o711)  # another user passes through it, and sees only its own folder
        os.chown(self.folder, self._owner, self._owner)
        self.folder.chmod(0o700)
        try:
            for path, content in (files or {}).items():
                self.write(path, content)
        except BaseException:
            self.close()
            raise

    @property
    def _owner(self) -> int:
        return -1 if self.uid is None else self.uid

    @property
    def inside(self) -> str:
        """The folder's path as commands see it."""
        return self._inside if "namespaces" in self.walls.layers else str(self.folder)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Deletes the folder."""
        folder_files.remove(self._base)

    def write(
        self, path: str, content: str | bytes, executable: bool = False, readonly: bool = False
    ) -> None:
        """Writes a file; raises a :class:`ZooError` if the path leads out, or through a link.

        What is ``readonly`` belongs to the present user: under root, commands can't change it.
        """
        owner = -1 if readonly else self._owner
        folder_files.write_file(self.folder, path, content, owner, executable)

    def read(self, path: str, limit: int = 1 << 20) -> bytes:
        """A regular file's content; a :class:`ZooError` for links and more than ``limit`` bytes."""
        return folder_files.read_file(self.folder, path, limit)

    def files(self) -> list[str]:
        """Paths of the regular files, sorted; links and the like are left out."""
        return sorted(p for p, s in folder_files.walk(self.folder) if stat.S_ISREG(s.st_mode))

    def run(
        self, command: str | Sequence[str], stdin: str = "", timeout_s: float | None = None
    ) -> Result:
        """Runs a command in the folder; nothing of it is left running when this returns.

        Args:
            command: Program and arguments; a string is run by ``/bin/sh``.
            stdin: What it can read.
            timeout_s: Instead of the limit's.

        Raises:
            SandboxError: If the walls could not be built; the command has not run.
        """
        words = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        if not words or any("\0" in word for word in words):
            raise ZooError(f"{words} is no command.")
        environment = {
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": self.inside,
            "LANG": "C.UTF-8",
        }
        if self.walls.network == "hook" and not self.network:
            self.write(".hook/sitecustomize.py", HOOK)
            environment["PYTHONPATH"] = f"{self.inside}/.hook"
        status_read, status_write = os.pipe()
        try:
            config = {
                "command": words,
                "environment": environment,
                "folder": str(self.folder),
                "inside": self.inside,
                "layers": list(self.walls.layers),
                "network": self.network,
                "parent": os.getpid(),
                "protected": [os.getpid(), os.getpgid(0)],
                "readonly": list(readable_folders()),
                "root": str(self._base / "root"),
                "status": status_write,
                "uid": self.uid,
                **asdict(self.limits),
                "nproc": self.limits.nproc + self._present_processes(),
            }
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(LAUNCHER), json.dumps(config)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={},
                cwd="/",
                start_new_session=True,
                pass_fds=[status_write],
            )
            os.close(status_write)
            status_write = -1
            watch = _Watch(process, self.folder, self.limits, timeout_s)
            result = watch.run(stdin.encode())
            problem = os.read(status_read, 1000).decode(errors="replace")
        finally:
            os.close(status_read)
            if status_write >= 0:
                os.close(status_write)
        if problem:
            raise SandboxError(f"The sandbox could not be set up: {problem}")
        return result

    def _present_processes(self) -> int:
        """What counts against the user's limit already: nothing, for a user of its own."""
        if self.walls.root or "namespaces" in self.walls.layers:
            return 0
        own = os.getuid()
        return sum(threads for _, user, threads, _ in processes().values() if user == own)


class _Watch:
    """Reads a command's output, and ends it when it oversteps a limit."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        folder: Path,
        limits: Limits,
        timeout_s: float | None,
    ) -> None:
        self.process, self.folder, self.limits = process, folder, limits
        self.start = time.monotonic()
        self.end = self.start + (timeout_s or limits.timeout_s)
        self.kept: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self.seen = 0
        self.killed_by = ""

    def run(self, stdin: bytes) -> Result:
        """Until the command has ended and closed its output."""
        try:
            self._read(memoryview(stdin))
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.killed_by = self.killed_by or "time"
        finally:
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
                with contextlib.suppress(OSError):
                    cast(IO[bytes], stream).close()
        texts = {k: bytes(v[:OUTPUT]).decode(errors="replace") for k, v in self.kept.items()}
        return Result(
            returncode=self.process.returncode,
            killed_by=self.killed_by,
            truncated=any(len(v) > OUTPUT for v in self.kept.values()),
            seconds=time.monotonic() - self.start,
            **texts,
        )

    def _read(self, stdin: memoryview) -> None:
        process = self.process
        look = self.start + WATCH
        with selectors.DefaultSelector() as selector:
            for name in self.kept:
                stream = getattr(process, name)
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ, name)
            source = cast(IO[bytes], process.stdin)
            if stdin:
                os.set_blocking(source.fileno(), False)
                selector.register(source, selectors.EVENT_WRITE, "stdin")
            else:
                source.close()
            while any(key.data != "stdin" for key in selector.get_map().values()):
                now = time.monotonic()
                for key, _ in selector.select(max(0.0, min(look, self.end) - now)):
                    if key.data == "stdin":
                        stdin = self._feed(selector, key.fileobj, stdin)
                    else:
                        self._take(selector, key.fileobj, key.data)
                now = time.monotonic()
                if now >= self.end:
                    self._stop("time")
                if now >= look:
                    self._look()
                    look = time.monotonic() + WATCH
                if self.killed_by and now > self.end + 2:  # the launcher itself hangs
                    return

    def _feed(self, selector: selectors.BaseSelector, stream: Any, data: memoryview) -> memoryview:
        try:
            data = data[os.write(stream.fileno(), data[:4096]) :]
        except BlockingIOError:
            return data
        except OSError:  # the command reads no more
            data = data[:0]
        if not data:
            selector.unregister(stream)
            with contextlib.suppress(OSError):
                stream.close()
        return data

    def _take(self, selector: selectors.BaseSelector, stream: Any, name: str) -> None:
        try:
            data = os.read(stream.fileno(), OUTPUT)
        except BlockingIOError:
            return
        if not data:
            selector.unregister(stream)
            return
        self.seen += len(data)
        room = OUTPUT + 1 - len(self.kept[name])
        self.kept[name] += data[: max(0, room)]
        if self.seen > FLOOD:
            self._stop("output")

    def _look(self) -> None:
        """At the memory and the disk that the command uses as a whole."""
        # The launcher and the namespace's first process come to some 10 MiB each.
        if descendants_memory(self.process.pid) > (self.limits.mem_mb + 24) << 20:
            self._stop("memory")
        size = 0
        for number, (_, status) in enumerate(folder_files.walk(self.folder)):
            size += status.st_blocks * 512
            if size > self.limits.disk_mb << 20 or number >= ENTRIES:
                self._stop("disk")
                break

    def _stop(self, reason: str) -> None:
        if not self.killed_by:
            self.killed_by = reason
            self.end = min(self.end, time.monotonic())
            with contextlib.suppress(OSError):
                self.process.send_signal(signal.SIGTERM)


def run(
    command: str | Sequence[str],
    files: Mapping[str, str | bytes] | None = None,
    *,
    timeout_s: float = 10,
    cpu_s: int = 5,
    mem_mb: int = 512,
    nproc: int = 32,
    fsize_mb: int = 16,
    network: bool = False,
    strict: bool = False,
) -> Result:
    """Runs one command in a fresh folder that is gone afterwards; see :class:`Sandbox`.

    Raises:
        SandboxError: If the walls can't be built.
        ZooError: If a path of ``files`` leads out of the folder, or a limit is not positive.
    """
    limits = Limits(timeout_s, cpu_s, mem_mb, nproc, fsize_mb)
    with Sandbox(files, limits, network=network, strict=strict) as box:
        return box.run(command)

"""Which walls this machine can build around a command: tried once, strongest first."""

from __future__ import annotations

import functools
import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

# Shown read-only beside the interpreter's own folders: programs, libraries, and what they look up.
SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"),
    *(f"/etc/{name}" for name in ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives")),
    *(f"/etc/{name}" for name in ("passwd", "group", "nsswitch.conf", "localtime", "mime.types")),
)


@dataclass(frozen=True)
class Walls:
    """What stands between a command and the machine.

    Attributes:
        layers: Of ``namespaces``, ``landlock``, ``seccomp`` and ``hook``, those in use.
        root: The commands run as a user of their own, since this process is root.
    """

    layers: tuple[str, ...]
    root: bool

    @property
    def network(self) -> str:
        """What refuses the network; ``hook`` holds Python programs only."""
        order = ("namespaces", "seccomp", "hook")
        return next(layer for layer in order if layer in self.layers)

    @property
    def files(self) -> str:
        """What makes files outside the folder unwritable; ``user`` is the ordinary permissions."""
        order = ("namespaces", "landlock")
        return next((layer for layer in order if layer in self.layers), "user")

    @property
    def strict(self) -> bool:
        """Whether the kernel itself refuses the network and all files outside."""
        return self.network != "hook" and self.files != "user"


# Strongest first. Containers commonly forbid namespaces and allow the two filters.
OFFERS = (
    ("namespaces", "seccomp"),
    ("landlock", "seccomp"),
    ("seccomp",),
    ("namespaces",),
    ("hook",),
)


@functools.cache
def best_walls() -> Walls:
    """The strongest walls under which a trial command runs here; warns of weak ones once."""
    from zoo.agents.sandbox.box import Sandbox, SandboxError

    root = os.geteuid() == 0
    reasons = []
    for layers in OFFERS:
        offer = Walls(layers, root)
        try:
            with Sandbox(walls=offer) as box:
                if layers == ("hook",) or box.run(["/bin/sh", "-c", "exit 42"]).returncode == 42:
                    break
        except SandboxError as error:
            reasons.append(str(error))
    if not offer.strict:
        log.warning(
            "The sandbox is weak on this machine: the network is refused by %s, files by %s. "
            "A hostile program can get out; strict=True refuses to run it. Tried: %s",
            offer.network,
            offer.files,
            "; ".join(reasons),
        )
    return offer


@functools.cache
def readable_folders() -> tuple[str, ...]:
    """What a command may read: the system's programs and this interpreter's folders."""
    paths = list(SYSTEM)
    for prefix in {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}:
        paths += [prefix, os.path.realpath(prefix)]
    kept: list[str] = []
    for path in sorted(set(paths)):
        inside = any(Path(path).is_relative_to(k) for k in kept if not os.path.islink(k))
        if os.path.lexists(path) and not inside:
            kept.append(path)
    return tuple(kept)


def processes() -> dict[int, tuple[int, int, int, int]]:
    """Of each process that can be seen: parent, user, threads, and resident bytes."""
    found = {}
    page = os.sysconf("SC_PAGE_SIZE")
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
            user = os.stat(f"/proc/{name}").st_uid
        except OSError:  # it ended meanwhile
            continue
        found[int(name)] = (int(fields[1]), user, int(fields[17]), int(fields[21]) * page)
    return found


def descendants_memory(parent: int) -> int:
    """Resident bytes of all processes below a process; pages that two share count twice."""
    table = processes()
    below: dict[int, list[int]] = {}
    for pid, (above, *_) in table.items():
        below.setdefault(above, []).append(pid)
    total, stack = 0, list(below.get(parent, ()))
    while stack:
        pid = stack.pop()
        total += table[pid][3]
        stack += below.get(pid, ())
    return total

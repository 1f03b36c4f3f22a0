"""The child's half of the sandbox: builds the walls, then becomes the command.

A script of the standard library alone, run as ``python -I -S launcher.py CONFIG`` with an empty
environment, so that nothing happens between fork and exec in the (threaded) trainer's process. What
goes wrong before the command starts is written to the ``status`` pipe, which exec closes: the
command can't write to it.

Three processes: the launcher waits, and ends what is left when the command ends; in namespaces its
child is process 1 of a process namespace, whose end takes all of them; below is the command.

System call numbers and structures are those of the Linux manual pages: namespaces(7),
pivot_root(2), mount_setattr(2), seccomp(2), landlock(7), prctl(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import resource
import signal
import stat
import struct
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

SETUP_FAILED = 125
NOT_FOUND = 127

# --------------------------------------------------------------------------------- system calls
libc = ctypes.CDLL(None, use_errno=True)

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 22, 36, 38
NEW_NS, NEW_UTS, NEW_IPC, NEW_USER, NEW_PID, NEW_NET = (
    0x00020000,
    0x04000000,
    0x08000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
NEW_CGROUP = 0x02000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
MNT_DETACH, AT_FDCWD, AT_RECURSIVE = 2, -100, 0x8000
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4

# Name: numbers on x86_64 and aarch64. None where an architecture has no such call.
CALLS: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),  # would open sockets past the filter
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "memfd_create": (319, 279),  # memory that no limit counts
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "msgget": (68, 186),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "semget": (64, 190),
    "setns": (308, 268),
    "shmget": (29, 194),  # outlives the process, and counts against no limit of it
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
}
SOCKET = (41, 198)
CLONE, CLONE3, PRLIMIT64 = (56, 220), (435, 435), (302, 261)
SETSID, SETPGID = (112, 157), (109, 154)
KILL, TKILL, TGKILL = (62, 129), (200, 130), (234, 131)
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, AUDIT_ARCH
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
PIVOT_ROOT = CALLS["pivot_root"]


def check(result: int, what: str) -> int:
    """The result of a C call; raises OSError with its errno if it is negative."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def prctl(option: int, value: int, extra: Any = 0) -> None:
    """Sets an attribute of this process."""
    check(libc.prctl(option, ctypes.c_ulong(value), extra, 0, 0), f"prctl({option})")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """Mounts; ``None`` is the system call's null."""
    encoded = [None if x is None else os.fsencode(x) for x in (source, target, kind)]
    check(libc.mount(*encoded, ctypes.c_ulong(flags), data.encode()), f"mount {target}")


def set_attributes(path: str, attributes: int, recursive: bool = True) -> None:
    """Adds attributes to a mount and those below it, see mount_setattr(2); Linux 5.12."""
    value = struct.pack("QQQQ", attributes, 0, 0, 0)
    flags = AT_RECURSIVE if recursive else 0
    number = CALLS["mount_setattr"][0]
    result = libc.syscall(number, AT_FDCWD, os.fsencode(path), flags, value, len(value))
    check(result, f"mount_setattr {path}")


# ---------------------------------------------------------------------------------- namespaces
def enter_namespaces(as_root: bool) -> None:
    """Leaves the network, the mounts, the processes and the host's name behind."""
    flags = NEW_NS | NEW_UTS | NEW_IPC | NEW_PID | NEW_NET
    uid, gid = os.getuid(), os.getgid()
    check(libc.unshare(flags | (0 if as_root else NEW_USER)), "unshare")
    if not as_root:
        # Mapped to itself and not to 0: a user other than 0 loses its capabilities at exec.
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)


def bind(source: str, target: str, attributes: int) -> None:
    """Shows a file or folder of the host, with attributes, or a link as a link."""
    if os.path.islink(source):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.symlink(os.readlink(source), target)
        return
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    mount(source, target, None, MS_BIND | MS_REC)
    set_attributes(target, attributes)


def build_root(config: dict[str, Any]) -> None:
    """A root that holds what is listed, read-only, and the working folder; the rest is gone."""
    root, quiet = config["root"], ATTR_NOSUID | ATTR_NODEV
    os.umask(0o022)
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "size=4m,mode=755")
    # First, since this Python may lie in /tmp itself.
    for name in ("/tmp", "/dev/shm"):
        os.makedirs(root + name)
        mount("tmpfs", root + name, "tmpfs", 6, f"size={config['fsize_mb']}m,mode=1777")
    for path in config["readonly"]:
        bind(path, root + path, quiet | ATTR_RDONLY)
    for name in ("null", "zero", "full", "random", "urandom"):
        bind(f"/dev/{name}", f"{root}/dev/{name}", ATTR_NOSUID)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{target}", f"{root}/dev/{name}")
    os.makedirs(root + "/proc")
    with contextlib.suppress(OSError):  # a container that masks parts of its own: then none
        mount("proc", root + "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    bind(config["folder"], root + config["inside"], quiet)
    os.chdir(root)
    # Both names the same: the old root comes to lie on the new one, and is lifted off.
    number = PIVOT_ROOT[machine()[0]]
    check(libc.syscall(number, b".", b"."), "pivot_root")
    check(libc.umount2(b".", MNT_DETACH), "umount2")
    os.chdir("/")
    set_attributes("/", ATTR_RDONLY | quiet, recursive=False)


# ------------------------------------------------------------------------------------- seccomp
def machine() -> tuple[int, int]:
    """The column of the table of calls, and the kernel's number of this architecture."""
    name = platform.machine()
    if name not in MACHINES or sys.maxsize < 2**32:
        raise OSError(f"no table of system calls for {name}")
    return MACHINES[name]


class Filter:
    """A seccomp program: what it doesn't name is allowed."""

    LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
    ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000

    def __init__(self) -> None:
        self.column, arch = machine()
        self.code = b""
        self._add(self.LOAD, 4)
        self._add(self.EQUAL, arch, 1, 0)
        self._add(self.RETURN, self.KILL)
        self._add(self.LOAD, 0)
        if self.column == 0:  # the x32 calls of x86_64 have numbers of their own
            self._add(self.AT_LEAST, 0x40000000, 0, 1)
            self._add(self.RETURN, self.ERRNO | 1)

    def _add(self, code: int, value: int, yes: int = 0, no: int = 0) -> None:
        self.code += struct.pack("HBBI", code, yes, no, value & 0xFFFFFFFF)

    def refuse(self, call: tuple[int | None, int | None], error: int = 1) -> None:
        """Answers a call with an error, EPERM unless said otherwise."""
        number = call[self.column]
        if number is not None:
            self._add(self.EQUAL, number, 0, 1)
            self._add(self.RETURN, self.ERRNO | error)

    def refuse_if(
        self, call: tuple[int, int], argument: int, test: int, value: int, wanted: bool = True
    ) -> None:
        """Answers EPERM where a test of the low half of an argument is as wanted."""
        self._add(self.EQUAL, call[self.column], 0, 4)
        self._add(self.LOAD, 16 + 8 * argument)
        self._add(test, value, *((0, 1) if wanted else (1, 0)))
        self._add(self.RETURN, self.ERRNO | 1)
        self._add(self.LOAD, 0)

    def install(self) -> None:
        """From here on, for this process and all it starts. Needs no_new_privs."""
        self._add(self.RETURN, self.ALLOW)
        buffer = ctypes.create_string_buffer(self.code, len(self.code))
        program = struct.pack("HxxxxxxQ", len(self.code) // 8, ctypes.addressof(buffer))
        prctl(PR_SET_SECCOMP, 2, program)


def install_filter(config: dict[str, Any], protected: Iterable[int]) -> None:
    """Refuses what no task needs: debuggers, mounts, namespaces, keys, and sockets."""
    rules = Filter()
    for call in CALLS.values():
        rules.refuse(call)
    if not config["network"]:
        rules.refuse(SOCKET)
    namespaces = NEW_NS | NEW_UTS | NEW_IPC | NEW_USER | NEW_PID | NEW_NET | NEW_CGROUP
    rules.refuse_if(CLONE, 0, Filter.ANY_BIT, namespaces)
    rules.refuse(CLONE3, error=38)  # ENOSYS: libraries fall back on clone, whose flags are seen
    rules.refuse_if(PRLIMIT64, 0, Filter.EQUAL, 0, wanted=False)  # of itself only
    if "namespaces" not in config["layers"]:
        # All stay in the command's group, by which they are found and ended.
        rules.refuse(SETSID)
        rules.refuse(SETPGID)
        for pid in {-1, *protected, *(-p for p in protected)}:
            for signal_call in (KILL, TKILL, TGKILL):
                rules.refuse_if(signal_call, 0, Filter.EQUAL, pid)
    rules.install()


# ------------------------------------------------------------------------------------ landlock
def landlock_version() -> int:
    """The kernel's version of landlock's interface, 0 where there is none."""
    return max(0, int(libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)))


def landlock_rules(config: dict[str, Any]) -> int:
    """A handle of rules that confine files to those listed, and signals to its own kind."""
    version = landlock_version()
    if not version:
        raise OSError("landlock: not in this kernel")
    every = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    read, use = 1 << 0 | 1 << 2 | 1 << 3, 1 << 1 | 1 << 2  # execute, read, list; write, read
    attributes = struct.pack("QQQ", every, 0, 3 if version >= 6 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24
    rules = check(libc.syscall(LANDLOCK_CREATE, attributes, ctypes.c_size_t(size), 0), "landlock")
    allowed = [(path, read) for path in config["readonly"]]
    allowed += [(f"/dev/{n}", use) for n in ("null", "zero", "full", "random", "urandom")]
    allowed.append((config["folder"], every))
    for path, access in allowed:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            access &= 1 << 0 | 1 << 1 | 1 << 2
        rule = struct.pack("=Qi", access, handle)
        check(libc.syscall(LANDLOCK_ADD, rules, 1, rule, 0), f"landlock {path}")
        os.close(handle)
    return rules


# ------------------------------------------------------------------------------------- processes
def become_command(config: dict[str, Any], protected: Iterable[int]) -> NoReturn:
    """Gives up what is left of privileges, and runs the command in this process."""
    mib = 1 << 20
    for kind, soft, hard in (
        (resource.RLIMIT_CPU, config["cpu_s"], config["cpu_s"] + 1),
        (resource.RLIMIT_AS, config["mem_mb"] * mib, config["mem_mb"] * mib),
        (resource.RLIMIT_FSIZE, config["fsize_mb"] * mib, config["fsize_mb"] * mib),
        (resource.RLIMIT_NOFILE, 256, 256),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_MEMLOCK, 0, 0),
        (resource.RLIMIT_NPROC, config["nproc"], config["nproc"]),
    ):
        resource.setrlimit(kind, (soft, hard))
    # Before the change of user, who may not be let as far as these folders.
    rules = landlock_rules(config) if "landlock" in config["layers"] else None
    if config["uid"] is not None:
        os.setgroups([])
        os.setresgid(config["uid"], config["uid"], config["uid"])
        os.setresuid(config["uid"], config["uid"], config["uid"])
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # after the change of user, which clears it
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    os.umask(0o022)
    os.chdir(config["inside"])
    if rules is not None:
        check(libc.syscall(LANDLOCK_RESTRICT, rules, 0), "landlock")
        os.close(rules)
    if "seccomp" in config["layers"]:
        install_filter(config, protected)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and exec would keep that
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execvpe(config["command"][0], config["command"], config["environment"])
    except OSError as error:
        os.write(2, f"{config['command'][0]}: {os.strerror(error.errno or 0)}\n".encode())
        os._exit(NOT_FOUND)


def guarded(status: int, call: Any, *args: Any) -> NoReturn:
    """Runs a child's part; what goes wrong is written to the status pipe."""
    try:
        call(*args)
    except BaseException as error:
        os.write(status, str(error).encode()[:1000])
    os._exit(SETUP_FAILED)


def first_process(config: dict[str, Any]) -> NoReturn:
    """Process 1 of the namespace: builds the root, starts the command, buries orphans."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    build_root(config)
    child = os.fork()
    if child == 0:
        guarded(config["status"], become_command, config, ())
    release(config)
    os._exit(wait_for(child))


def release(config: dict[str, Any]) -> None:
    """Lets go of the pipes, so that their ends are the command's alone."""
    os.close(config["status"])
    null = os.open("/dev/null", os.O_RDWR)
    for handle in (0, 1, 2):
        os.dup2(null, handle)


def wait_for(child: int) -> int:
    """The exit status of a child in the shell's way, burying others meanwhile."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code


def children_of(parent: int) -> list[int]:
    """Process ids of the direct children."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == parent:
                found.append(int(name))
    return found


def end_the_rest(group: int) -> None:
    """Kills and buries whatever the command left behind; orphans come to this process."""
    while True:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                for pid in children_of(os.getpid()):
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(-1, 0)
        except ChildProcessError:
            return
        except ProcessLookupError:
            continue


def main() -> None:
    """Reads the configuration, starts the command, and ends as it ended."""
    config = json.loads(sys.argv[1])
    os.set_inheritable(config["status"], False)
    namespaces = "namespaces" in config["layers"]
    try:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        if namespaces:
            enter_namespaces(config["uid"] is not None)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != config["parent"]:
            os._exit(SETUP_FAILED)
    except OSError as error:
        os.write(config["status"], str(error).encode())
        os._exit(SETUP_FAILED)
    launcher = os.getpid()
    child = os.fork()
    if child == 0:
        if namespaces:
            guarded(config["status"], first_process, config)
        os.setpgid(0, 0)
        protected = (launcher, *config["protected"])
        guarded(config["status"], become_command, config, protected)

    def stop(*_: object) -> None:
        with contextlib.suppress(OSError):
            (os.kill if namespaces else os.killpg)(child, signal.SIGKILL)

    signal.signal(signal.SIGTERM, stop)
    release(config)
    code = wait_for(child)
    end_the_rest(child)
    os._exit(code)


if __name__ == "__main__":
    main()

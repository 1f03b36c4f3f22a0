"""Programs that try to get out of the sandbox, and what has to hold after each.

A module of its own, without pytest, so that another user can run it as well:
``python -m tests.agents_core.sandbox_escapes LAYER...``.
"""

import os
import socket
import sys
import tempfile
import time
from pathlib import Path

from zoo import ZooError
from zoo.agents.sandbox import Limits, Sandbox, Walls
from zoo.agents.sandbox.walls import processes

SECRET = "s3cret-of-the-parent"


def python(box, program, **options):
    return box.run(["python3", "-I", "-S", "-c", program], **options)


def attempt(box, statements, imports="os"):
    """Runs statements that must fail with an OSError."""
    program = f"import {imports}\ntry:\n"
    program += "".join(f"    {line}\n" for line in statements.splitlines())
    program += "except OSError as e: print('refused', type(e).__name__)\nelse: print('open')"
    result = python(box, program)
    assert result.stdout.startswith("refused"), (statements, result)


def refused(call, *arguments):
    """Calls with arguments that must raise a ZooError."""
    try:
        found = call(*arguments)
    except ZooError:
        return
    raise AssertionError((arguments, found))


def left_behind(box, program, **options):
    """Runs a program in a box; no process that knows its folder's name or user remains."""
    before = set(processes())
    result = python(box, program, **options)
    mark = box.uid if box.uid is not None else os.getuid()
    for _ in range(20):
        new = {p for p, (_, user, *_) in processes().items() if user == mark} - before
        new = {p for p in new if _is_ours(p, box)}
        if not new:
            return result
        time.sleep(0.05)
    raise AssertionError(f"still running: {new}")


def _is_ours(pid, box):
    if box.uid is not None:
        return True
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"escape-marker" in words
    except OSError:
        return False


def environment(make):
    os.environ["API_KEY"] = SECRET
    with make() as box:
        names = box.run(["/usr/bin/env"]).stdout.split("\n")
        assert {n.partition("=")[0] for n in names if n} <= {"PATH", "HOME", "LANG", "PYTHONPATH"}
        if box.walls.strict or box.uid is not None:  # else the user's own processes are readable
            found = python(
                box,
                "import glob\nfor p in glob.glob('/proc/[0-9]*/environ'):\n"
                "    try: print(open(p).read())\n    except OSError: pass",
            )
            assert SECRET not in found.stdout + found.stderr


def network(make):
    with socket.create_server(("127.0.0.1", 0)) as server, make() as box:
        port = server.getsockname()[1]
        attempt(box, f"socket.create_connection(('127.0.0.1', {port}), 1)", "socket")
        if "seccomp" in box.walls.layers:
            attempt(box, "socket.socket(socket.AF_UNIX)", "socket")
            attempt(box, "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", "socket")


def files(make):
    with tempfile.TemporaryDirectory() as outside, make() as box:
        os.chmod(outside, 0o777)
        note = Path(outside, "note")
        note.write_text(SECRET)
        note.chmod(0o666)
        attempt(box, "open('/etc/passwd', 'a')")
        attempt(box, "open('/usr/bin/python3', 'r+b')")
        if box.walls.files != "user":
            attempt(box, f"open({str(note)!r})")
            attempt(box, f"open({str(note)!r}, 'w')")
            attempt(box, f"open({outside + '/new'!r}, 'w')")
            attempt(box, "open('/etc/shadow')")
        assert note.read_text() == SECRET
        assert os.listdir(outside) == ["note"]
        assert python(box, "open('mine', 'w').write('x'); open('/dev/null', 'w')").ok
        assert box.files()[-1] == "mine"


def links(make):
    with tempfile.TemporaryDirectory() as outside, make({"in/file": "inside"}) as box:
        note = Path(outside, "note")
        note.write_text(SECRET)
        made = python(
            box,
            f"import os\nos.symlink({str(note)!r}, 'link')\nos.symlink({outside!r}, 'folder')\n"
            "os.mkfifo('pipe')\nos.symlink('/', 'root')",
        )
        assert made.ok, made
        for path in ("link", "folder/note", "pipe", "root/etc/passwd", "../x", "/etc/passwd", ""):
            refused(box.read, path)
        for path in ("folder/new", "root/tmp/new", "../new", "/tmp/new"):
            refused(box.write, path, "x")
        box.write("link", "replaces the link, not its target")
        assert note.read_text() == SECRET
        assert set(box.files()) >= {"in/file", "link"}
        assert not {"pipe", "folder/note"} & set(box.files())
        base = box.folder.parent
        python(
            box, "import os\nos.makedirs('deep/er'); os.chmod('deep/er', 0); os.chmod('deep', 0)"
        )
    assert not base.exists()


def processes_end(make):
    fork_bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    daemon = (
        "import os, sys\n"
        "if os.fork() == 0:\n"
        "    try: os.setsid()\n"
        "    except OSError: pass\n"
        "    if os.fork() == 0:\n"
        "        os.closerange(0, 3)\n"
        "        os.execvp('sh', ['sh', '-c', 'sleep 60; : escape-marker'])\n"
        "    os._exit(0)\n"
    )
    zombies = "import os\nfor _ in range(5):\n    if os.fork() == 0: os._exit(0)\n"
    with make(limits=Limits(timeout_s=60, nproc=16)) as box:
        assert left_behind(box, fork_bomb, timeout_s=0.7).killed_by == "time"
        assert left_behind(box, daemon).ok
        assert left_behind(box, zombies).ok
        assert left_behind(box, "import time; time.sleep(60)", timeout_s=0.7).killed_by == "time"
        own = [pid for pid, (parent, *_) in processes().items() if parent == os.getpid()]
        assert all(os.waitid(os.P_PID, p, os.WEXITED | os.WNOHANG) is None for p in own)
        assert box.run("echo alive").stdout == "alive\n"


def signals(make):
    with make() as box:
        python(box, "import os; os.kill(-1, 9)")
        if box.walls.layers != ("hook",) or box.uid is not None:
            python(box, f"import os; os.kill({os.getpid()}, 9)")
            python(box, f"import os; os.kill(-{os.getpgid(0)}, 9)")
        if "seccomp" in box.walls.layers:
            attempt(
                box,
                "libc = ctypes.CDLL(None, use_errno=True)\n"
                "if libc.ptrace(16, os.getppid(), 0, 0): raise OSError(ctypes.get_errno())",
                "os, ctypes",
            )
            attempt(
                box,
                "libc = ctypes.CDLL(None, use_errno=True)\n"
                "if libc.unshare(0x10000000): raise OSError(ctypes.get_errno())",
                "os, ctypes",
            )


def memory(make):
    with make() as box:
        assert "MemoryError" in python(box, "x = bytearray(2 << 30)").stderr
    hoard = (
        "import os, time\nfor _ in range(8):\n"
        "    if os.fork() == 0:\n        x = bytearray(b'1') * (40 << 20); time.sleep(60)\n"
        "time.sleep(60)"
    )
    with make(limits=Limits(timeout_s=60, mem_mb=200)) as box:
        assert python(box, hoard).killed_by == "memory"


def output(make):
    with make() as box:
        flood = box.run("yes escape-marker")
        assert flood.killed_by == "output"
        assert flood.truncated
        assert len(flood.stdout) == 64 * 1024
        some = python(box, "print('x' * 100_000)")
        assert (some.ok, some.truncated, len(some.stdout)) == (True, True, 64 * 1024)


def disk(make):
    with make(limits=Limits(timeout_s=60, fsize_mb=1, disk_mb=4)) as box:
        big = python(box, "open('big', 'wb').write(bytes(2 << 20))")
        assert not big.ok
        assert (box.folder / "big").stat().st_size <= 1 << 20
        many = "import time\nfor i in range(9): open(str(i), 'wb').write(bytes(1 << 19) * 2)\n"
        assert python(box, many + "time.sleep(60)").killed_by == "disk"


ESCAPES = {
    f.__name__: f
    for f in (
        environment,
        network,
        files,
        links,
        processes_end,
        signals,
        memory,
        output,
        disk,
    )
}


def maker(layers):
    """Makes boxes with these walls."""
    walls = Walls(tuple(layers), os.geteuid() == 0)

    def make(files=None, limits=None):
        # A busy machine is no reason to fail.
        return Sandbox(files, limits or Limits(timeout_s=60), walls=walls)

    return make


if __name__ == "__main__":
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
    for name, escape in ESCAPES.items():
        escape(maker(sys.argv[1:]))
        sys.stdout.write(f"{name} held\n")

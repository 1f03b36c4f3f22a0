"""The sandbox's limits, and every escape tried against every set of walls, as root and not."""

import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from zoo import ZooError
from zoo.agents.sandbox import Limits, Sandbox, SandboxError, Walls, best_walls, run
from zoo.agents.sandbox import walls as walls_module

from .sandbox_escapes import ESCAPES, attempt, maker, python

WALLS = [("namespaces", "seccomp"), ("landlock", "seccomp"), ("seccomp",)]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")


def needs(layers):
    """Skips, visibly, where this machine can't build these walls."""
    try:
        with maker(layers)() as box:
            box.run(["/bin/true"])
    except SandboxError as error:
        pytest.skip(f"{layers}: {error}")


@pytest.mark.parametrize("layers", WALLS[:2], ids="-".join)
@pytest.mark.parametrize("escape", ESCAPES)
def test_escape_is_refused(escape, layers):
    needs(layers)
    ESCAPES[escape](maker(layers))


@pytest.mark.slow
@pytest.mark.parametrize("layers", WALLS, ids="-".join)
def test_escapes_are_refused_without_root(layers):
    """As user nobody, with an interpreter that it may run."""
    if os.geteuid() != 0:
        pytest.skip("the tests above ran without root already")
    for interpreter in (sys.executable, f"/usr/bin/python{sys.version_info[0]}"):
        paths = [os.path.abspath(p) for p in sys.path if p]
        repository = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        done = subprocess.run(
            [interpreter, "-m", "tests.agents_core.sandbox_escapes", *layers],
            env={"PYTHONPATH": ":".join([repository, *paths]), "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode == 0:
            assert done.stdout.count("held") == len(ESCAPES)
            return
    if "Permission denied" in done.stderr and "held" not in done.stdout:
        pytest.skip(f"no interpreter for nobody: {done.stderr[-200:]}")
    raise AssertionError(done.stdout + done.stderr)


def test_hook_refuses_python_sockets_and_strict_refuses_the_hook(caplog, monkeypatch):
    weak = Walls(("hook",), os.geteuid() == 0)
    with Sandbox(walls=weak) as box:
        result = box.run(["python3", "-c", "import socket; socket.socket()"])
        assert "no network" in result.stderr or "Permission denied" in result.stderr
    with pytest.raises(SandboxError, match="network is refused by hook"):
        Sandbox(walls=weak, strict=True)
    monkeypatch.setattr(walls_module, "OFFERS", (("hook",),))
    with caplog.at_level(logging.WARNING):
        assert best_walls.__wrapped__() == weak
    assert "weak on this machine" in caplog.text


FORBID = """
import sys
from zoo.agents.sandbox import launcher
rules = launcher.Filter()
if "unshare" in sys.argv:
    rules.refuse(launcher.CALLS["unshare"])
if "landlock" in sys.argv:
    rules.refuse((launcher.LANDLOCK_CREATE,) * 2)
if "seccomp" in sys.argv:
    rules.refuse_if((157, 167), 0, launcher.Filter.EQUAL, launcher.PR_SET_SECCOMP)  # prctl
launcher.prctl(launcher.PR_SET_NO_NEW_PRIVS, 1)
rules.install()
from zoo.agents.sandbox import Limits, Sandbox, SandboxError, best_walls
from tests.agents_core.sandbox_escapes import attempt
print(" ".join(best_walls().layers))
with Sandbox(limits=Limits(timeout_s=60)) as box:
    if best_walls().network != "hook":
        attempt(box, "socket.socket()", "socket")
    attempt(box, "open('/etc/passwd', 'a')")
try:
    Sandbox(strict=True).close()
except SandboxError:
    print("refused")
"""


@pytest.mark.parametrize(
    ("forbidden", "layers"),
    [
        (["unshare"], "landlock seccomp"),
        (["unshare", "landlock"], "seccomp"),
        (["unshare", "landlock", "seccomp"], "hook"),
    ],
    ids=["container", "old kernel", "neither"],
)
def test_falls_back_where_calls_are_forbidden(forbidden, layers):
    """In a process that may not make these calls, as in a container."""
    needs(("landlock", "seccomp"))
    repository = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    done = subprocess.run(
        [sys.executable, "-c", FORBID, *forbidden],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([repository, *filter(None, sys.path)])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[0] == layers
    strict = layers == "landlock seccomp"
    assert ("refused" in done.stdout) != strict
    assert ("weak on this machine" in done.stderr) != strict


def test_results():
    result = run("echo out; echo err >&2; exit 3")
    assert (result.returncode, result.stdout, result.stderr) == (3, "out\n", "err\n")
    assert not result.ok
    assert run(["no-such-program"]).returncode == 127
    assert run("exit 125").returncode == 125
    assert run("kill -TERM $$").returncode == 128 + 15
    assert run(["cat", "a/b.txt"], {"a/b.txt": "text"}).stdout == "text"


def test_stdin_and_the_folder_last_from_run_to_run():
    with Sandbox({"a": "1"}) as box:
        assert box.run("cat >> a; pwd", stdin="2" * 200_000).stdout == box.inside + "\n"
        assert len(box.read("a")) == 200_001
        with pytest.raises(ZooError, match="larger than 10 bytes"):
            box.read("a", limit=10)
        assert box.files() == ["a"]
        folder = box.folder
    assert not folder.exists()


def test_boxes_run_side_by_side():
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda i: run(f"echo {i} > a; sleep 0.2; cat a").stdout, range(8))
    assert list(found) == [f"{i}\n" for i in range(8)]


def test_the_folder_lies_where_a_task_expects_it():
    if "namespaces" not in best_walls().layers:
        pytest.skip("a folder can lie elsewhere in namespaces only")
    with Sandbox({"a": "1"}, inside="/app/data") as box:
        assert box.run("cat /app/data/a; echo 2 > /app/data/b; pwd").stdout == "1/app/data\n"
        assert box.files() == ["a", "b"]
    for inside in ("/usr/app", "app", "/", "/a/../b"):
        with pytest.raises(ZooError, match="can't lie at"):
            Sandbox(inside=inside)
    with pytest.raises(ZooError, match="hide the folder of this Python"):
        Sandbox(inside="/" + sys.base_prefix.split("/")[1])


def test_cpu_limit():
    assert run(["python3", "-c", "while True: pass"], cpu_s=1, timeout_s=60).returncode == 128 + 24


def test_bad_input():
    with pytest.raises(ZooError, match="mem_mb=0"):
        Limits(mem_mb=0)
    for path in ("../x", "/x", "a/../../x", ""):
        with pytest.raises(ZooError, match="no path inside"):
            run("true", {path: "x"})
    with pytest.raises(ZooError, match="no command"):
        run([])


@pytest.mark.parametrize("layers", WALLS[:1], ids="-".join)
def test_network_is_there_when_asked_for(layers):
    needs(layers)
    with Sandbox(network=True, walls=Walls(("seccomp",), os.geteuid() == 0)) as box:
        assert python(box, "import socket; socket.socket()").ok
        with pytest.raises(AssertionError):
            attempt(box, "socket.socket()", "socket")

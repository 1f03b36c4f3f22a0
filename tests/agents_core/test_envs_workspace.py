"""Files and commands as tasks; task folders; agents that cheat."""

import json

import pytest

from tests.agents_core.inside import python_runs_inside
from zoo import ZooError
from zoo.agents.envs import Task
from zoo.agents.envs.workspace import SandboxEnv, encode, harbor_task, harbor_tasks
from zoo.agents.sandbox import Limits, best_walls

needs_python = pytest.mark.skipif(
    not python_runs_inside(), reason="this Python cannot be run by another user here"
)


def sums(files):
    return files.get("out.txt", b"").strip() == b"6"


TASK = Task(
    "sum",
    "text",
    "train",
    0,
    {"instruction": "Sum it.", "files": encode({"in.txt": b"1 2 3"}), "verifier": "sums"},
)


def env_of(**options):
    return SandboxEnv({"sums": sums}, Limits(timeout_s=60), **options)


def test_actions_state_and_verdict():
    env = env_of()
    obs = env.reset(TASK)
    assert "Sum it." in obs.text
    assert "in.txt" in obs.text
    assert env.step('read(path="in.txt")').obs.text == "1 2 3"
    assert env.step('read(path="../../etc/passwd")').info["valid"] is False
    assert env.step("please sum it").info["valid"] is False
    assert env.step("run()").info["valid"] is False
    assert "exit status 3" in env.step('run(command="echo 6 > out.txt; exit 3")').obs.text
    assert env.step("list()").obs.text == "in.txt\nout.txt"
    state = json.loads(json.dumps(env.state_dict()))
    assert env.verify(TASK, state)
    env.step('write(path="out.txt", text="7")')
    assert not env.verify(TASK, env.state_dict())
    env.load_state_dict(state)
    assert env.step("done()")[1:] == (1.0, True, {"success": True, "valid": True})
    folder = env.box.folder
    env.close()
    env.close()
    assert not folder.exists()
    with pytest.raises(ZooError, match="begins with reset"):
        env.step("done()")


def test_saying_so_is_not_doing_it():
    env = env_of(max_steps=2)
    env.reset(TASK)
    env.step('run(command="echo The answer is 6")')
    assert env.step('write(path="answer.txt", text="6")')[1:3] == (0.0, True)
    env.close()


def test_long_output_is_cut_in_the_middle():
    env = env_of()
    env.reset(TASK)
    text = env.step('run(command="seq 1 9999")').obs.text
    assert len(text) < 4100
    assert text.startswith("1\n")
    assert "exit status 0" in text
    env.close()


def test_bad_tasks():
    with pytest.raises(ZooError, match="no verifier"):
        env_of().reset(Task("x", "y", "train", 0, {"instruction": ""}))
    with pytest.raises(ZooError, match="asks for the verifier 'other'"):
        env_of().reset(Task("x", "y", "train", 0, {"instruction": "", "verifier": "other"}))


TEST = """\
from pathlib import Path

def test_content():
    assert Path("out.txt").read_text().strip() == "6"

def test_program():
    import subprocess, sys
    done = subprocess.run([sys.executable, "solve.py"], capture_output=True, text=True)
    assert done.stdout.strip() == "6"
"""


@pytest.fixture
def folder(tmp_path):
    task = tmp_path / "tasks" / "sum-it"
    for name in ("environment/data", "tests", "solution"):
        (task / name).mkdir(parents=True)
    (task / "task.toml").write_text(
        'version = "1.0"\n[metadata]\ncategory = "text"\n[verifier]\ntimeout_sec = 90.0\n'
    )
    (task / "instruction.md").write_text("Write the sum of data/in.txt to out.txt.\n")
    (task / "environment" / "Dockerfile").write_text("FROM python:3.12\nWORKDIR /app/\n")
    (task / "environment" / "data" / "in.txt").write_text("1 2 3")
    (task / "tests" / "test_outputs.py").write_text(TEST)
    (task / "solution" / "solve.sh").write_text(
        "echo 'print(sum(map(int, open(\"data/in.txt\").read().split())))' > solve.py\n"
        "python3 solve.py > out.txt\n"
    )
    return task


def play(folder, *commands):
    env = SandboxEnv(limits=Limits(timeout_s=60))
    env.reset(harbor_task(folder))
    for command in commands:
        env.step(json.dumps({"name": "run", "arguments": {"command": command}}))
    step = env.step("done()")
    env.close()
    return step.info["success"]


@needs_python
def test_task_folder(folder):
    (task,) = harbor_tasks(folder.parent.parent)
    assert task.family == "text"
    assert task.payload["timeouts"] == {"agent": 600.0, "verifier": 90.0}
    env = SandboxEnv(limits=Limits(timeout_s=60))
    obs = env.reset(task)
    assert obs.text.startswith("Write the sum")
    assert "data/in.txt" in obs.text
    assert "test_outputs" not in obs.text
    if "namespaces" in best_walls().layers:
        assert env.step('run(command="pwd")').obs.text.startswith("/app\n")
    env.close()
    assert play(folder, (folder / "solution" / "solve.sh").read_text())


CHEATS = (
    "echo 'import os; os._exit(0)' > conftest.py; cp conftest.py sitecustomize.py",
    "mkdir pytest; echo 'raise SystemExit(0)' > pytest/__init__.py; cp -r pytest _pytest",
    "echo 'raise SystemExit(0)' > pathlib.py",
    "printf '[pytest]\\naddopts = --collect-only\\n' > pytest.ini",
    "mkdir tests; echo 'def test_x(): pass' > tests/test_outputs.py",
)


def test_cheating_gets_nothing(folder):
    assert not play(folder, *CHEATS)


def test_a_tested_module_cannot_end_the_tests(folder):
    (folder / "tests" / "test_outputs.py").write_text(
        "import importlib.util\n"
        "def test_it():\n"
        "    spec = importlib.util.spec_from_file_location('m', 'm.py')\n"
        "    m = importlib.util.module_from_spec(spec)\n"
        "    spec.loader.exec_module(m)\n"
        "    assert m.x == 1\n"
    )
    assert not play(folder, "echo 'import os; os._exit(0)' > m.py")
    assert not play(folder, "echo 'import pytest; pytest.skip()' > m.py")


def test_shell_tests(folder):
    (folder / "tests" / "test_outputs.py").unlink()
    (folder / "tests" / "test.sh").write_text("grep -qx 6 out.txt\n")
    assert play(folder, "echo 6 > out.txt")
    assert not play(folder, "echo 7 > out.txt")


def test_malformed_folders(folder):
    (folder / "environment" / "link").symlink_to("/etc/passwd")
    with pytest.raises(ZooError, match="link"):
        harbor_task(folder)
    (folder / "environment" / "link").unlink()
    (folder / "tests" / "test_outputs.py").unlink()
    with pytest.raises(ZooError, match="neither test_outputs"):
        harbor_task(folder)
    (folder / "task.toml").write_text("= 3")
    with pytest.raises(ZooError, match="no TOML"):
        harbor_task(folder)
    (folder / "instruction.md").unlink()
    with pytest.raises(ZooError, match="lacks instruction"):
        harbor_task(folder)
    with pytest.raises(ZooError, match="no task folders"):
        harbor_tasks(folder)

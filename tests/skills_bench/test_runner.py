"""Conditions, harness, runner: what agents are told, what they can't do, and what is kept."""

import json
import os
import re
import stat
from dataclasses import replace

import pytest

from tests.skills_bench.case import SAMPLES, copy_task
from zoo.agents.envs import run_tests
from zoo.agents.llm import AgentProfile, ClientError, ScriptedClient
from zoo.agents.sandbox import SandboxError
from zoo.agents.skill_tasks import SkillTask, admit, embedded_tasks, leaks, read_task
from zoo.agents.skills import Skill
from zoo.errors import ZooError
from zoo.skills_bench import AgentArgs, Bench, RunArgs, make_report
from zoo.skills_bench.conditions import own_skills, placebo, split_skills
from zoo.skills_bench.harness import ReActHarness
from zoo.skills_bench.runner import Trial, trial_key
from zoo.skills_bench.simulated import SimulatedProgrammer, call
from zoo.skills_bench.workspace import SkillEnv, Verdicts

ALL = ("none", "curated", "self", "placebo")


def task(name="speed-table"):
    return read_task(SAMPLES / name)


def agent(name="a", default=0.5, **profile):
    return AgentArgs(name, profile={"default": default, **profile})


def play(item, *actions, skills=(), **env):
    """A harness whose model says the given actions in turn."""
    replies = list(actions)

    def following(request):
        return replies[sum(m["role"] == "assistant" for m in request.messages)]

    client = ScriptedClient([("", following)])
    harness = ReActHarness(client, SkillEnv(Verdicts(), **env))
    return harness.play(item, skills, 0), client


# ---------------------------------------------------------------------------------- the tasks
def test_embedded_tasks_are_admitted():
    """Two in full; the others' parts are looked at (all are admitted by the slow test)."""
    items = embedded_tasks()
    assert len(items) == 24
    domains = [item.task.family for item in items]
    assert {domains.count(d) for d in set(domains)} == {3}
    assert len(set(domains)) == 8
    for item in items:
        assert not leaks(item)
        assert not any("skills/" in path for path in item.task.payload["files"])
        assert SkillTask.from_json(item.to_json()) == item
    for item in items[:2]:
        admit(item)


def test_compiled_files_are_no_part_of_a_task(tmp_path):
    """Installing the package compiles the tasks' programs."""
    folder = copy_task(tmp_path)
    before = read_task(folder)
    for part in ("tests", "solution", "environment"):
        (folder / part / "__pycache__").mkdir(exist_ok=True)
        (folder / part / "__pycache__/x.cpython-311.pyc").write_bytes(b"\0")
    assert read_task(folder) == before


@pytest.mark.slow
def test_all_embedded_tasks_are_admitted_and_wrong_programs_fail():
    from zoo.agents.envs.workspace import decode

    for item in embedded_tasks():
        admit(item)
        for program in item.task.payload["simulation"]["wrong"]:
            trajectory, _ = play(
                item,
                call("write", path="solve.py", text=program),
                call("run", command="python solve.py"),
                call("done"),
            )
            assert not trajectory.success, item.name
            assert decode(item.task.payload["files"])


def test_a_leak_is_an_answer_that_the_instruction_does_not_give(tmp_path):
    body = "---\nname: systems-of-units\ndescription: d\n---\n"
    skill = {"environment__skills__systems-of-units__SKILL_DOT_md": body + "train,56.00\n"}
    solution = {"solution__answer_DOT_txt": "It is train,56.00 indeed\n"}
    assert leaks(read_task(copy_task(tmp_path / "a", **skill, **solution))) == []  # 11 characters
    solution = {"solution__answer_DOT_txt": "the-whole-answer-is-56\n"}
    skill["environment__skills__systems-of-units__SKILL_DOT_md"] += "the-whole-answer-is-56\n"
    (found,) = leaks(read_task(copy_task(tmp_path / "b", **skill, **solution)))
    assert found == ("systems-of-units", "the-whole-answer-is-56", "solution/answer.txt")
    told = {"instruction_DOT_md": "Write the-whole-answer-is-56 into ms.csv.\n"}
    assert leaks(read_task(copy_task(tmp_path / "c", **skill, **solution, **told))) == []


# ------------------------------------------------------------------------------- the conditions
def test_prompts_differ_in_the_skill_block_only():
    item = task()
    block = re.compile(r"\n\nSkills are listed below.*</skills \w+>", re.DOTALL)
    pool = embedded_tasks()
    own = own_skills(item, SimulatedProgrammer(AgentProfile("a")), 0.7, 512, 0)
    prompts = {}
    for name, skills in {
        "none": (),
        "curated": item.skills,
        "self": own,
        "placebo": placebo(item, pool),
    }.items():
        _, client = play(item, call("done"), skills=skills)
        (request,) = client.requests
        prompts[name] = [m["content"] for m in request.messages]
        assert request.tools
        assert block.search(prompts[name][0]) if skills else not block.search(prompts[name][0])
    stripped = {tuple([block.sub("", system), *rest]) for system, *rest in prompts.values()}
    assert len(stripped) == 1
    assert item.skills[0].body[:60] not in prompts["curated"][0]  # on demand


def test_without_skills_none_can_be_read():
    item = task()
    path = f"skills/{item.skills[0].name}/SKILL.md"
    trajectory, _ = play(
        item,
        call("read", path=path),
        call("run", command="ls -a; ls /"),
        call("list"),
        call("done"),
    )
    texts = [turn.text for turn in trajectory.turns if turn.role == "tool"]
    assert "error" in texts[0]
    assert not any("skills" in text or item.skills[0].body[:40] in text for text in texts[1:])


def test_skills_are_read_on_demand_and_cannot_be_changed():
    item = task()
    path = f"skills/{item.skills[0].name}/SKILL.md"
    trajectory, _ = play(
        item,
        call("run", command=f"cat {path}; echo bad > {path}; rm -rf skills; mkdir -p skills"),
        call("read", path=path),
        call("write", path=path, text="mine"),
        call("write", path="skills/other", text="mine"),
        call("list"),
        call("done"),
        skills=item.skills,
    )
    first, read, write, other, listed, _ = [t.text for t in trajectory.turns if t.role == "tool"]
    assert item.skills[0].body[:40] in first
    assert item.skills[0].body[:40] in read
    assert "read-only" in write
    assert "read-only" in other
    assert listed == "speeds.csv"


def test_placebo_is_of_another_domain_and_about_as_long():
    pool = embedded_tasks()
    for item in pool:
        (skill,) = placebo(item, pool)
        (owner,) = [other for other in pool if skill in other.skills]
        assert owner.task.family != item.task.family
        assert 0.3 < len(skill.body) / len(item.skills[0].body) < 3
    with pytest.raises(ZooError, match="another domain"):
        placebo(pool[0], [pool[0]])


def test_agents_write_their_skills_from_the_instruction_alone():
    item = task("plate-blanks")
    text = "Here:\n```\n---\nname: one\ndescription: a\n---\nDo.\n```\n---\nname: bad name\n---\n"
    text += "---\nname: two\ndescription: b\n---\n```sh\nls\n```\n"
    client = ScriptedClient([("", text)])
    found = own_skills(item, client, 0.7, 99, 3)
    assert [s.name for s in found] == ["one", "two"]
    assert found[0].body == "Do."
    assert found[1].body.endswith("```")
    (request,) = client.requests
    assert item.instruction.strip() in request.text()
    assert request.tools is None
    for secret in ("EXPECTED", "0.450", "median", item.skills[0].body[:30]):
        assert secret not in request.text()
    six = "".join(f"---\nname: s{i}\ndescription: d\n---\nx\n" for i in range(6))
    assert len(split_skills(six)) == 5
    assert split_skills("") == ()


# ------------------------------------------------------------------------------------ cheating
def test_a_task_that_is_done_passes_and_one_that_is_not_fails():
    item = task()
    answer = item.task.payload["simulation"]["answer"]
    done = [call("write", path="s.py", text=answer), call("run", command="python s.py")]
    trajectory, _ = play(item, *done, call("done"))
    assert trajectory.success
    assert trajectory.meta == {"status": "done", "tests": {"test_header": True, "test_rows": True}}
    trajectory, _ = play(item, call("done"))
    assert not trajectory.success
    trajectory, _ = play(item, *done, max_steps=2)  # judged as it stands
    assert trajectory.success
    assert trajectory.meta["status"] == "steps"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("tests/test_outputs.py", "def test_rows():\n    pass\n"),
        ("test_outputs.py", "def test_rows():\n    pass\n"),
        ("conftest.py", "import os\nos._exit(0)\n"),
        ("pytest.py", "import sys\nsys.exit(0)\n"),
        ("_pytest/__init__.py", "import os\nos._exit(0)\n"),
        ("csv.py", "reader = lambda *_, **__: __import__('os')._exit(0)\n"),
        ("sitecustomize.py", "import os\nos._exit(0)\n"),
        ("zz.pth", "import os; os._exit(0)\n"),
        ("pytest.ini", "[pytest]\naddopts = --collect-only\n"),
        ("report.xml", '<testsuite><testcase name="test_rows"/></testsuite>'),
        ("solution/solve.sh", "exit 0\n"),
    ],
)
def test_cheating_agents_score_nothing(path, text):
    trajectory, _ = play(task(), call("write", path=path, text=text), call("done"))
    assert not trajectory.success


def test_an_agent_finds_neither_tests_nor_solution():
    look = "find / -name 'test_outputs.py' -o -name solve.sh 2>/dev/null; cat tests/* solution/*"
    trajectory, _ = play(task(), call("run", command=look), call("done"))
    seen = "\n".join(t.text for t in trajectory.turns if t.role == "tool")
    assert "EXPECTED" not in seen
    assert "skills_bench" not in seen


def test_a_watcher_left_behind_does_not_change_the_tests():
    wait = (
        "(for i in $(seq 100); do echo 'def test_rows(): pass' > t; cp t .verifier*/test_outputs.py"
    )
    wait += "; sleep 0.05; done) >/dev/null 2>&1 &"
    trajectory, _ = play(task(), call("run", command=wait), call("done"))
    assert not trajectory.success


# -------------------------------------------------------------------------------------- harness
def test_models_without_tools_write_their_calls():
    item = task()
    trajectory, _ = play(
        item,
        "I think I should look.\nAction: list()",
        '{"name": "read", "arguments": {"path": "speeds.csv"}}',
        "Nothing to do?",
        "Action: `done()`",
    )
    texts = [t.text for t in trajectory.turns[2:] if t.role != "assistant"]
    assert texts[0] == "speeds.csv"
    assert texts[1].startswith("vehicle,kmh")
    assert texts[2].startswith("error")
    assert trajectory.meta["status"] == "done"
    assert trajectory.cost.calls == 4


def test_time_out_is_told_apart():
    client = ScriptedClient([("", call("run", command="sleep 0.3"))])
    harness = ReActHarness(client, SkillEnv(Verdicts()), timeout_s=0.5)
    found = harness.play(task(), (), 0)
    assert found.meta["status"] == "timeout"
    assert 2 <= found.cost.calls <= 3


# --------------------------------------------------------------------------------------- runner
def test_results_do_not_depend_on_the_number_of_workers():
    items = [task(), task("plate-blanks")]
    agents = [agent("a"), agent("b", 0.7)]
    runs = [Bench(agents, RunArgs(ALL, n_trials=2, concurrency=n)).run(items) for n in (1, 4)]
    plain = [
        [(t.task_id, t.success, t.meta, [turn.text for turn in t.turns]) for t in run]
        for run in runs
    ]
    assert plain[0] == plain[1]
    assert len(plain[0]) == 2 * 2 * 2 * 4


def test_a_stopped_run_goes_on_where_it_was(tmp_path, monkeypatch):
    items, agents = [task()], [agent()]
    args = RunArgs(("none", "curated"), n_trials=3, concurrency=1, cache_dir=str(tmp_path))
    made = []
    whole = ReActHarness.play

    def counted(self, *rest):
        if len(made) == 4:
            raise KeyboardInterrupt
        made.append(rest)
        return whole(self, *rest)

    monkeypatch.setattr(ReActHarness, "play", counted)
    with pytest.raises(KeyboardInterrupt):
        Bench(agents, args).run(items)
    monkeypatch.setattr(ReActHarness, "play", lambda *a: made.append(a) or whole(*a))
    found = Bench(agents, args).run(items)
    assert len(made) == 6
    assert [t.meta["seed"] for t in found] == [0, 0, 1, 1, 2, 2]
    assert Bench(agents, args).run(items)[0].to_dict() == found[0].to_dict()
    assert len(made) == 6


def test_what_a_trajectory_is_kept_under():
    item, args = task(), RunArgs()
    trial = Trial(item, "curated", agent(), 0)
    key = trial_key(trial, item.skills, args)
    assert key == trial_key(trial, item.skills, RunArgs(concurrency=9, n_trials=1))
    assert key != trial_key(Trial(item, "none", agent(), 0), item.skills, args)
    assert key != trial_key(Trial(item, "curated", agent(), 1), item.skills, args)
    assert key != trial_key(Trial(item, "curated", agent("b"), 0), item.skills, args)
    assert key != trial_key(trial, (Skill("other", "d"),), args)
    assert key != trial_key(trial, item.skills, RunArgs(max_turns=2))
    assert key != trial_key(Trial(task("plate-blanks"), "curated", agent(), 0), item.skills, args)


@pytest.mark.parametrize("error", [ClientError("busy"), SandboxError("no room")])
def test_infrastructure_is_tried_again_then_left_out_of_both(error, monkeypatch):
    monkeypatch.setattr("zoo.skills_bench.runner.PAUSE_S", 0.0)
    whole, tries = ReActHarness.play, []

    def failing(self, item, skills, seed):
        if skills and seed == 1:
            tries.append(seed)
            raise error
        if not skills and seed == 0 and not tries.count("once"):
            tries.append("once")
            raise error
        return whole(self, item, skills, seed)

    monkeypatch.setattr(ReActHarness, "play", failing)
    bench = Bench([agent()], RunArgs(("none", "curated"), n_trials=2, concurrency=1))
    found = bench.run([task(), task("plate-blanks")])
    assert tries.count(1) == 2 * 3  # both tasks, once and two more times
    status = [t.meta["status"] for t in found]
    assert status.count("infrastructure") == 2
    report = make_report(found)
    assert report.excluded == 2
    assert (report.outcomes["none"] != report.outcomes["none"]).sum() == 2  # NaN: paired
    assert report.status == {"done": 6, "infrastructure": 2}
    report.to_markdown()


def test_simulated_agents_read_and_nothing_else():
    """What they are told is the text; which condition it is, they are not."""
    item = task("plate-blanks")
    sure = AgentArgs("sure", profile={"default": 0.0, "uptake": 1.0})
    bench = Bench([sure], RunArgs(ALL, n_trials=2), pool=embedded_tasks())
    passed = {}
    for t in bench.run([item]):
        passed.setdefault(t.meta["condition"], []).append(t.success)
    assert passed == {
        "none": [False] * 2,
        "curated": [True] * 2,
        "self": [False] * 2,
        "placebo": [False] * 2,
    }
    other = (Skill("blanks", "Absorbance of a plate, wells, columns.", item.skills[0].body),)
    found = Bench([sure], RunArgs(("none", "curated"), n_trials=1)).run([item.with_skills(other)])
    assert [t.success for t in found] == [False, True]


def test_bad_arguments():
    with pytest.raises(ZooError, match="expected 'none'"):
        RunArgs(("curated",))
    with pytest.raises(ZooError, match="'curatd'"):
        RunArgs(("none", "curatd"))
    with pytest.raises(ZooError, match="n_trials=0"):
        RunArgs(n_trials=0)
    with pytest.raises(ZooError, match="name of its own"):
        Bench([agent(), agent()], RunArgs())
    with pytest.raises(ZooError, match="model and base_url"):
        AgentArgs("a", client="openai")
    with pytest.raises(ZooError, match="'defalt'"):
        AgentArgs("a", profile={"defalt": 1})
    with pytest.raises(ZooError, match="no probability"):
        AgentArgs("a", profile={"default": 2})
    payload = {k: v for k, v in task().task.payload.items() if k != "simulation"}
    bare = replace(task(), task=replace(task().task, payload=payload))
    with pytest.raises(ZooError, match="have a folder 'simulation'"):
        Bench([agent()], RunArgs()).run([bare])


# ------------------------------------------------------------------------------------ container
FAKE = """#!/usr/bin/env python3
# Stands in for docker: a container is a folder, its root is $FAKE_ROOT/<name>.
import os, shutil, subprocess, sys
root, words = os.environ["FAKE_ROOT"], sys.argv[1:]
with open(os.path.join(root, "log"), "a") as log:
    log.write(" ".join(words) + "\\n")
def place(name, path):
    return os.path.join(root, name) + path
if words[0] == "image":
    sys.exit(0 if os.path.exists(os.path.join(root, words[2].replace(":", "_"))) else 1)
if words[0] == "build":
    image = os.path.join(root, words[2].replace(":", "_"))
    shutil.copytree(words[3], image)
elif words[0] == "run":
    name, folder = words[words.index("--name") + 1], words[words.index("-w") + 1]
    image = os.path.join(root, words[words.index("sleep") - 1].replace(":", "_"))
    shutil.copytree(image, place(name, folder))
elif words[0] == "rm":
    shutil.rmtree(os.path.join(root, words[2]), ignore_errors=True)
elif words[0] == "cp":
    name, target = words[2].split(":")
    shutil.copytree(words[1], place(name, target))
elif words[0] == "exec":
    rest = words[1:]
    folder = "/"
    while rest[0].startswith("-"):
        if rest[0] == "-w":
            folder = rest[1]
            rest = rest[1:]
        rest = rest[1:]
    name, command = rest[0], rest[1:]
    home = os.path.join(root, name)
    for part in ("/tests", "/logs"):
        command = [w.replace(part, home + part) for w in command]
    sys.exit(subprocess.run(command, cwd=place(name, folder)).returncode)
"""


@pytest.fixture
def fake_docker(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/docker"
    program.write_text(FAKE)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "root").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_ROOT", str(tmp_path / "root"))
    return tmp_path / "root"


def test_container_of_the_tasks_own_image(fake_docker, tmp_path):
    """On a program that obeys docker's command line; the real one is not on this machine."""
    script = "mkdir -p /logs/verifier; grep -q 56.00 ms.csv && echo 1 > /logs/verifier/reward.txt\n"
    item = read_task(
        copy_task(
            tmp_path / "t",
            environment__Dockerfile="FROM python:3.12\nWORKDIR /app\n",
            tests__test_DOT_sh=script,
        )
    )
    assert item.task.payload["inside"] == "/app"
    answer = item.task.payload["simulation"]["answer"]
    done = [call("write", path="s.py", text=answer), call("run", command="python3 s.py")]
    path = f"skills/{item.skills[0].name}/SKILL.md"
    trajectory, _ = play(
        item,
        call("read", path=path),
        *done,
        call("list"),
        call("done"),
        skills=item.skills,
        executor="docker",
    )
    assert trajectory.success
    listed = [t.text for t in trajectory.turns if t.role == "tool"][-2].splitlines()
    assert {"ms.csv", "s.py", "speeds.csv"} <= set(listed)
    trajectory, _ = play(item, call("done"), executor="docker")
    assert not trajectory.success
    log = (fake_docker / "log").read_text()
    assert log.count("build -t") == 1  # the second trajectory finds the image
    assert log.count("--network none") == 2
    assert log.count("rm -f") == 2
    assert "FROM python:3.12" in next(fake_docker.glob("zoo-task_*/Dockerfile")).read_text()


def test_without_docker_it_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match="docker or podman"):
        play(task(), call("done"), executor="docker")


def test_verdicts_name_the_tests(tmp_path):
    text = "def test_a():\n    pass\n\ndef test_b():\n    assert 0\n"
    item = read_task(copy_task(tmp_path, tests__test_outputs_DOT_py=text))
    found = run_tests(item.task, {})
    assert found.tests == {"test_a": True, "test_b": False}
    assert not found.passed


def test_trajectories_are_plain_json():
    trajectory, _ = play(task(), call("list"), call("done"))
    assert json.loads(json.dumps(trajectory.to_dict()))["success"] is False

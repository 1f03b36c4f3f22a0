"""The household against ALFWorld's own engine, and games of the engines' formats.

Skipped where ``pip install "lightning-zoo[envs]"`` has not been run.
"""

import json
import random
import sys

import pytest

from zoo import ZooError
from zoo.agents.envs import HouseholdEnv, Task, household_tasks
from zoo.agents.envs.engines import (
    AlfworldEnv,
    AlfworldPddlEnv,
    TextWorldEnv,
    _alfworld_logic,
    household_pddl,
    textworld_tasks,
)
from zoo.agents.envs.household import FAMILIES, expert_plan

needs_engine = pytest.mark.usefixtures("engine")
# TextWorld's own dependencies warn of what they do at import.
quiet = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::SyntaxWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
pytestmark = quiet


@pytest.fixture
def engine():
    for package in ("alfworld", "textworld", "fast_downward"):
        pytest.importorskip(package, reason='pip install "lightning-zoo[envs]"')


def compare(task, actions, rng):
    """Plays the same actions in both engines; they agree at each step."""
    ours, theirs = HouseholdEnv(), AlfworldPddlEnv()
    one, two = ours.reset(task), theirs.reset(task)
    assert one.admissible == two.admissible
    for i in range(40):
        action = actions[i] if i < len(actions) else rng.choice(one.admissible)
        one, reward, done, info = ours.step(action)
        two, other_reward, other_done, other_info = theirs.step(action)
        assert (reward, done, info["success"]) == (other_reward, other_done, other_info["success"])
        assert one.admissible == two.admissible, action
        if done:
            break
    theirs.close()
    return info["success"]


@needs_engine
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_parity_with_the_planning_engine(family):
    """Twenty tasks in all: random walks of forty actions, and the expert's way to the goal."""
    rng = random.Random(family)
    for task in household_tasks("train", 4, [family]):
        compare(task, [], rng)
    task = household_tasks("test", 1, [family])[0]
    env = HouseholdEnv()
    env.reset(task)
    assert compare(task, expert_plan(env), rng)


@needs_engine
@pytest.mark.slow
def test_two_objects_count_in_one_receptacle_only():
    payload = {
        "receptacles": [["desk", 1], ["shelf", 1], ["shelf", 2]],
        "objects": [["mug", 1, 0], ["mug", 2, 0]],
        "goal": {"family": "pick_two", "object": "mug", "receptacle": "shelf"},
    }
    plan = []
    for mug, shelf in ((1, 1), (2, 2)):
        plan += ["go to desk 1", f"take mug {mug} from desk 1", f"go to shelf {shelf}"]
        plan += [f"move mug {mug} to shelf {shelf}"]
    plan += ["take mug 2 from shelf 2", "go to shelf 1", "move mug 2 to shelf 1"]
    assert compare(Task("t", "pick_two", "train", 0, payload), plan, random.Random(0))


def game(task):
    logic = dict(_alfworld_logic())
    logic["grammar"] = logic["grammar"].replace("UNKNOWN GOAL", "put it there")
    problem = household_pddl(task)
    for name in ("apple_1", "bread_1", "cabinet_1", "countertop_1", "drawer_1", "fridge_1"):
        problem = problem.replace(name, f"{name[:-2]}_bar__plus_00_dot_5_bar__minus_0{name[-1]}")
    return {**logic, "pddl_problem": problem, "solvable": True}


@needs_engine
@pytest.mark.slow
def test_alfworld_layout(tmp_path):
    payload = {
        "receptacles": [["cabinet", 1], ["countertop", 1], ["fridge", 1]],
        "objects": [["apple", 1, 1]],
        "goal": {"family": "cool", "object": "apple", "receptacle": "fridge"},
    }
    task = Task("t", "cool", "train", 0, payload)
    base = tmp_path / "json_2.1.1" / "valid_seen"
    for name in (
        "pick_cool_then_place_in_recep-Apple-None-Fridge-1",
        "pick_and_place_with_movable_recep-Apple-Bowl-Fridge-1",
    ):
        (base / name / "trial_1").mkdir(parents=True)
        (base / name / "trial_1" / "game.tw-pddl").write_text(json.dumps(game(task)))
    env = AlfworldEnv(tmp_path)
    (found,) = env.tasks("valid_seen")
    assert found.family == "cool"
    obs = env.reset(found)
    assert "put it there" in obs.text
    assert "go to fridge 1" in obs.admissible
    plan = ["go to countertop 1", "take apple 1 from countertop 1", "go to fridge 1"]
    plan += ["cool apple 1 with fridge 1", "open fridge 1"]
    for action in plan:
        assert env.step(action).info["valid"], action
    state = json.loads(json.dumps(env.state_dict()))
    env.reset(found)
    env.load_state_dict(state)
    assert env.step("move apple 1 to fridge 1")[1:] == (
        1.0,
        True,
        {"success": True, "valid": True},
    )
    assert env.verify(found, env.state_dict())
    assert not env.verify(found, state)
    env.close()
    with pytest.raises(ZooError, match="holds no games"):
        env.tasks("train")
    (base / "pick_cool_then_place_in_recep-Apple-None-Fridge-1/trial_1/game.tw-pddl").write_text(
        "{}"
    )
    with pytest.raises(ZooError, match="no ALFWorld game"):
        env.tasks("valid_seen")
    with pytest.raises(ZooError, match="expected"):
        AlfworldEnv(tmp_path / "none")


@needs_engine
@pytest.mark.slow
def test_textworld(tmp_path):
    (task,) = textworld_tasks("val", 1, rooms=1, objects=2, quest_length=2)
    env = TextWorldEnv(tmp_path / "games")
    env.prepare([task])
    compiled = sorted(p.name for p in env.cache_dir.iterdir())
    obs = env.reset(task)
    assert sorted(p.name for p in env.cache_dir.iterdir()) == compiled
    rng = random.Random(0)
    for _ in range(5):
        obs = env.step(rng.choice(obs.admissible)).obs
        assert obs.text
    state = env.state_dict()
    env.reset(task)
    env.load_state_dict(state)
    assert env._observe() == obs
    env.close()


def test_absence_says_what_to_install(monkeypatch, tmp_path):
    for name in ("alfworld", "textworld"):
        monkeypatch.setitem(sys.modules, name, None)
    _alfworld_logic.cache_clear()
    with pytest.raises(ZooError, match=r'pip install "lightning-zoo\[envs\]"'):
        AlfworldPddlEnv().reset(household_tasks("train", 1)[0])
    with pytest.raises(ZooError, match=r"lightning-zoo\[envs\]"):
        TextWorldEnv(tmp_path).prepare(textworld_tasks("train", 1))
    _alfworld_logic.cache_clear()

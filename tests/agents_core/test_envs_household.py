"""The household: solvable, deterministic, replayable, and judged by its state."""

import random
import re
import time

import pytest

from zoo import ZooError
from zoo.agents.envs import HouseholdEnv, Task, VectorEnv, check_disjoint, household_tasks
from zoo.agents.envs.household import FAMILIES, expert_action, expert_plan, household_task


def walk(env, task, rng, steps=50):
    """A random walk's observations and actions."""
    obs, trace = env.reset(task), []
    trace.append((None, obs, 0.0, False))
    for _ in range(steps):
        action = rng.choice(obs.admissible)
        obs, reward, done, _ = env.step(action)
        trace.append((action, obs, reward, done))
        if done:
            break
    return trace


@pytest.mark.parametrize("explore", [False, True])
def test_expert_solves_every_task(explore):
    env = HouseholdEnv()
    for task in household_tasks("train", 120):
        env.reset(task)
        assert not env.verify(task, env.state_dict())
        plan = expert_plan(env, explore)
        assert 3 <= len(plan) <= 20
        for action in plan:
            _, reward, done, info = env.step(action)
            assert info["valid"]
        assert (reward, done, info["success"]) == (1.0, True, True)
        assert env.verify(task, env.state_dict())


def test_expert_recovers_from_a_noisy_walk():
    env, rng = HouseholdEnv(max_steps=200), random.Random(0)
    for task in household_tasks("val", 60):
        obs = env.reset(task)
        done = False
        for _ in range(15):
            obs, _, done, info = env.step(rng.choice(obs.admissible))
            if done:
                break
        while not done:
            _, _, done, info = env.step(expert_action(env, explore=True))
        assert info["success"]


def test_families_rooms_and_splits():
    splits = {s: household_tasks(s, 60) for s in ("train", "val", "test", "probe")}
    check_disjoint(splits)
    for tasks in splits.values():
        assert {t.family for t in tasks} == set(FAMILIES)
        for task in tasks:
            assert 4 <= len(task.payload["receptacles"]) <= 8
            assert 2 <= len(task.payload["objects"]) <= 6
    assert splits["val"] == household_tasks("val", 60)
    shared = [household_tasks(s, 40, ["pick"], rooms=[1, 2]) for s in ("train", "test")]
    layouts = [{str(t.payload["receptacles"]) for t in tasks} for tasks in shared]
    assert layouts[0] == layouts[1]
    assert len(layouts[0]) == 2
    check_disjoint(dict(zip(("train", "test"), shared, strict=True)))


def test_heat_by_hand():
    payload = {
        "receptacles": [["countertop", 1], ["fridge", 1], ["microwave", 1]],
        "objects": [["apple", 1, 1], ["mug", 1, 0]],
        "goal": {"family": "heat", "object": "apple", "receptacle": "countertop"},
    }
    task = Task("t", "heat", "train", 0, payload)
    env = HouseholdEnv()
    obs = env.reset(task)
    assert obs.text.endswith("put a hot apple in countertop.")
    script = {
        "go to fridge 1": "You arrive at fridge 1. The fridge 1 is closed.",
        "take apple 1  from fridge 1": "Nothing happens.",
        "Open  FRIDGE 1": "You open the fridge 1. The fridge 1 is open. In it, you see a apple 1.",
        "take apple 1 from fridge 1": "You pick up the apple 1 from the fridge 1.",
        "cool apple 1 with fridge 1": "You cool the apple 1 using the fridge 1.",
        "examine apple 1": "This is a cool apple 1.",
        "heat apple 1 with fridge 1": "Nothing happens.",
        "go to microwave 1": "You arrive at microwave 1. The microwave 1 is closed.",
        "move apple 1 to microwave 1": "Nothing happens.",
        "heat apple 1 with microwave 1": "You heat the apple 1 using the microwave 1.",
        "inventory": "You are carrying: a apple 1.",
        "go to countertop 1": "You arrive at countertop 1. On the countertop 1, you see a mug 1.",
    }
    for action, text in script.items():
        obs, reward, done, info = env.step(action)
        assert (obs.text, reward, done) == (text, 0.0, False), action
        assert info["valid"] == (text != "Nothing happens.")
        assert not info["success"]
    assert "move apple 1 to countertop 1" in obs.admissible
    assert env.step("move apple 1 to countertop 1")[1:3] == (1.0, True)
    with pytest.raises(ZooError, match="begins with reset"):
        env.step("look")


def test_look_needs_lamp_and_object_together():
    payload = {
        "receptacles": [["desk", 1], ["shelf", 1]],
        "objects": [["book", 1, 1], ["desklamp", 1, 0]],
        "goal": {"family": "look", "object": "book", "receptacle": ""},
    }
    env = HouseholdEnv()
    env.reset(Task("t", "look", "train", 0, payload))
    for action in ("go to desk 1", "use desklamp 1", "go to shelf 1", "take book 1 from shelf 1"):
        assert not env.step(action).done
    assert env.step("go to desk 1").info["success"]


def test_a_cold_apple_is_not_hot_any_more():
    payload = {
        "receptacles": [["countertop", 1], ["fridge", 1], ["microwave", 1]],
        "objects": [["apple", 1, 1]],
        "goal": {"family": "heat", "object": "apple", "receptacle": "countertop"},
    }
    env = HouseholdEnv()
    env.reset(Task("t", "heat", "train", 0, payload))
    actions = "go to fridge 1;open fridge 1;take apple 1 from fridge 1;go to microwave 1;"
    actions += "heat apple 1 with microwave 1;go to fridge 1;cool apple 1 with fridge 1;"
    actions += "go to countertop 1;move apple 1 to countertop 1"
    for action in actions.split(";"):
        step = env.step(action)
        assert step.info["valid"]
    assert not step.info["success"]


def test_episode_ends_after_its_steps():
    env = HouseholdEnv(max_steps=3)
    env.reset(household_task("pick", 0))
    dones = [env.step("look").done for _ in range(3)]
    assert dones == [False, False, True]


def test_replay_is_exact():
    env, other = HouseholdEnv(), HouseholdEnv()
    for task in household_tasks("train", 12):
        first = walk(env, task, random.Random(1))
        assert first == walk(other, task, random.Random(1))
        env.reset(task)
        half = len(first) // 2
        for action, *_ in first[1:half]:
            env.step(action)
        state = env.state_dict()
        other.reset(task)
        other.load_state_dict(state)
        for action, obs, reward, done in first[half:]:
            if action is not None:
                assert other.step(action)[:3] == (obs, reward, done)
    with pytest.raises(ZooError, match="another household task"):
        other.load_state_dict({**state, "inside": []})


def test_vocabulary_covers_what_is_read_and_written():
    env, rng = HouseholdEnv(), random.Random(0)
    known = set(env.vocabulary())
    assert 60 < len(known) < 200
    for task in household_tasks("train", 60):
        for _, obs, *_ in walk(env, task, rng, 30):
            for text in [obs.text, *obs.admissible]:
                assert set(re.findall(r"\w+|[^\w\s]", text)) <= known, text


def test_admissible_is_exactly_what_is_valid():
    env, rng = HouseholdEnv(), random.Random(0)
    tasks = household_tasks("train", 6)
    every = {a for task in tasks for _, obs, *_ in walk(env, task, rng) for a in obs.admissible}
    for task in tasks:
        for _, obs, *_ in walk(env, task, rng, 20):
            assert obs.admissible == sorted(set(obs.admissible))
        if env.done:
            continue
        state = env.state_dict()
        for action in every:
            env.reset(task)
            env.load_state_dict(state)
            assert env.step(action).info["valid"] == (action in obs.admissible)


def test_bad_tasks():
    with pytest.raises(ZooError, match="Did you mean 'heat'"):
        household_tasks("train", 1, families=["heet"])
    with pytest.raises(ZooError, match="no household task"):
        HouseholdEnv().reset(Task("t", "pick", "train", 0, {"goal": {}}))


def test_lock_step():
    tasks = household_tasks("train", 4)
    vector = VectorEnv(HouseholdEnv, 4)
    vector.reset(tasks)
    plans = [expert_plan(env) for env in vector.envs]
    for t in range(max(map(len, plans))):
        actions = [plan[t] if t < len(plan) else "look" for plan in plans]
        _, _, dones, _ = vector.step(actions)
    assert dones.all()
    assert vector.verify().all()


def test_fifty_thousand_steps_a_second():
    env, rng = HouseholdEnv(), random.Random(0)
    tasks = household_tasks("train", 50)
    best = 0.0
    for _ in range(3):
        start, steps = time.process_time(), 0
        for task in tasks:
            obs, done = env.reset(task), False
            while not done:
                actions = obs.admissible
                obs, _, done, _ = env.step(actions[int(rng.random() * len(actions))])
                steps += 1
        best = max(best, steps / (time.process_time() - start))
    assert best > 50_000

"""Workflows: hidden procedures, splits, rewards at the end alone, and worlds by name."""

import random

import pytest
import torch
from lightning import seed_everything

from zoo.agents.envs import workflow
from zoo.agents.envs.base import check_disjoint
from zoo.agents.policy import CausalPolicy, PolicyArgs, TinyConfig
from zoo.agents.rollout import RolloutCollector
from zoo.agents.worlds import World, WorldArgs
from zoo.errors import ZooError


def test_sixteen_procedures_differ_and_no_observation_names_a_verb():
    found = [tuple(workflow.procedure(kind)) for kind in workflow.TYPES]
    assert len(set(found)) == len(workflow.TYPES) == 16
    assert all(len(verbs) == 4 and set(verbs) <= set(workflow.VERBS) for verbs in found)
    env = workflow.WorkflowEnv()
    for task in workflow.workflow_tasks("test"):
        text = env.reset(task).text + env.step("clean cup").obs.text
        assert not set(text.replace(".", " ").split()) & set(workflow.VERBS)


def test_splits_have_their_own_objects():
    splits = {name: workflow.workflow_tasks(name) for name in ("train", "val", "test")}
    check_disjoint(splits)
    objects = [{t.payload["object"] for t in tasks} for tasks in splits.values()]
    assert [len(found) for found in objects] == [8, 2, 4]
    assert len(set.union(*objects)) == 14
    assert [len(tasks) for tasks in splits.values()] == [128, 32, 64]
    with pytest.raises(ZooError, match="Did you mean 'train'"):
        workflow.workflow_tasks("trian")


def test_the_reward_comes_at_the_end_and_only_for_all_four():
    task = workflow.workflow_tasks("train")[5]
    thing, verbs = task.payload["object"], workflow.procedure(task.payload["type"])
    env = workflow.WorkflowEnv()
    env.reset(task)
    steps = [env.step(f"{verb} {thing}") for verb in verbs]
    assert [s.reward for s in steps] == [0, 0, 0, 1]
    assert [s.done for s in steps] == [False, False, False, True]
    assert env.verify(task, env.state_dict())
    env.reset(task)
    wrong = [env.step(action) for action in (f"{verbs[0]} {thing}", "fly", *["use soap"] * 2)]
    assert [s.info["valid"] for s in wrong] == [True, False, False, False]
    assert wrong[-1].reward == 0
    assert not env.verify(task, env.state_dict())
    with pytest.raises(ZooError, match="begins with reset"):
        env.step("use soap")


def test_the_demonstrator_is_right_half_of_the_time():
    rng = random.Random(0)
    right = steps = 0
    for task in workflow.workflow_tasks("train") * 8:
        verbs = [action.split()[0] for action in workflow.expert_plan(task, rng)]
        right += sum(a == b for a, b in zip(verbs, workflow.procedure(task.family), strict=True))
        steps += 4
    assert right / steps == pytest.approx(0.5, abs=0.03)


def test_practice_has_nothing_to_do_with_the_procedures():
    rng = random.Random(0)
    right = steps = 0
    for _ in range(1000):
        task, actions = workflow.practice(rng)
        verbs = [action.split()[0] for action in actions]
        right += sum(a == b for a, b in zip(verbs, workflow.procedure(task.family), strict=True))
        steps += 4
    assert right / steps == pytest.approx(1 / 6, abs=0.02)


@pytest.mark.parametrize("name", ["workflow", "sokoban", "household"])
def test_worlds_demonstrate_and_are_deterministic(name):
    world = World(WorldArgs(name))
    rng = random.Random(0)
    task, actions = world.practice(rng)
    seen = world.play(task, actions)
    assert len(seen) == len(actions) + 1
    assert seen == world.play(task, actions)
    world.check(task, rng)
    plan = world.plan(task, rng)
    assert plan
    words = {*" ".join(world.vocabulary()).split()}
    said = " ".join([*seen, *actions, *plan])
    for mark in ".,:":
        said = said.replace(mark, f" {mark} ")
    assert set(said.split()) <= words
    assert len(world.vector(3)) == 3
    world.close()


def test_a_world_that_is_not_deterministic_is_refused():
    class Moody(workflow.WorkflowEnv):
        moods = iter(["good.", "bad."] * 100)

        def step(self, action):
            step = super().step(action)
            return step._replace(obs=type(step.obs)(next(self.moods), step.obs.admissible))

    class Odd(World):
        def make(self):
            return Moody(3)

    task = workflow.workflow_tasks("train")[0]
    with pytest.raises(ZooError, match=r"not deterministic: task 'workflow-.*turn 1"):
        Odd(WorldArgs()).check(task, random.Random(0), steps=3)


@pytest.mark.parametrize(
    ("args", "pattern"),
    [
        ({"name": "workflw"}, "Did you mean 'workflow'"),
        ({"nam": "workflow"}, "Did you mean 'name'"),
        ({"name": "alfworld"}, r"env\.root"),
        ({"name": "bridge"}, r"env\.python"),
        ({"max_steps": 0}, "max_steps=0"),
    ],
)
def test_bad_arguments_of_a_world_are_one_sentence(args, pattern):
    with pytest.raises(ZooError, match=pattern):
        WorldArgs.of(args)


def test_an_episodes_draws_follow_its_key_whoever_plays_beside_it():
    seed_everything(0)
    world = World(WorldArgs())
    tiny = TinyConfig(world.vocabulary(), hidden=16, layers=1, heads=2, ffn=32, context=64)
    policy = CausalPolicy(PolicyArgs(tiny=tiny, max_context=48))
    tasks = workflow.workflow_tasks("train")[:6]

    def actions(chosen, keys):
        collector = RolloutCollector(policy, world.vector(len(chosen)), 4, 3)
        found = collector.collect(chosen, keys=torch.tensor(keys))
        return [episode.actions for episode in found.episodes]

    together = actions(tasks, [0, 1, 2, 3, 4, 5])
    assert actions(tasks[2:4], [2, 3]) == together[2:4]
    assert actions(tasks[2:4], [7, 8]) != together[2:4]
    assert len({tuple(a) for a in together[0:1]} | {tuple(together[0][1:])}) == 2

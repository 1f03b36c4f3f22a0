"""Tasks, splits and lock-step."""

import numpy as np
import pytest

from zoo import ZooError
from zoo.agents.envs import Env, Obs, Step, Task, VectorEnv, check_disjoint, split_seeds


class Counter:
    """Counts to the task's goal; the reward is what was added."""

    def reset(self, task):
        self.task, self.value = task, 0
        return Obs(f"count to {task.payload['goal']}", ["add"])

    def step(self, action):
        valid = action == "add"
        self.value += valid
        success = self.verify(self.task, self.state_dict())
        obs = Obs(str(self.value), ["add"])
        return Step(obs, float(valid), success, {"success": success, "valid": valid})

    def close(self):
        pass

    def vocabulary(self):
        return ["add"]

    def verify(self, task, state):
        return state["value"] == task.payload["goal"]

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


def task(goal, seed=0, split="train"):
    return Task(f"count-{goal}-{seed}", "count", split, seed, {"goal": goal})


def test_counter_is_an_env():
    assert isinstance(Counter(), Env)


def test_finished_and_resting_instances_keep_still():
    vector = VectorEnv(Counter, 3)
    vector.reset([task(1), task(2), task(3)])
    _, rewards, dones, _ = vector.step(["add", "add", "jump"])
    assert rewards.tolist() == [1, 1, 0]
    assert dones.tolist() == [True, False, False]
    obs, rewards, dones, infos = vector.step(["add"] * 3, active=[True, True, False])
    assert rewards.tolist() == [0, 1, 0]
    assert dones.tolist() == [True, True, False]
    assert [o.text for o in obs] == ["1", "2", "0"]
    assert [info["success"] for info in infos] == [True, True, False]
    assert np.array_equal(vector.verify(), [True, True, False])


@pytest.mark.parametrize(
    "call",
    [
        lambda v: v.reset([task(1)]),
        lambda v: v.step(["add"]),
        lambda v: v.step(["add", "add"], active=[True]),
    ],
)
def test_wrong_lengths(call):
    vector = VectorEnv(Counter, 2)
    vector.reset([task(1), task(2)])
    with pytest.raises(ZooError, match="2 environments"):
        call(vector)


def test_payload_hash_ignores_order_and_names():
    one = Task("a", "f", "train", 0, {"x": 1, "y": [2]})
    two = Task("b", "f", "val", 1, {"y": [2], "x": 1})
    assert one.payload_hash == two.payload_hash
    assert one.payload_hash != Task("a", "g", "train", 0, {"x": 1, "y": [2]}).payload_hash
    assert len({one, Task("a", "f", "train", 0, {"y": [2], "x": 1})}) == 1


def test_splits():
    assert split_seeds("val", 3)[0] not in split_seeds("train", 10**9)
    with pytest.raises(ZooError, match="Did you mean 'train'"):
        split_seeds("trian", 3)
    with pytest.raises(ZooError, match="seeds"):
        split_seeds("val", 10**9)
    check_disjoint({"train": [task(1), task(2, 1)], "val": [task(3, 2)]})
    with pytest.raises(ZooError, match="payload"):
        check_disjoint({"train": [task(1, 0)], "val": [task(1, 5)]})
    with pytest.raises(ZooError, match="seed"):
        check_disjoint({"train": [task(1, 0)], "val": [task(2, 0)]})

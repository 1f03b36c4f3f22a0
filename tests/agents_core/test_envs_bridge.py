"""An environment in another process plays as it does here."""

import http.client
import json
import os
import random
import sys

import pytest

from zoo import ZooError
from zoo.agents.envs import Env, HouseholdEnv, Task, household_tasks
from zoo.agents.envs.bridge import HttpEnvBridge
from zoo.agents.envs.household import expert_plan

PLAIN = """\
import sys
class Env:
    def reset(self, task):
        print("noise")
        self.goal, self.n = task.payload["goal"], 0
        return f"count to {self.goal}"
    def step(self, action):
        if action == "fail":
            raise RuntimeError("broken")
        self.n += 1
        return str(self.n), 1.0, self.n == self.goal, {}
    def close(self): pass
    def vocabulary(self): return [m for m in ("torch", "zoo") if m in sys.modules]
    def verify(self, task, state): return state["n"] == task.payload["goal"]
    def state_dict(self): return {"n": self.n}
    def load_state_dict(self, state): self.n = state["n"]
"""


def test_an_environment_without_this_package(tmp_path):
    (tmp_path / "counting.py").write_text(PLAIN)
    env = HttpEnvBridge.start(sys.executable, "counting:Env", str(tmp_path), environment={})
    try:
        assert isinstance(env, Env)
        task = Task("t", "count", "train", 0, {"goal": 2})
        obs = env.reset(task)
        assert (obs.text, obs.admissible) == ("count to 2", None)
        assert env.step("x")[1:] == (1.0, False, {"success": False, "valid": True})
        state = env.state_dict()
        assert not env.verify(task, state)
        assert env.step("x").done
        env.load_state_dict(state)
        assert env.state_dict() == {"n": 1}
        assert env.vocabulary() == []
        with pytest.raises(ZooError, match="RuntimeError: broken"):
            env.step("fail")
        connection = http.client.HTTPConnection("127.0.0.1", env._connection.port)
        for headers in ({}, {"X-Token": "wrong"}, {"X-Token": "é".encode("latin-1")}):
            connection.request("POST", "/state_dict", "{}", headers)
            response = connection.getresponse()
            assert (response.status, json.loads(response.read())) == (403, {"error": "wrong token"})
        connection.close()
        process = env._process
    finally:
        env.close()
    assert process.returncode == 0
    env.close()


def test_the_household_over_there():
    repository = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = os.pathsep.join([repository, *filter(None, sys.path)])
    env = HttpEnvBridge.start(
        sys.executable,
        "zoo.agents.envs.household:HouseholdEnv",
        environment={"PYTHONPATH": paths, "PATH": os.environ["PATH"]},
    )
    here = HouseholdEnv()
    rng = random.Random(0)
    try:
        (task,) = household_tasks("train", 1)
        obs = here.reset(task)
        assert env.reset(task) == obs
        plan = [rng.choice(obs.admissible), *expert_plan(here)]
        for action in plan:
            if here.done:
                break
            assert env.step(action) == here.step(action)
        assert env.state_dict() == here.state_dict()
        assert env.verify(task, here.state_dict()) == here.verify(task, here.state_dict())
        assert env.vocabulary() == here.vocabulary()
    finally:
        env.close()


def test_what_does_not_start():
    with pytest.raises(ZooError, match="No such file"):
        HttpEnvBridge.start("/no/such/python", "x:y")
    with pytest.raises(ZooError, match="No module named 'no_such_module'"):
        HttpEnvBridge.start(sys.executable, "no_such_module:make")
    gone = HttpEnvBridge(1, "token", timeout_s=1)
    with pytest.raises(ZooError, match="did not answer"):
        gone.vocabulary()
    gone.close()

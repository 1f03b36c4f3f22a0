"""AppWorld's environment behind the bridge, with a stand-in for the package."""

import sys

from zoo.agents.envs.appworld_env import strip_fence
from zoo.agents.envs.base import Task
from zoo.agents.worlds import World, WorldArgs

PACKAGE = '''
class AppWorld:
    """Solved by the code "complete(42)"."""
    def __init__(self, task_id, experiment_name):
        self.task = type("Task", (), {"instruction": f"Do {task_id}."})
        self.answer = None
    def execute(self, code):
        if code.strip().startswith("complete("):
            self.answer = code.strip()[9:-1]
            return "Execution successful."
        return "x" * 5000 if "long" in code else "Execution failed. " + code
    def task_completed(self):
        return self.answer is not None
    def evaluate(self):
        return type("Tracker", (), {"success": self.answer == "42"})
    def close(self):
        pass
'''


def test_code_is_run_and_judged_by_its_own_evaluation(tmp_path, monkeypatch):
    (tmp_path / "appworld.py").write_text(PACKAGE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    world = World(WorldArgs.of({"name": "bridge", "python": sys.executable}))
    env = world.vector(2)
    tasks = [Task(name, name, "train", 0, {"dataset": "train"}) for name in ("a_1", "b_1")]
    try:
        assert [obs.text for obs in env.reset(tasks)] == ["Do a_1.", "Do b_1."]
        step = env.step(["print('long')", "```python\ncomplete(41)\n```"])
        assert step.obs[0].text.endswith("[1000 more characters]")
        assert step.dones.tolist() == [False, True]
        assert step.rewards.tolist() == [0, 0]
        step = env.step(["complete(42)", ""])
        assert step.rewards.tolist() == [1, 0]
        assert env.verify().tolist() == [True, False]
    finally:
        world.close()


def test_fences_around_code_are_left_out():
    assert strip_fence("a = 1") == "a = 1"
    assert strip_fence("So:\n```python\na = 1\n```\nDone.") == "a = 1\n"
    assert strip_fence("```a = 1```") == "a = 1"

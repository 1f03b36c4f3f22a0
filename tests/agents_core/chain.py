"""A tiny environment of several turns, and two processes of training: for the tests beside it."""

from zoo.agents.envs import Obs, Task
from zoo.agents.envs.base import Step

WORDS = ["goal say red blue green now good bad", "0 1 2 3 4 5 6 7 8 9"]


class Chain:
    """Say the goal's word ``length`` times; each right word is worth 1 / length."""

    def reset(self, task):
        self.task, self.turns, self.right = task, 0, 0
        return Obs(f"goal {task.payload['word']}")

    def step(self, action):
        good = action.split()[:1] == [self.task.payload["word"]]
        self.turns += 1
        self.right += good
        done = self.turns == self.task.payload["length"]
        obs = Obs("good now" if good else "bad " + "1 " * self.task.payload["noise"] + "now")
        info = {"success": self.right == self.turns, "valid": bool(action)}
        return Step(obs, good / self.task.payload["length"], done, info)

    def close(self):
        pass

    def vocabulary(self):
        return WORDS

    def verify(self, task, state):
        return state["right"] == task.payload["length"]

    def state_dict(self):
        return {"turns": self.turns, "right": self.right}

    def load_state_dict(self, state):
        self.turns, self.right = state["turns"], state["right"]


def task(number, word="red", length=3, noise=0):
    payload = {"word": word, "length": length, "noise": noise}
    return Task(f"chain-{number}", "chain", "train", number, payload)

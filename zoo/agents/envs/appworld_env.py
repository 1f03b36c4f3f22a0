"""AppWorld as an environment, in its own Python: :class:`zoo.agents.envs.HttpEnvBridge` starts it.

It imports nothing of the zoo and no torch, since AppWorld's requirements differ from them. AppWorld
(https://github.com/StonyBrookNLP/appworld, Apache-2.0) finds its data below ``APPWORLD_ROOT``.
Written after its documented interface (``AppWorld(task_id=...)``, ``execute``, ``task_completed``,
``evaluate().success``), and tested against a stand-in for it.
"""

from __future__ import annotations

from typing import Any

LIMIT = 4000  # characters of an output that are shown
EXPERIMENT = "lightning_zoo"


class AppWorldEnv:
    """Tasks that are solved by Python code against the APIs of everyday apps.

    An action is a block of code, its observation what that printed. The reward is 1 at the end if
    AppWorld's own evaluation passes, else 0.
    """

    def __init__(self) -> None:
        self.world: Any = None
        self.actions: list[str] = []
        self.success = False

    def reset(self, task: Any) -> str:
        """Begins a task; its first observation is the instruction."""
        from appworld import AppWorld  # of its own Python, where this module runs

        self.close()
        self.world = AppWorld(task_id=task.task_id, experiment_name=EXPERIMENT)
        self.actions, self.success = [], False
        return str(self.world.task.instruction)

    def step(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        """Runs a block of code; the episode ends when the agent completes the task."""
        output = str(self.world.execute(strip_fence(action)))
        self.actions.append(action)
        done = bool(self.world.task_completed())
        if done:
            self.success = bool(self.world.evaluate().success)
        if len(output) > LIMIT:
            output = f"{output[:LIMIT]}\n[{len(output) - LIMIT} more characters]"
        valid = not output.startswith("Execution failed")
        info = {"success": self.success, "valid": valid}
        return output, float(self.success), done, info

    def verify(self, task: Any, state: dict[str, Any]) -> bool:
        """AppWorld's evaluation: of the present world, or of one in which a state's code is run."""
        if self.world is None or state["actions"] != self.actions:
            self.reset(task)
            self.load_state_dict(state)
        return bool(self.world.task_completed()) and bool(self.world.evaluate().success)

    def state_dict(self) -> dict[str, Any]:
        """The code that was run."""
        return {"actions": list(self.actions)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Runs a state's code in the present task, which begins anew."""
        for action in state["actions"]:
            self.step(action)

    def vocabulary(self) -> list[str]:
        """Open: a language model's own tokenizer is needed."""
        return []

    def close(self) -> None:
        """Ends the world."""
        if self.world is not None:
            self.world.close()
            self.world = None


def strip_fence(text: str) -> str:
    """The code between Markdown's fences, if there are any."""
    _, fence, rest = text.partition("```")
    if not fence:
        return text
    code = rest.partition("```")[0]
    first, newline, body = code.partition("\n")
    return body if newline and first.strip() in ("", "python", "py") else code


def make() -> AppWorldEnv:
    """What the bridge asks for."""
    return AppWorldEnv()

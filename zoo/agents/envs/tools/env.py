"""Tools to call, on a state that decides what was achieved."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from zoo.agents.envs.base import Obs, Step, Task
from zoo.agents.envs.base import State as EnvState
from zoo.agents.envs.tools import tasks as pools
from zoo.agents.envs.tools.calls import Call, CallError, parse_calls
from zoo.agents.envs.tools.toolbox import TOOLS, State, ToolError
from zoo.errors import ZooError, did_you_mean, missing_extra

MAX_STEPS = 10
FINISH = "finish"


@cache
def _validator(name: str) -> Any:
    try:
        from jsonschema import Draft202012Validator
    except ImportError:
        raise missing_extra("jsonschema", "agents") from None
    return Draft202012Validator(TOOLS[name].parameters)


def execute(state: State, call: Call) -> tuple[State, Any]:
    """Carries out a call on a copy of the state; a call that fails changes nothing.

    Returns:
        The state after it, and its result.

    Raises:
        ToolError: If there is no such tool, the arguments are not of its schema, or it can't be
            done.
    """
    if call.name not in TOOLS:
        raise ToolError(f"there is no tool '{call.name}'.{did_you_mean(call.name, TOOLS)}")
    fault = next(iter(_validator(call.name).iter_errors(call.arguments)), None)
    if fault is not None:
        where = "".join(f"[{p!r}]" for p in fault.absolute_path)
        raise ToolError(f"arguments{where}: {fault.message[:200]}")
    after = plain_copy(state)
    result = TOOLS[call.name].call(after, **call.arguments)
    return after, plain_copy(result)


def plain_copy(value: Any) -> Any:
    """A copy of plain values, several times faster than ``copy.deepcopy``."""
    if isinstance(value, Mapping):
        return {key: plain_copy(item) for key, item in value.items()}
    return [plain_copy(item) for item in value] if isinstance(value, list) else value


def state_diff(before: Any, after: Any, path: str = "") -> dict[str, Any]:
    """What differs between two states: path to the value afterwards, ``None`` where it is gone."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        found: dict[str, Any] = {}
        for key in sorted({*before, *after}):
            inner = f"{path}/{key}"
            if key not in after:
                found[inner] = None
            elif key not in before:
                found[inner] = after[key]
            else:
                found.update(state_diff(before[key], after[key], inner))
        return found
    return {} if before == after else {path: after}


class ToolEnv:
    """Tasks for functions to carry out; reward 1 for ``finish()`` in the right state.

    An action is one call or several, ``name(key=value)`` or JSON. An episode ends with ``finish()``
    or after ``max_steps`` actions. What counts is the state: it has to differ from the initial one
    just as the task's own calls make it differ.

    Args:
        max_steps: Actions of an episode.
    """

    def __init__(self, max_steps: int = MAX_STEPS) -> None:
        self.max_steps = max_steps
        self.task: Task | None = None

    def reset(self, task: Task) -> Obs:
        """States the instruction and the signatures of the tools at hand.

        Raises:
            ZooError: If it is no task for tools.
        """
        try:
            self._tools = [TOOLS[name] for name in task.payload["tools"]]
            self.state = plain_copy(task.payload["state"])
            instruction = task.payload["instruction"]
            self._goal = _goal(task)
        except (KeyError, TypeError, ToolError) as error:
            raise ZooError(f"Task '{task.task_id}' is no tool task: {error}.") from None
        self.task, self.steps, self.done = task, 0, False
        lines = [f"{tool.signature()}: {tool.description}" for tool in self._tools]
        lines.append(f"{FINISH}(): Ends the task.")
        return Obs("\n".join([f"Task: {instruction}", "Tools:", *lines]))

    def step(self, action: str) -> Step:
        """Carries out the calls of an action, in turn, up to the first that fails."""
        if self.task is None or self.done:
            raise ZooError("A tool episode begins with reset, and ends when done is true.")
        self.steps += 1
        results, valid, finished = [], True, False
        try:
            for call in parse_calls(action):
                if call.name == FINISH:
                    finished = True
                    break
                if call.name not in {tool.name for tool in self._tools}:
                    known = [tool.name for tool in self._tools]
                    raise ToolError(
                        f"there is no tool '{call.name}'.{did_you_mean(call.name, known)}"
                    )
                self.state, result = execute(self.state, call)
                results.append(result)
        except (CallError, ToolError) as error:
            results.append({"error": str(error)})
            valid = False
        success = self._solved()
        self.done = finished or self.steps >= self.max_steps
        reward = float(finished and success)
        text = "\n".join(json.dumps(result, sort_keys=True) for result in results)
        return Step(
            Obs(text or "Finished."), reward, self.done, {"success": success, "valid": valid}
        )

    def _solved(self) -> bool:
        assert self.task is not None
        return state_diff(self.task.payload["state"], self.state) == self._goal

    def close(self) -> None:
        """Nothing to free."""

    def vocabulary(self) -> list[str]:
        """Words of generated instructions, tools, and values; numbers digit by digit."""
        words: set[str] = set("()[]{}=,.:'\"-/_0123456789ABCDEFF") | {FINISH, "Finished", "error"}
        texts = [t.signature() + " " + t.description for t in TOOLS.values()]
        for name in dir(pools):
            if name.isupper() and isinstance(getattr(pools, name), tuple):
                texts += getattr(pools, name)
        for family in pools.MAKERS:
            for seed in range(40):
                texts.append(pools.tool_task(family, seed).payload["instruction"])
        for text in texts:
            words |= {word for word in re.findall(r"[^\W\d_]+", text)}
        return sorted(words)

    def verify(self, task: Task, state: EnvState) -> bool:
        """Whether a state differs from the initial one as the task asks."""
        return state_diff(task.payload["state"], state["state"]) == _goal(task)

    def state_dict(self) -> EnvState:
        """The tools' state, and the steps taken."""
        return {"state": plain_copy(self.state), "steps": self.steps, "done": self.done}

    def load_state_dict(self, state: EnvState) -> None:
        """Goes back to a state of the present task."""
        self.state = plain_copy(state["state"])
        self.steps, self.done = state["steps"], state["done"]


def _goal(task: Task) -> dict[str, Any]:
    """What the task's own calls change."""
    state = plain_copy(task.payload["state"])
    for item in task.payload["calls"]:
        state, _ = execute(state, Call(item["name"], item["arguments"]))
    return state_diff(task.payload["state"], state)

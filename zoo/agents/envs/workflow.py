"""Workflows: four things to do with an object, in an order that has to be found out.

The verbs and objects are the household's, without its rooms. A task names its type and an object;
each of the 16 types has a procedure of four verbs that no prompt reveals, and the only reward comes
at the end, if all four were done in their order. So a procedure is learnt from attempts that
succeeded, or read in a skill.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.agents.envs.base import SPLIT_SEEDS, Obs, State, Step, Task
from zoo.agents.envs.household import OBJECTS
from zoo.errors import ZooError, check_choice

VERBS = ("clean", "close", "cool", "heat", "open", "use")
LENGTH = 4  # steps of a procedure
TYPES = (
    *("brunch", "camping", "cleanup", "coffee", "dinner", "farewell", "gift", "guests"),
    *("holiday", "laundry", "lunch", "moving", "party", "picnic", "repair", "storage"),
)
EXPERT = 0.5  # chance that a step of the noisy demonstrator is right


def procedure(kind: str) -> list[str]:
    """The verbs of a type, in order; no two types have the same, none has a verb twice in a row.

    Raises:
        ZooError: For an unknown type.
    """
    check_choice("type", kind, TYPES)
    return list(_PROCEDURES[kind])


def _draw_procedures() -> dict[str, tuple[str, ...]]:
    rng = random.Random("workflow procedures")
    found: dict[str, tuple[str, ...]] = {}
    for kind in TYPES:
        while kind not in found:
            verbs = tuple(random_procedure(rng))
            if verbs not in found.values():
                found[kind] = verbs
    return found


def random_procedure(rng: random.Random) -> list[str]:
    """Four verbs by chance, none twice in a row."""
    verbs: list[str] = []
    while len(verbs) < LENGTH:
        verbs.append(rng.choice([v for v in VERBS if not verbs or v != verbs[-1]]))
    return verbs


_PROCEDURES = _draw_procedures()


# -------------------------------------------------------------------------------------- tasks
def split_objects(split: str) -> tuple[str, ...]:
    """The objects of a split: 8 for training, 2 for validation, 4 for the test."""
    order = random.Random("workflow objects").sample(OBJECTS, len(OBJECTS))
    bounds = {"train": (0, 8), "val": (8, 10), "test": (10, 14)}
    check_choice("split", split, bounds)
    start, end = bounds[split]
    return tuple(sorted(order[start:end]))


def workflow_tasks(split: str) -> list[Task]:
    """Each type with each object of a split.

    Raises:
        ZooError: If the split is none of ``train``, ``val`` and ``test``.
    """
    first = SPLIT_SEEDS[split][0] if split in SPLIT_SEEDS else 0
    pairs = [(kind, thing) for thing in split_objects(split) for kind in TYPES]
    return [
        Task(f"workflow-{kind}-{thing}", kind, split, first + i, {"type": kind, "object": thing})
        for i, (kind, thing) in enumerate(pairs)
    ]


def expert_plan(task: Task, rng: random.Random, right: float = EXPERT) -> list[str]:
    """What a demonstrator does who takes each step of the procedure with a chance of ``right``.

    Otherwise it does any of the other five things.
    """
    verbs = [
        verb if rng.random() < right else rng.choice([v for v in VERBS if v != verb])
        for verb in procedure(task.payload["type"])
    ]
    return [f"{verb} {task.payload['object']}" for verb in verbs]


def practice(rng: random.Random) -> tuple[Task, list[str]]:
    """A task by chance, and actions that follow a procedure that has nothing to do with it.

    Any object may come, so that their names are known; what is to be done with them is not shown.
    """
    kind, thing = rng.choice(TYPES), rng.choice(OBJECTS)
    task = Task(f"practice-{kind}-{thing}", kind, "train", 0, {"type": kind, "object": thing})
    return task, [f"{verb} {thing}" for verb in random_procedure(rng)]


# ----------------------------------------------------------------------------------------- env
class WorkflowEnv:
    """Workflow tasks; reward 1 at the end if all four steps were right, else 0.

    Args:
        max_steps: Of an episode, at most 4: there is no second try.
    """

    def __init__(self, max_steps: int = LENGTH) -> None:
        self.max_steps = min(max_steps, LENGTH)
        self.task: Task | None = None
        self.actions: list[str] = []

    def reset(self, task: Task) -> Obs:
        """Names the type and the object.

        Raises:
            ZooError: If it is no such task.
        """
        self.task, self.actions = task, []
        self._procedure, self._object = _goal(task)
        return Obs(f"prepare {self._object} for {task.payload['type']}.", self._admissible())

    def _admissible(self) -> list[str]:
        return [f"{verb} {self._object}" for verb in VERBS]

    def step(self, action: str) -> Step:
        """Does one thing; ``nothing happens`` if it is none of the six, or with another object.

        Raises:
            ZooError: If there is no task, or it is over.
        """
        if self.task is None or len(self.actions) >= self.max_steps:
            raise ZooError("A workflow begins with reset, and ends when done is true.")
        action = " ".join(action.lower().split())
        self.actions.append(action)
        verb, _, thing = action.partition(" ")
        valid = verb in VERBS and thing == self._object
        done = len(self.actions) >= self.max_steps
        success = done and self._solved(self.actions)
        text = "done." if valid else "nothing happens."
        info = {"success": success, "valid": valid}
        return Step(Obs(text, self._admissible()), float(success), done, info)

    def _solved(self, actions: Sequence[str]) -> bool:
        return list(actions) == [f"{verb} {self._object}" for verb in self._procedure]

    def close(self) -> None:
        """Nothing to free."""

    def vocabulary(self) -> list[str]:
        """Words and marks of tasks, observations and actions."""
        words = "prepare for done nothing happens ."
        return sorted({*words.split(), *VERBS, *OBJECTS, *TYPES})

    def verify(self, task: Task, state: State) -> bool:
        """Whether the actions of a state are the task's procedure."""
        verbs, thing = _goal(task)
        return list(state["actions"]) == [f"{verb} {thing}" for verb in verbs]

    def state_dict(self) -> State:
        """The actions so far."""
        return {"actions": list(self.actions)}

    def load_state_dict(self, state: State) -> None:
        """Goes back to a state of the present task."""
        self.actions = list(state["actions"])


def _goal(task: Task) -> tuple[list[str], str]:
    payload: Mapping[str, Any] = task.payload
    if payload.get("type") not in TYPES or payload.get("object") not in OBJECTS:
        raise ZooError(f"Task '{task.task_id}' is no workflow: {dict(payload)}.")
    return procedure(payload["type"]), str(payload["object"])

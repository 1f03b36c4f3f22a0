"""Environments by name, with demonstrations: what a config says, and what training needs."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from zoo.agents.envs import household, sokoban, workflow
from zoo.agents.envs.base import Env, Task, VectorEnv
from zoo.agents.envs.bridge import HttpEnvBridge
from zoo.agents.envs.engines import AlfworldEnv
from zoo.agents.envs.household_expert import expert_plan
from zoo.errors import ZooError, check_choice, did_you_mean

WORLDS = ("workflow", "sokoban", "household", "alfworld", "bridge")
PRACTICE_MOVES = (3, 8)  # of a random walk in Sokoban or a household
Practice = Callable[[random.Random], tuple[Task, list[str]]]


@dataclass
class WorldArgs:
    """Which environment, as plain data.

    Attributes:
        name: "workflow", "sokoban" or "household", which are generated; "alfworld", the published
            games; "bridge", one that runs in another Python, as AppWorld's.
        max_steps: After which an episode ends.
        size: Cells of a Sokoban board's side that demonstrations are drawn for.
        boxes: On it.
        written: How boards are, "board" or "places": see
            :class:`~zoo.agents.envs.sokoban.SokobanVectorEnv`.
        root: Folder of ALFWorld's games.
        python: The other Python of "bridge".
        factory: ``module:function`` that makes its environment there.
        folder: In which it starts and finds that module; ``None`` for that of the zoo's own.
        instructions: What a large model is told before the first observation of a task.
    """

    name: str = "workflow"
    max_steps: int = 50
    size: int = 6
    boxes: int = 1
    written: str = "board"
    root: str | None = None
    python: str | None = None
    factory: str = "appworld_env:make"
    folder: str | None = None
    instructions: str = ""

    @classmethod
    def of(cls, value: WorldArgs | Mapping[str, Any] | None) -> WorldArgs:
        """The arguments, from plain data.

        Raises:
            ZooError: For an unknown key or name, or one that lacks what it needs.
        """
        if not isinstance(value, WorldArgs):
            known = [f.name for f in fields(cls)]
            for key in value or {}:
                if key not in known:
                    raise ZooError(f"env has no key '{key}'.{did_you_mean(key, known)}")
            value = cls(**(value or {}))
        check_choice("env.name", value.name, WORLDS)
        if value.max_steps < 1:
            raise ZooError(f"env.max_steps={value.max_steps} must be at least 1.")
        if value.name == "alfworld" and not value.root:
            raise ZooError("env.name='alfworld' needs env.root, the folder of json_2.1.1.")
        if value.name == "bridge" and not value.python:
            raise ZooError(
                "env.name='bridge' needs env.python, that of the environment's own venv."
            )
        return value


class World:
    """The environment that the arguments name: many instances, its words, and demonstrations.

    Args:
        args: Which one.
    """

    def __init__(self, args: WorldArgs) -> None:
        self.args = args
        self._pool: list[Env] = []

    def make(self) -> Env:
        """One instance."""
        args = self.args
        if args.name == "workflow":
            return workflow.WorkflowEnv(args.max_steps)
        if args.name == "sokoban":
            return sokoban.SokobanEnv(args.max_steps, args.written)
        if args.name == "household":
            return household.HouseholdEnv(args.max_steps)
        if args.name == "alfworld":
            return AlfworldEnv(str(args.root), args.max_steps)
        folder = args.folder or str(Path(household.__file__).parent)
        return HttpEnvBridge.start(str(args.python), args.factory, folder)

    def vector(self, n: int) -> VectorEnv:
        """N instances in lock-step; they are used again, since some are slow to start."""
        if self.args.name == "sokoban":
            args = self.args
            return sokoban.SokobanVectorEnv(n, args.max_steps, args.written)  # type: ignore[return-value]
        while len(self._pool) < n:
            self._pool.append(self.make())
        ready = iter(self._pool)
        return VectorEnv(lambda: next(ready), n)

    def close(self) -> None:
        """Closes all instances."""
        for env in self._pool:
            env.close()
        self._pool.clear()

    def vocabulary(self) -> list[str]:
        """Words of its observations and actions.

        Raises:
            ZooError: If they are open, as those of published games.
        """
        if self.args.name in ("alfworld", "bridge"):
            raise ZooError(f"env.name={self.args.name!r} has no fixed words: use policy.model_id.")
        return self.make().vocabulary()

    # -- demonstrations ----------------------------------------------------------------------

    @property
    def noisy(self) -> bool:
        """Whether its demonstrator does a task differently each time."""
        return self.args.name == "workflow"

    def plan(self, task: Task, rng: random.Random) -> list[str]:
        """What a demonstrator does: a noisy one in workflows, the shortest way in Sokoban.

        Raises:
            ZooError: If this environment has no demonstrator, or a level no solution.
        """
        if self.args.name == "workflow":
            return workflow.expert_plan(task, rng)
        if self.args.name == "sokoban":
            moves = sokoban.solve(task.payload["rows"])
            if moves is None:
                raise ZooError(f"Task '{task.task_id}' can't be solved.")
            return moves
        if self.args.name == "household":
            env = household.HouseholdEnv()
            env.reset(task)
            return expert_plan(env, explore=True)
        raise ZooError(
            f"env.name={self.args.name!r} has no demonstrator: sft_steps=0 and rehearsal=0."
        )

    def practice(self, rng: random.Random) -> tuple[Task, list[str]]:
        """A random task, and random actions in it that have nothing to do with its goal.

        Raises:
            ZooError: If this environment has none.
        """
        if self.args.name == "workflow":
            return workflow.practice(rng)
        seed = rng.randrange(10**9)
        if self.args.name == "sokoban":
            rows, _ = sokoban.generate_level(seed, self.args.size, self.args.boxes)
            task = Task(f"practice-{seed}", "practice", "train", seed, {"rows": rows})
        elif self.args.name == "household":
            task = household.household_task(household.FAMILIES[seed % 6], seed)
        else:
            raise ZooError(f"env.name={self.args.name!r} can't be practised: rehearsal=0.")
        env, actions = self.make(), []
        obs = env.reset(task)
        for _ in range(rng.randint(*PRACTICE_MOVES)):
            action = rng.choice(obs.admissible or ["look"])
            step = env.step(action)
            actions.append(action)
            obs = step.obs
            if step.done:
                break
        return task, actions

    def play(self, task: Task, actions: Sequence[str]) -> list[str]:
        """The observations that actions lead to, the first one before them; ends with the episode.

        Raises:
            ZooError: If the environment refuses the task.
        """
        env = self.make() if not self._pool else self._pool[0]
        seen = [env.reset(task).text]
        for action in actions:
            step = env.step(action)
            seen.append(step.obs.text)
            if step.done:
                break
        return seen

    def check(self, task: Task, rng: random.Random, steps: int = 4) -> None:
        """Plays a task twice with the same actions.

        Raises:
            ZooError: If the observations differ: groups of rollouts would not be comparable.
        """
        env = self.make() if not self._pool else self._pool[0]
        if not self._pool:
            self._pool.append(env)
        seen: list[list[str]] = []
        actions: list[str] = []
        for attempt in range(2):
            obs = env.reset(task)
            texts = [obs.text]
            for number in range(steps):
                if attempt == 0:
                    actions.append(rng.choice(obs.admissible or ["look"]))
                if number >= len(actions):
                    break
                step = env.step(actions[number])
                obs = step.obs
                texts.append(obs.text)
                if step.done:
                    break
            seen.append(texts)
        for turn, (one, other) in enumerate(zip(*seen, strict=False)):
            if one != other:
                raise ZooError(
                    f"The environment is not deterministic: task '{task.task_id}' answered "
                    f"'{one[:60]}' and then '{other[:60]}' to the same actions, turn {turn}."
                )

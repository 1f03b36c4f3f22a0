"""What an environment is: tasks, observations, one instance, and n of them in lock-step.

An environment is text in, text out. Its reward and its verdict come from its own state: what the
agent *says* it did counts for nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np

from zoo.errors import ZooError, check_choice

State: TypeAlias = dict[str, Any]
"""The whole state of an environment as plain JSON values, from ``Env.state_dict()``."""

# A split draws its seeds from a range of its own, so that no generated task is in two of them.
SPLIT_SEEDS = {
    "train": range(0, 1_000_000_000),
    "val": range(1_000_000_000, 1_100_000_000),
    "test": range(1_100_000_000, 1_200_000_000),
    "probe": range(1_200_000_000, 1_300_000_000),
}

# A split's share of all payloads, in hundredths of their hashes: generated tasks of two splits
# differ by payload as well, without being compared.
SPLIT_SHARES = {
    "train": range(0, 70),
    "val": range(70, 80),
    "test": range(80, 90),
    "probe": range(90, 100),
}


@dataclass(frozen=True)
class Task:
    """One thing to do in an environment.

    Attributes:
        task_id: Unique within the environment.
        family: Kind of task, by which results are grouped.
        split: ``train``, ``val``, ``test``, ``probe``, or the benchmark's own word.
        seed: Of the generator that made it, and of whatever is random while it is played.
        payload: All that ``reset`` needs, as plain JSON values.
    """

    task_id: str
    family: str
    split: str
    seed: int
    payload: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def payload_hash(self) -> str:
        """SHA-256 of family and payload: two tasks of one hash are the same task."""
        text = json.dumps([self.family, self.payload], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def __hash__(self) -> int:
        return hash((self.task_id, self.seed, self.payload_hash))

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values."""
        return {
            "task_id": self.task_id,
            "family": self.family,
            "split": self.split,
            "seed": self.seed,
            "payload": dict(self.payload),
        }


@dataclass(frozen=True)
class Obs:
    """What the agent reads.

    Attributes:
        text: The observation.
        admissible: Actions that the environment takes now, sorted; ``None`` where they cannot be
            listed.
    """

    text: str
    admissible: list[str] | None = None


class Step(NamedTuple):
    """What an action led to; unpacks as ``obs, reward, done, info``.

    Attributes:
        obs: The next observation.
        reward: Of this step alone.
        done: No further action is taken.
        info: ``success`` (goal reached so far) and ``valid`` (the action was understood and
            possible) are always there; environments add their own.
    """

    obs: Obs
    reward: float
    done: bool
    info: dict[str, Any]


@runtime_checkable
class Env(Protocol):
    """One instance of an environment.

    The same task and the same actions give the same observations, rewards and states.
    """

    def reset(self, task: Task) -> Obs:
        """Begins a task; its first observation states the goal."""
        ...

    def step(self, action: str) -> Step:
        """Takes one action. An action that is not understood costs a step and changes nothing."""
        ...

    def close(self) -> None:
        """Frees what it holds (processes, folders); may be called twice."""
        ...

    def vocabulary(self) -> list[str]:
        """Every word, sorted, that its observations and actions can have, for a small tokenizer."""
        ...

    def verify(self, task: Task, state: State) -> bool:
        """Whether ``state`` solves ``task``: deterministic, from the state alone."""
        ...

    def state_dict(self) -> State:
        """The whole state as plain JSON values."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Goes back to a state; the actions that follow give what they gave before."""
        ...


class VectorStep(NamedTuple):
    """What a round of actions led to; unpacks as ``obs, rewards, dones, infos``.

    Attributes:
        obs: The next observations; of an instance that did not act, its last one.
        rewards: Shape: (n,) float32; 0 for an instance that did not act.
        dones: Shape: (n,) bool; stays true once an episode has ended.
        infos: As in :class:`Step`; of an instance that did not act, its last one.
    """

    obs: list[Obs]
    rewards: np.ndarray
    dones: np.ndarray
    infos: list[dict[str, Any]]


class VectorEnv:
    """n instances in lock-step.

    Args:
        make: Makes one instance.
        n: How many.
    """

    def __init__(self, make: Callable[[], Env], n: int) -> None:
        if n < 1:
            raise ZooError(f"A vector of environments holds at least one: n={n}.")
        self.envs = [make() for _ in range(n)]
        self.tasks: list[Task] = []
        self._obs: list[Obs] = []
        self._infos: list[dict[str, Any]] = []
        self._dones = np.ones(n, dtype=bool)

    def __len__(self) -> int:
        return len(self.envs)

    def reset(self, tasks: Sequence[Task]) -> list[Obs]:
        """Begins one task in each instance.

        Raises:
            ZooError: If there are not as many tasks as instances.
        """
        check_length("tasks", tasks, len(self))
        self.tasks = list(tasks)
        self._obs = [env.reset(task) for env, task in zip(self.envs, tasks, strict=True)]
        self._infos = [{"success": False, "valid": True} for _ in tasks]
        self._dones = np.zeros(len(self), dtype=bool)
        return list(self._obs)

    def step(self, actions: Sequence[str], active: Sequence[bool] | None = None) -> VectorStep:
        """Takes one action in each instance that is active and not done.

        Args:
            actions: One for each instance; those of resting instances are not read.
            active: Which instances act; ``None`` stands for all. Shape: (n,).

        Raises:
            ZooError: If a length is not n.
        """
        check_length("actions", actions, len(self))
        if active is not None:
            check_length("active", active, len(self))
        rewards = np.zeros(len(self), dtype=np.float32)
        for i, env in enumerate(self.envs):
            if self._dones[i] or (active is not None and not active[i]):
                continue
            self._obs[i], rewards[i], self._dones[i], self._infos[i] = env.step(actions[i])
        return VectorStep(list(self._obs), rewards, self._dones.copy(), list(self._infos))

    def close(self) -> None:
        """Closes all instances."""
        for env in self.envs:
            env.close()

    def vocabulary(self) -> list[str]:
        """Of one instance, since all are alike."""
        return self.envs[0].vocabulary()

    def verify(self) -> np.ndarray:
        """Whether each instance's state solves its task. Shape: (n,) bool."""
        return np.array(
            [e.verify(t, e.state_dict()) for e, t in zip(self.envs, self.tasks, strict=True)]
        )

    def state_dicts(self) -> list[State]:
        """The state of each instance."""
        return [env.state_dict() for env in self.envs]


def check_length(name: str, values: Sequence[Any], n: int) -> None:
    """Raises a :class:`ZooError` unless there are ``n`` values, one for each instance."""
    if len(values) != n:
        raise ZooError(f"{n} environments run in lock-step, but {name} has {len(values)} entries.")


def split_seeds(split: str, n: int, offset: int = 0) -> range:
    """The n seeds of a split from ``offset`` on.

    Raises:
        ZooError: If the split is unknown, or has fewer seeds than that.
    """
    check_choice("split", split, SPLIT_SEEDS)
    seeds = SPLIT_SEEDS[split]
    if offset < 0 or n < 0 or offset + n > len(seeds):
        raise ZooError(f"Split '{split}' has {len(seeds)} seeds: asked for {n} from {offset} on.")
    return seeds[offset : offset + n]


def draw_tasks(make: Callable[[int], Task], split: str, n: int, offset: int = 0) -> list[Task]:
    """The first n distinct tasks of a split.

    Args:
        make: Makes the task of a seed.
        split: One of ``SPLIT_SEEDS``.
        n: How many.
        offset: Seeds of the split to pass over.

    Raises:
        ZooError: If the split is unknown, or the generator does not have as many distinct tasks.
    """
    tasks: dict[str, Task] = {}
    for seed in split_seeds(split, 1000 + 100 * n, offset):
        if len(tasks) == n:
            break
        task = make(seed)
        if int(task.payload_hash[:12], 16) % 100 in SPLIT_SHARES[split]:
            tasks.setdefault(task.payload_hash, task)
    if len(tasks) < n:
        raise ZooError(f"Only {len(tasks)} distinct tasks of split '{split}' were found, not {n}.")
    return list(tasks.values())


def check_disjoint(splits: Mapping[str, Sequence[Task]]) -> None:
    """Raises a :class:`ZooError` if a task of one split is in another, by seed or by payload."""
    seen: dict[object, tuple[str, str]] = {}
    for split, tasks in splits.items():
        for task in tasks:
            for key in (task.seed, task.payload_hash):
                other, name = seen.setdefault(key, (split, task.task_id))
                if other != split:
                    what = "seed" if isinstance(key, int) else "payload"
                    raise ZooError(
                        f"Task '{task.task_id}' of split '{split}' has the {what} of "
                        f"'{name}' of split '{other}': splits must not overlap."
                    )

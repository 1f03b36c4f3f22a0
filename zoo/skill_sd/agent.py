"""The agent of Skill-SD as it is used: what it reads, how it plays, and its next action."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zoo.agents.envs.base import Obs, Task
from zoo.agents.module import PolicyModule
from zoo.agents.rollout import Collected, RolloutCollector
from zoo.agents.worlds import World
from zoo.atomic import write_json
from zoo.errors import ZooError
from zoo.skill_sd.summary import Summary, check_plain


class SkilledAgent(PolicyModule):
    """An agent that acts under the plain prompt, and can be played with skills before it.

    Attributes:
        world: The environment.
        brief: Whether prompts are of a tiny policy's words alone.
        skills_by: "family" or "task".
        max_turns: Of an episode.
        max_new_tokens: Of a turn.
    """

    world: World
    brief: bool
    skills_by: str
    max_turns: int
    max_new_tokens: int

    # -- prompts -----------------------------------------------------------------------------

    def plain(self, observation: str) -> str:
        """What the student reads first: never a skill.

        Raises:
            ZooError: If the observation holds one.
        """
        check_plain(observation, self.brief)
        if self.brief or not self.world.args.instructions:
            return observation
        return f"{self.world.args.instructions}\n\n{observation}"

    def skilled(self, observation: str, skill: Summary, key: str) -> str:
        """What the teacher reads first: the skill, and then what the student reads."""
        block = skill.brief() if self.brief else skill.quoted(key)
        return f"{block}\n{self.plain(observation)}"

    def key(self, task: Task) -> str:
        """Under which the bank has a task's skills."""
        name = task.family if self.skills_by == "family" else task.task_id
        if not name:
            raise ZooError(f"A task without {self.skills_by} can't have skills: {task.to_dict()}.")
        return name

    # -- rollouts ----------------------------------------------------------------------------

    def play(
        self,
        tasks: Sequence[Task],
        group: int = 1,
        skills: Mapping[str, Summary] | None = None,
        temperature: float | None = None,
        generator: torch.Generator | None = None,
        keys: Tensor | None = None,
    ) -> Collected:
        """Plays tasks, each ``group`` times.

        Args:
            tasks: They.
            group: Rollouts of each.
            skills: By key of the task, for those who may read them; ``None`` for the student.
            temperature: ``None`` for that of training.
            generator: Of the draws.
            keys: Instead of a generator, see :meth:`RolloutCollector.collect`.
        """

        def render(task: Task, obs: Obs) -> str:
            skill = None if skills is None else skills.get(self.key(task))
            return (
                self.plain(obs.text)
                if skill is None
                else self.skilled(obs.text, skill, task.family)
            )

        collector = RolloutCollector(
            self.policy,
            self.world.vector(len(tasks) * group),
            self.max_turns,
            self.max_new_tokens,
            self.updates.temperature if temperature is None else temperature,
            render,
        )
        return collector.collect(tasks, group, generator, keys)

    # -- use ---------------------------------------------------------------------------------

    def conversation_tokens(self, history: str | Sequence[str]) -> list[int]:
        """Tokens of observations and actions in turn, from the first observation to the last.

        Raises:
            ZooError: If there is none, it ends with an action, or the first one holds a skill.
        """
        turns = [history] if isinstance(history, str) else list(history)
        if len(turns) % 2 == 0 or not all(text.strip() for text in turns):
            raise ZooError(
                "A history is an observation, or observations and actions in turn that end with "
                f"an observation, none of them empty: it has {len(turns)} texts."
            )
        ids: list[int] = []
        for number, text in enumerate(turns):
            if number % 2:
                ids += self.policy.encode_reply(text)
            else:
                shown = self.plain(text) if number == 0 else check_plain(text, self.brief)
                ids += self.policy.encode_prompt(shown, first=number == 0)
        return ids

    def act(self, observation: str | Sequence[str], admissible: Sequence[str] | None = None) -> str:
        """The next action, without any skill.

        Args:
            observation: The first one of a task; or observations and actions in turn so far.
            admissible: To choose from; ``None`` writes the likeliest.
        """
        (found,) = self.predict(observation, admissible)
        return str(found["action"])

    def predict(
        self,
        observation: str | Sequence[str],
        admissible: Sequence[str] | None = None,
    ) -> list[dict[str, Any]]:
        """The likeliest next action, as a list of one dict: ``action``, and ``logprob`` in nats.

        Args:
            observation: See :meth:`act`.
            admissible: See :meth:`act`.

        Raises:
            ZooError: For a history that is none, or a word that the tiny policy does not know.
        """
        with self.evaluating():
            return [self._next(observation, admissible)]

    def _next(
        self, history: str | Sequence[str], admissible: Sequence[str] | None
    ) -> dict[str, Any]:
        prompt = self.conversation_tokens(history)
        if admissible is not None:
            replies = [self.policy.encode_reply(action) for action in admissible]
            scores = self.policy.score(prompt, replies)
            best = int(scores.argmax())
            logprob = float(scores[best]) * len(replies[best])
            return {"action": admissible[best], "logprob": logprob}
        rollout = self.policy.generate([prompt], self.max_new_tokens, 0.0)
        (text,) = self.policy.decode(rollout.rows())
        return {"action": text, "logprob": float(rollout.logprobs.sum())}

    def predict_step(self, batch: Mapping[str, Any], batch_idx: int) -> list[dict[str, Any]]:
        """The next action of each history of a file, by name."""
        return [
            {"name": name, "history": json.loads(text), **self._next(json.loads(text), None)}
            for name, text in zip(batch["name"], batch["history"], strict=True)
        ]

    def write_prediction(self, prediction: Mapping[str, Any], path: Path) -> list[Path]:
        """Writes ``<name>.json``: the history, the action and its log-probability."""
        path = path.with_name(f"{path.name}.json")
        write_json(path, dict(prediction))
        return [path]


def read_task(row: Mapping[str, Any]) -> Task:
    """A task from plain values.

    Raises:
        ZooError: If it has no id.
    """
    if not row.get("task_id"):
        raise ZooError(f"A task has no task_id: {dict(row)}.")
    return Task(**row)


def read_tasks(batch: Mapping[str, Any]) -> list[Task]:
    """The tasks of a batch, which come as JSON texts."""
    return [read_task(json.loads(text)) for text in batch["task"]]


def succeeded(collected: Collected) -> Tensor:
    """Of each episode 1 or 0. Shape: (N,), float32."""
    return torch.tensor([float(e.success) for e in collected.episodes])

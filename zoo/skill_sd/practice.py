"""Conversations to imitate: a demonstrator's under the plain prompt, and obeying random workflows.

The second teach to read a skill, whatever it says. They come before the rewards, and again with
each update (rehearsal): without, a small model unlearns it while its weights move.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from zoo.agents.codec import Codec
from zoo.agents.envs.base import Task
from zoo.agents.policy import pad_rows
from zoo.agents.rollout import Episode
from zoo.agents.trajectory import Trajectory, Turn, encode
from zoo.agents.worlds import World
from zoo.errors import ZooError

Row = tuple[list[int], list[bool]]
Opening = Callable[[Episode, bool], str]
"""The first prompt of an episode, with or without a skill that tells its actions."""


def conversation(
    world: World, codec: Codec, task: Task, actions: Sequence[str], opening: Opening, skilled: bool
) -> Row:
    """Tokens of playing some actions, and which of them are the agent's."""
    seen = world.play(task, actions)
    done = list(actions[: len(seen) - 1])
    episode = Episode(task, done, seen)
    turns = [Turn("user", opening(episode, skilled))]
    for action, text in zip(done, seen[1:], strict=True):
        turns += [Turn("assistant", action), Turn("user", text)]
    return encode(Trajectory(task.task_id, task.family, turns), codec)


class Rehearsal:
    """A fixed number of conversations that obey random workflows, to draw from.

    Args:
        world: Which is practised.
        codec: Of the policy.
        opening: See :data:`Opening`.
        size: Conversations.
        seed: Of them.
        limit: Tokens of the longest that is kept.
    """

    def __init__(
        self, world: World, codec: Codec, opening: Opening, size: int, seed: int, limit: int
    ) -> None:
        rng = random.Random(f"rehearsal {seed}")
        rows: list[Row] = []
        for _ in range(4 * size):
            if len(rows) == size:
                break
            task, actions = world.practice(rng)
            row = conversation(world, codec, task, actions, opening, skilled=True)
            if len(row[0]) <= limit and any(row[1]):
                rows.append(row)
        if not rows:
            raise ZooError(
                f"No practice conversation fits into {limit} tokens: raise policy.max_context."
            )
        self.batch = pad(rows, codec.pad_id)

    def draw(self, count: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Some of them by chance, as ``input_ids``, ``attention_mask`` and ``actions``."""
        chosen = torch.randint(len(self.batch["input_ids"]), (count,), generator=generator)
        return {name: value[chosen] for name, value in self.batch.items()}


def pad(rows: Sequence[Row], pad_id: int) -> dict[str, Tensor]:
    """Conversations as tensors, padded on the right. Shape of each: (B, T)."""
    ids, mask = pad_rows([row[0] for row in rows], pad_id, torch.device("cpu"))
    actions = torch.zeros_like(mask, dtype=torch.bool)
    for number, (_, chosen) in enumerate(rows):
        actions[number, : len(chosen)] = torch.tensor(chosen)
    return {"input_ids": ids, "attention_mask": mask, "actions": actions}


def join(parts: Sequence[dict[str, Tensor]], pad_id: int) -> dict[str, Tensor]:
    """Several batches as one."""
    width = max(part["input_ids"].shape[1] for part in parts)
    fill = {"input_ids": pad_id, "attention_mask": 0, "actions": False}
    return {
        name: torch.cat(
            [
                torch.nn.functional.pad(part[name], (0, width - part[name].shape[1]), value=value)
                for part in parts
            ]
        )
        for name, value in fill.items()
    }

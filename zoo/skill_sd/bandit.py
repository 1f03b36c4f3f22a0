"""The bank of skills, and which of a task's skills the teacher reads: upper confidence bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zoo.errors import ZooError
from zoo.skill_sd.summary import Summary, summary_of


@dataclass
class Arm:
    """A skill of a task, and how it fared.

    Attributes:
        summary: It.
        turns: Of the trajectory that it was drawn from.
        evidence: Id of that trajectory's task.
        uses: How often it was credited.
        value: Mean of its credits, -1 to 1.
    """

    summary: Summary
    turns: int
    evidence: str
    uses: int = 0
    value: float = 0.0


class SkillBandit:
    """At most ``size`` skills of each task, of which the one with the highest bound is read.

    The bound is mean value + c sqrt(ln N / n) of n credits, N over the task's skills (UCB1, Auer
    et al., 2002); a skill without credit comes first. A visit's success less that of the visit
    before, -1 to 1, is the credit of the skill that was read then: the paper names UCB, but not
    what it credits.

    Args:
        c: Width of the bounds.
        size: Skills of a task at most.
    """

    def __init__(self, c: float = 1.0, size: int = 4) -> None:
        if c < 0 or size < 1:
            raise ZooError(f"ucb_c={c}, skills_per_task={size}: expected >= 0 and at least 1.")
        self.c, self.size = c, size
        self.arms: dict[str, list[Arm]] = {}
        self.last: dict[str, float] = {}  # success of the last visit
        self.read: dict[str, int] = {}  # the arm that was read then

    def __len__(self) -> int:
        return sum(map(len, self.arms.values()))

    def __contains__(self, task: object) -> bool:
        return bool(self.arms.get(str(task)))

    @property
    def visited(self) -> int:
        """Number of tasks that were visited."""
        return len(self.last)

    @property
    def coverage(self) -> float:
        """Share of the visited tasks that have a skill."""
        return sum(1 for task in self.last if task in self) / max(1, self.visited)

    def bounds(self, task: str) -> list[float]:
        """Of each skill of a task."""
        arms = self.arms.get(task, [])
        total = sum(arm.uses for arm in arms)
        return [
            arm.value + self.c * math.sqrt(math.log(total) / arm.uses) if arm.uses else math.inf
            for arm in arms
        ]

    def choose(self, task: str) -> Summary | None:
        """The skill to read at this visit, which the next one credits; ``None`` without any."""
        bounds = self.bounds(task)
        if not bounds:
            return None
        number = max(range(len(bounds)), key=lambda i: (bounds[i], -i))
        self.read[task] = number
        return self.arms[task][number].summary

    def best(self, task: str) -> Summary | None:
        """The skill of the highest mean value, the shortest of equal ones; counts nothing."""
        arms = self.arms.get(task)
        return max(arms, key=lambda arm: (arm.value, -arm.turns)).summary if arms else None

    def visit(self, task: str, success: float) -> None:
        """Credits what was read at the last visit with what success has gained since."""
        number = self.read.pop(task, None)
        if number is not None and task in self.last:
            arm = self.arms[task][number]
            credit = min(1.0, max(-1.0, success - self.last[task]))
            arm.uses += 1
            arm.value += (credit - arm.value) / arm.uses
        self.last[task] = success

    def wants(self, task: str, turns: int) -> bool:
        """Whether a success of so many turns would be taken, so that it is worth a summary."""
        arms = self.arms.get(task, [])
        return len(arms) < self.size or turns < max(arm.turns for arm in arms)

    def add(self, task: str, summary: Summary, turns: int, evidence: str) -> bool:
        """Takes a skill, unless its workflow is known; returns whether it did.

        In a full bank a success of fewer turns replaces the worst: that of the lowest mean value,
        of equal ones the longest.
        """
        arms = self.arms.setdefault(task, [])
        if any(arm.summary.golden_workflow == summary.golden_workflow for arm in arms):
            return False
        arm = Arm(summary, turns, evidence)
        if len(arms) < self.size:
            arms.append(arm)
            return True
        worst = min(range(len(arms)), key=lambda i: (arms[i].value, -arms[i].turns))
        if turns >= arms[worst].turns:
            return False
        arms[worst] = arm
        if self.read.get(task) == worst:  # the newcomer is not credited for it
            del self.read[task]
        return True

    def state_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "arms": {
                task: [{**vars(arm), "summary": arm.summary.to_dict()} for arm in arms]
                for task, arms in self.arms.items()
            },
            "last": dict(self.last),
            "read": dict(self.read),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of :meth:`state_dict`."""
        self.arms = {
            task: [Arm(**{**row, "summary": summary_of(row["summary"])}) for row in rows]
            for task, rows in state["arms"].items()
        }
        self.last, self.read = dict(state["last"]), dict(state["read"])

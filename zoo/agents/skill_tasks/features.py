"""A task, its skills and an agent in fifteen numbers, for a forecast of what the skills do."""

from __future__ import annotations

import math
import re

import numpy as np

from zoo.agents.retrieval import BM25Index, words
from zoo.agents.skill_tasks.task import SkillTask

DOMAINS = (
    "config-migration",
    "dates-and-zones",
    "lab-records",
    "log-analysis",
    "small-finance",
    "spreadsheets",
    "text-processing",
    "unit-handling",
)
NUMBERS = ("overlap", "task_words", "skill_words", "skills", "steps", "code", "agent_rate")
FEATURES = len(NUMBERS) + len(DOMAINS)
STEP = re.compile(r"^\s*(?:[-*]|\d+\.)\s", re.MULTILINE)


def features(item: SkillTask, agent_rate: float) -> np.ndarray:
    """What is known of a task before an agent does it.

    Args:
        item: The task.
        agent_rate: Share of *other* tasks that the agent does without skills, from 0 to 1; this
            task's own rate would tell the answer.

    Returns:
        BM25 of the skills for the instruction, logarithms of the words of both, number of skills
        and of steps, whether there is code, the agent's rate, and the domain, one of eight or none.
        Shape: (15,), float32, most within -3..3.
    """
    text = "\n".join(f"{s.name} {s.description}\n{s.body}" for s in item.skills)
    overlap = float(BM25Index([text]).scores(item.instruction)[0])
    numbers = [
        math.log1p(overlap),
        math.log1p(len(words(item.instruction))) - 4,
        math.log1p(len(words(text))) - 5,
        len(item.skills) - 1,
        math.log1p(len(STEP.findall(text))) - 1.5,
        float("`" in text),
        4 * (agent_rate - 0.5),
    ]
    domain = [float(item.task.family == name) for name in DOMAINS]
    return np.asarray(numbers + domain, dtype=np.float32)

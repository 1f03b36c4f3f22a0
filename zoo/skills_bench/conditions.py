"""The matched conditions, which differ in the skills that an agent is offered and nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from zoo.agents.llm import LLMClient, render_prompt
from zoo.agents.skill_tasks import SkillTask
from zoo.agents.skills import Skill, SkillError, parse_skill, render
from zoo.errors import ZooError

CONDITIONS = ("none", "curated", "self", "placebo")
PROMPTS = "zoo.skills_bench.prompts"
BUDGET = 4000  # words of the list of names and descriptions
MOST_OWN = 5  # skills that an agent writes itself
FRONT = re.compile(r"^---[ \t]*\n(?=name:)", re.MULTILINE)


def system_prompt(skills: Sequence[Skill]) -> str:
    """What an agent is told before the task: skills are listed, their bodies are read on demand."""
    return render_prompt("system", PROMPTS, skills=render(skills, BUDGET) if skills else "")


def placebo(item: SkillTask, pool: Sequence[SkillTask]) -> tuple[Skill, ...]:
    """Skills of about the same length about another domain.

    Args:
        item: Whose skills to stand in for.
        pool: Tasks to take them from.

    Raises:
        ZooError: If the pool has no other domain.
    """
    others = [s for other in pool if other.task.family != item.task.family for s in other.skills]
    if not others:
        raise ZooError(
            f"The placebo of task '{item.name}' needs skills of another domain than "
            f"'{item.task.family}': add tasks, or leave the condition out."
        )
    found: list[Skill] = []
    for skill in item.skills:
        free = [s for s in others if s not in found] or others
        found.append(min(free, key=lambda s: (abs(len(s.body) - len(skill.body)), s.name)))
    return tuple({skill.name: skill for skill in found}.values())


def own_skills(
    item: SkillTask, client: LLMClient, temperature: float, max_tokens: int, seed: int
) -> tuple[Skill, ...]:
    """Skills that the agent writes from the instruction alone, in a session of its own.

    It sees no file, no test and no solution. Texts that are no skills are left out.
    """
    prompt = render_prompt(
        "write_skills", PROMPTS, instruction=item.instruction.strip(), most=MOST_OWN
    )
    message: dict[str, object] = {"role": "user", "content": prompt}
    if "simulation" in item.task.payload:
        message["simulation"] = item.task.payload["simulation"]
    (reply,) = client.chat([message], temperature=temperature, max_tokens=max_tokens, seed=seed)
    return split_skills(reply.text)


def split_skills(text: str) -> tuple[Skill, ...]:
    """The skills in a reply, at most five, each name once."""
    found: dict[str, Skill] = {}
    starts = [m.start() for m in FRONT.finditer(text)]
    for start, end in pairwise([*starts, len(text)]):
        part = text[start:end].strip()
        if part.count("```") % 2:  # the end of a fence around the whole
            part = part.rpartition("```")[0]
        name = re.search(r"^name:\s*[\"']?([^\"'\n]+)", part, re.MULTILINE)
        try:
            skill = parse_skill(part, name[1].strip() if name else "")
        except SkillError:
            continue
        found.setdefault(skill.name, skill)
    return tuple(found.values())[:MOST_OWN]

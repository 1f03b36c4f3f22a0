"""What a task has to show before agents are judged by it.

Its solution passes, doing nothing fails, its tests say the same each time, and its skills hold no
answers (rules 1 and 2 of arXiv 2602.12670; the leak's definition is ours).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from zoo.agents.envs.workspace import decode, run_tests
from zoo.agents.sandbox import Limits, Sandbox
from zoo.agents.sandbox.box import INSIDE
from zoo.agents.skill_tasks.task import SkillTask
from zoo.errors import ZooError

RUNS = 3  # of the tests, which must agree
LITERAL = 12  # characters of what a skill may not share with tests or solution


def admit(item: SkillTask, limits: Limits | None = None, runs: int = RUNS) -> None:
    """Checks a task: see the module.

    Args:
        item: To be admitted.
        limits: Of solution and tests.
        runs: Of the tests on the solution's files.

    Raises:
        ZooError: If the solution fails, its tests disagree, doing nothing passes, or a skill leaks.
    """
    task = item.task
    given = decode(task.payload.get("files", {}))
    solution = decode(task.payload.get("solution", {}))
    if "solve.sh" not in solution:
        raise ZooError(f"Task '{item.name}' has no solution/solve.sh to be admitted by.")
    if found := leaks(item):
        skill, literal, place = found[0]
        raise ZooError(
            f"Task '{item.name}': the skill '{skill}' holds {literal!r}, which stands in {place} "
            "but not in the instruction: a skill must not contain answers."
        )
    files = {**given, **{f"solution/{path}": data for path, data in solution.items()}}
    with Sandbox(files, limits, inside=task.payload.get("inside", INSIDE)) as box:
        result = box.run(["sh", "solution/solve.sh"])
        left = {p: box.read(p, 64 << 20) for p in box.files() if not p.startswith("solution/")}
    verdicts = [run_tests(task, left, limits) for _ in range(runs)]
    if len({(v.passed, tuple(sorted(v.tests.items()))) for v in verdicts}) > 1:
        raise ZooError(
            f"Task '{item.name}': {runs} runs of its tests on the same files disagree: they must "
            "be deterministic."
        )
    if not verdicts[0].passed:
        failed = [name for name, passed in verdicts[0].tests.items() if not passed]
        why = f"fails {', '.join(failed)}" if failed else "does not pass the tests"
        raise ZooError(
            f"Task '{item.name}': its own solution {why} (exit status {result.returncode}"
            f"{': ' + result.stderr.strip()[-200:] if result.stderr.strip() else ''})."
        )
    if run_tests(task, given, limits).passed:
        raise ZooError(f"Task '{item.name}': its tests pass although nothing was done.")


def leaks(item: SkillTask) -> list[tuple[str, str, str]]:
    """Skill, text and place of what skills share with tests or solution.

    Texts of 12 characters or more that stand in the instruction or in the files that the agent is
    given are no secret, so they don't count.
    """
    payload = item.task.payload
    given = decode(payload.get("files", {})).values()
    public = "\n".join([item.instruction, *(d.decode(errors="replace") for d in given)])
    found = []
    for part in ("tests", "solution"):
        for path, literal in _literals(decode(payload.get(part, {}))):
            for skill in item.skills:
                texts = [skill.text(), *(d.decode(errors="replace") for d in skill.files.values())]
                if literal not in public and any(literal in text for text in texts):
                    found.append((skill.name, literal, f"{part}/{path}"))
    return found


def _literals(files: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    """Lines of the string constants of Python files, and words of all others."""
    for path, data in sorted(files.items()):
        text = data.decode(errors="replace")
        parts = re.findall(r"[^\s\"',;:=(){}\[\]]+", text)
        if path.endswith(".py"):
            try:
                tree = ast.parse(text)
            except (SyntaxError, ValueError):
                tree = ast.parse("")
            else:
                parts = []
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float):
                    parts += [line.strip() for line in str(node.value).splitlines()]
        for part in dict.fromkeys(parts):
            if len(part) >= LITERAL:
                yield path, part

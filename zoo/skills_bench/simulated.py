"""An agent of known competence that works through the harness as a model does.

It lists, reads skills, writes a program, runs it, and ends. Which program it writes is drawn: the
right one with a probability that rises if the rule that the task needs stands in what it has read,
and falls with the length of that. It is not told under which condition it works; it reads. Draws
belong to agent, trial and task, so that conditions differ in probabilities and not in luck.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from zoo.agents.llm.base import Reply, Request, Usage, calls_in
from zoo.agents.llm.scripted import SimulatedAgentClient, count_words
from zoo.agents.retrieval import words
from zoo.errors import ZooError

LISTED = re.compile(r"^## ([a-z0-9-]+)\n(.+)$", re.MULTILINE)
COMMON = 2  # words that a skill's description must share with the task to be read
LONG = 5  # letters of a word that tells something
OWN_SKILL = """---
name: own-notes
description: "Steps for tasks like this one: {about}."
---

1. Read the instruction twice; look at the whole input before writing a program.
2. Run it, and compare a row or two by hand with what is asked.
"""


class SimulatedProgrammer(SimulatedAgentClient):
    """A simulated agent that writes programs; its problem comes as in the base class.

    Args:
        profile: What it can do.
    """

    def _answer(self, request: Request) -> list[Reply]:
        problems = [m["simulation"] for m in request.messages if "simulation" in m]
        if not problems:
            raise ZooError(
                "A simulated agent does tasks that have a folder 'simulation', as those that come "
                "with the package: use a language model for others (client: openai or local)."
            )
        text = self._next(request, problems[-1])
        read, written = count_words(request.text()), count_words(text)
        price = self.profile.prompt_price, self.profile.completion_price
        cost = (read * price[0] + written * price[1]) / 1e6
        calls = calls_in(text) if request.tools else ()
        return [Reply(text, calls, Usage(read, written, 1, cost=cost))] * request.n

    def _next(self, request: Request, problem: dict[str, Any]) -> str:
        if not request.tools:
            return self._own_skill(request)
        done = [m for m in request.messages if m["role"] == "assistant"]
        texts = [str(m.get("content") or "") for m in done]
        instruction = str(next(m["content"] for m in request.messages if m["role"] == "user"))
        for name in self._fitting(str(request.messages[0].get("content")), instruction):
            path = f"skills/{name}/SKILL.md"
            if not any(path in text for text in texts):
                return call("read", path=path)
        return next_call(texts, lambda: self._program(request, problem, instruction))

    def _fitting(self, system: str, instruction: str) -> list[str]:
        """Names of the listed skills whose description is about the task."""
        task = {word for word in words(instruction) if len(word) >= LONG}
        return [
            name
            for name, description in LISTED.findall(system)
            if len(task & set(words(f"{name} {description}"))) >= COMMON
        ]

    def _program(self, request: Request, problem: dict[str, Any], instruction: str) -> str:
        text, hint = request.text(), problem["hint"]
        p = self.profile.probability(
            problem["skill"], bool(hint) and hint in text, count_words(text)
        )
        key = json.dumps([asdict(self.profile), request.seed, instruction], sort_keys=True)
        rng = random.Random(hashlib.sha256(key.encode()).digest())
        return problem["answer"] if rng.random() < p else rng.choice(problem["wrong"])  # type: ignore[no-any-return]

    def _own_skill(self, request: Request) -> str:
        """What it knows of the task: nothing that the instruction does not say."""
        instruction = str(request.messages[-1]["content"])
        task = instruction.partition("\n\n")[2]
        known = list(dict.fromkeys(telling_words(task)))
        return OWN_SKILL.format(about=" ".join(known[:8]))


def telling_words(text: str) -> list[str]:
    """Its words of five letters or more, a to z."""
    return [w for w in words(text) if len(w) >= LONG and w.isascii() and w.isalpha()]


def next_call(said: Sequence[str], program: Callable[[], str]) -> str:
    """What a programmer does after reading: writes a program, runs it, and ends.

    Args:
        said: By the agent so far.
        program: Is asked for it when it is to be written.
    """
    if not any('"write"' in text for text in said):
        return call("write", path="solve.py", text=program())
    if not any('"run"' in text for text in said):
        return call("run", command="python solve.py")
    return call("done")


def call(name: str, **arguments: str) -> str:
    """A tool call as text."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"

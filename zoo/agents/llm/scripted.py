"""Clients without a model: replies by rule, and agents whose competence is known."""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from zoo.agents.llm.base import CountingClient, Reply, Request, Usage, calls_in, cut_at
from zoo.errors import ZooError

Rule = tuple[str | Callable[[Request], bool], str | Callable[[Request], str]]
"""What a request looks like (a regular expression or a function), and the reply to it."""


def count_words(text: str) -> int:
    """Words and marks, which stand for tokens here."""
    return len(re.findall(r"\w+|[^\w\s]", text))


class ScriptedClient(CountingClient):
    """Replies by the first rule that fits, for tests.

    Args:
        rules: A pattern is searched in the whole conversation.
        strict: Raise where no rule fits; otherwise the reply is empty.
    """

    def __init__(self, rules: Sequence[Rule], strict: bool = True) -> None:
        super().__init__()
        self.rules, self.strict = list(rules), strict
        self.requests: list[Request] = []

    def _answer(self, request: Request) -> list[Reply]:
        self.requests.append(request)
        conversation = request.text()
        for pattern, reply in self.rules:
            if isinstance(pattern, str):
                fits = bool(re.search(pattern, conversation))
            else:
                fits = pattern(request)
            if fits:
                return _replies(request, [reply if isinstance(reply, str) else reply(request)])
        if self.strict:
            raise ZooError(f"No rule fits the request that ends {conversation[-200:]!r}.")
        return _replies(request, [""])


def _replies(
    request: Request, texts: Sequence[str], price: tuple[float, float] = (0, 0)
) -> list[Reply]:
    texts = [cut_at(texts[i % len(texts)], request.stop) for i in range(request.n)]
    read, written = count_words(request.text()), sum(map(count_words, texts))
    usage = Usage(read, written, 1, cost=(read * price[0] + written * price[1]) / 1e6)
    calls = [calls_in(text) if request.tools else () for text in texts]
    return [Reply(t, calls[i], usage if i == 0 else Usage()) for i, t in enumerate(texts)]


@dataclass(frozen=True)
class AgentProfile:
    """What a simulated agent can do.

    Attributes:
        name: Its seed, too: two names differ in their luck.
        competence: Probability of solving a problem, by skill.
        default: Of other skills.
        uptake: Share of its failures that a hint in the conversation mends.
        distraction: Competence falls by a factor of e for each 1/distraction thousand words read.
        prompt_price: Dollars for a million tokens read.
        completion_price: Dollars for a million tokens written.
    """

    name: str
    competence: Mapping[str, float] = field(default_factory=dict)
    default: float = 0.5
    uptake: float = 0.8
    distraction: float = 0.0
    prompt_price: float = 0.0
    completion_price: float = 0.0

    def __post_init__(self) -> None:
        for value in (self.default, self.uptake, *self.competence.values()):
            if not 0 <= value <= 1:
                raise ZooError(f"Agent '{self.name}': {value} is no probability.")

    def probability(self, skill: str, hinted: bool, words: int) -> float:
        """Of solving a problem."""
        p = self.competence.get(skill, self.default)
        p += (1 - p) * self.uptake * hinted
        return p * math.exp(-self.distraction * words / 1000)


class SimulatedAgentClient(CountingClient):
    """A solver with known probabilities, for methods that compare or choose between agents.

    It is no language model: the problem, its right answer and wrong ones come with the request, as
    ``simulation`` of one of the messages: ``skill``, ``answer``, ``wrong`` (a list), and maybe
    ``hint``, a text that helps where it stands in the conversation. A draw depends on profile, seed
    and conversation alone, so that what is asked again is answered alike.

    Args:
        profile: What it can do.
    """

    def __init__(self, profile: AgentProfile) -> None:
        super().__init__()
        self.profile = profile

    def _answer(self, request: Request) -> list[Reply]:
        problems = [m["simulation"] for m in request.messages if "simulation" in m]
        if not problems or not problems[-1].get("wrong"):
            raise ZooError(
                "A simulated agent needs a message with 'simulation': skill, answer, wrong, hint."
            )
        problem, text = problems[-1], request.text()
        hint = problem.get("hint")
        p = self.profile.probability(
            problem.get("skill", ""), bool(hint) and hint in text, count_words(text)
        )
        key = json.dumps([asdict(self.profile), request.seed, text], sort_keys=True)
        rng = random.Random(hashlib.sha256(key.encode()).digest())
        texts = [
            problem["answer"] if rng.random() < p else rng.choice(problem["wrong"])
            for _ in range(request.n)
        ]
        return _replies(request, texts, (self.profile.prompt_price, self.profile.completion_price))

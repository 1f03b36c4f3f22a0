"""What a chat client is: requests in, replies out, and a count of what it took."""

from __future__ import annotations

import json
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from zoo.agents.envs.tools.calls import Call, CallError, parse_calls
from zoo.errors import ZooError, check_choice

Message: TypeAlias = Mapping[str, Any]
"""``role`` and ``content``; ``tool_calls`` and ``tool_call_id`` as chat servers have them."""

ROLES = ("system", "user", "assistant", "tool")
TOOL_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


class ClientError(ZooError):
    """A model that could not be asked now: to ask again later may help."""


@dataclass(frozen=True)
class Usage:
    """What replies took.

    Attributes:
        prompt_tokens: Read.
        completion_tokens: Written.
        calls: Requests that were answered; those answered from a cache count nothing.
        seconds: Waited, summed over requests.
        cost: Dollars, where a price is known.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    calls: int = 0
    seconds: float = 0.0
    cost: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.calls + other.calls,
            self.seconds + other.seconds,
            self.cost + other.cost,
        )


@dataclass(frozen=True)
class Reply:
    """One answer.

    Attributes:
        text: Its words.
        tool_calls: Functions that it asks for.
        usage: Of the request, on the first of its replies.
    """

    text: str
    tool_calls: tuple[Call, ...] = ()
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class Request:
    """One question.

    Attributes:
        messages: Of the conversation so far.
        tools: Functions on offer, as chat servers are told of them.
        temperature: 0 for the most likely reply.
        max_tokens: Of each reply.
        n: Replies.
        seed: Of the sampling, where a client can be seeded.
        stop: Texts before which a reply ends.

    Raises:
        ZooError: If one of these is out of its range.
    """

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] | None = None
    temperature: float = 0.0
    max_tokens: int = 512
    n: int = 1
    seed: int | None = None
    stop: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not self.messages:
            raise ZooError("A conversation has at least one message.")
        for message in self.messages:
            check_choice("role", str(message.get("role")), ROLES)
            if not isinstance(message.get("content", ""), str | None):
                raise ZooError(f"A message's content is text, not {type(message['content'])}.")
        if self.n < 1 or self.max_tokens < 1 or self.temperature < 0:
            raise ZooError(
                f"n={self.n}, max_tokens={self.max_tokens}, temperature={self.temperature}: "
                "expected at least 1, 1 and 0."
            )

    def text(self) -> str:
        """The whole conversation, for rules and simulations to read."""
        return "\n".join(str(message.get("content") or "") for message in self.messages)


class LLMClient(Protocol):
    """What methods ask language models through."""

    def chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        temperature: float = 0.0,
        max_tokens: int = 512,
        n: int = 1,
        seed: int | None = None,
        stop: Sequence[str] = (),
    ) -> list[Reply]:
        """N replies to a conversation; see :class:`Request`."""
        ...

    def chat_batch(self, requests: Sequence[Request]) -> list[list[Reply]]:
        """The replies to each request, in their order."""
        ...

    def usage(self) -> Usage:
        """Of all replies so far."""
        ...


class CountingClient(ABC):
    """A client that counts; what it adds is ``_answer``."""

    def __init__(self) -> None:
        self._usage = Usage()
        self._lock = threading.Lock()

    @abstractmethod
    def _answer(self, request: Request) -> list[Reply]:
        """The replies to one request."""

    def _answer_all(self, requests: Sequence[Request]) -> list[list[Reply]]:
        return [self._answer(request) for request in requests]

    def chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        temperature: float = 0.0,
        max_tokens: int = 512,
        n: int = 1,
        seed: int | None = None,
        stop: Sequence[str] = (),
    ) -> list[Reply]:
        """N replies to a conversation; see :class:`Request`."""
        request = Request(messages, tools, temperature, max_tokens, n, seed, stop)
        return self.chat_batch([request])[0]

    def chat_batch(self, requests: Sequence[Request]) -> list[list[Reply]]:
        """The replies to each request, in their order."""
        answers = self._answer_all(requests)
        with self._lock:
            for replies in answers:
                for reply in replies:
                    self._usage += reply.usage
        return answers

    def usage(self) -> Usage:
        """Of all replies so far."""
        return self._usage

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()


def cut_at(text: str, stop: Sequence[str]) -> str:
    """The text up to the first of the stop texts."""
    ends = [text.find(s) for s in stop if s and s in text]
    return text[: min(ends)] if ends else text


def calls_in(text: str) -> tuple[Call, ...]:
    """The calls that a model wrote into its text, between ``<tool_call>`` tags or as JSON."""
    blocks = TOOL_CALL.findall(text) or ([text] if text.lstrip()[:1] in ("{", "[") else [])
    return tuple(call for block in blocks for call in _parsed(block))


def _parsed(block: str) -> list[Call]:
    try:
        json.loads(block)
        return parse_calls(block)
    except (CallError, ValueError, RecursionError):
        return []

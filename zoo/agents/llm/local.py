"""A client of a model in this process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import torch

from zoo.agents.llm.base import CountingClient, Reply, Request, Usage, calls_in, cut_at
from zoo.errors import ZooError

if TYPE_CHECKING:
    from zoo.agents.codec import Codec

MESSAGE_KEYS = ("role", "content", "tool_calls", "tool_call_id", "name")


class Generator(Protocol):
    """What is asked of a policy."""

    @property
    def tokenizer(self) -> Any:
        """Of transformers."""
        ...

    def generate(
        self,
        prompts: list[list[int]],
        max_new_tokens: int,
        temperature: float,
        top_p: float,
        stop_ids: list[int],
        generator: torch.Generator | None,
    ) -> Any:
        """Continues each prompt: an object with tokens (B, T), int64, and mask (B, T), bool."""
        ...


class LocalClient(CountingClient):
    """Replies of a policy, which see; requests that share their settings run as one batch.

    Args:
        policy: A :class:`~zoo.agents.policy.CausalPolicy`, or a model's id or folder, of which one
            is made.
        batch_size: Conversations at a time.
    """

    def __init__(self, policy: Generator | str, batch_size: int = 32) -> None:
        super().__init__()
        if isinstance(policy, str):
            from zoo.agents.policy import CausalPolicy, PolicyArgs

            self.policy: Generator = CausalPolicy(PolicyArgs(model_id=policy)).eval()
        else:
            self.policy = policy
        self.batch_size = batch_size

    def _prompt(self, request: Request) -> list[int]:
        """The conversation's tokens, ready for the assistant's turn."""
        codec = getattr(self.policy, "codec", None)
        if codec is not None and codec.word_level:
            return _in_words(codec, request)
        tokenizer = self.policy.tokenizer
        messages = [
            {k: m[k] for k in MESSAGE_KEYS if m.get(k) is not None} for m in request.messages
        ]
        if getattr(tokenizer, "chat_template", None):
            text = tokenizer.apply_chat_template(
                messages,
                tools=list(request.tools) if request.tools else None,
                add_generation_prompt=True,
                tokenize=False,
            )
            found = tokenizer(text, add_special_tokens=False)["input_ids"]
        else:  # no form of a conversation: the texts themselves, in turn
            found = tokenizer("\n".join(str(m.get("content", "")) for m in messages))["input_ids"]
        if not found:
            raise ZooError("The conversation has no token of the model's vocabulary.")
        return [int(token) for token in found]

    def _answer(self, request: Request) -> list[Reply]:
        return self._answer_all([request])[0]

    def _answer_all(self, requests: Sequence[Request]) -> list[list[Reply]]:
        groups: dict[tuple[Any, ...], list[int]] = {}
        for i, request in enumerate(requests):
            key = (request.max_tokens, request.temperature, request.seed)
            groups.setdefault(key, []).append(i)
        answers: list[list[Reply]] = [[] for _ in requests]
        for indices in groups.values():
            rows = [i for i in indices for _ in range(requests[i].n)]
            for start in range(0, len(rows), self.batch_size):
                part = rows[start : start + self.batch_size]
                for i, reply in zip(part, self._run(requests, part, start), strict=True):
                    answers[i].append(reply)
        return [self._counted_once(replies) for replies in answers]

    @torch.inference_mode()
    def _run(self, requests: Sequence[Request], rows: list[int], start: int) -> list[Reply]:
        first = requests[rows[0]]
        tokenizer = self.policy.tokenizer
        prompts = [self._prompt(requests[i]) for i in rows]
        generator = None
        if first.seed is not None:
            generator = torch.Generator().manual_seed(first.seed + start)
        stop = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
        stop = getattr(getattr(self.policy, "codec", None), "stop_ids", stop)
        began = time.perf_counter()
        found = self.policy.generate(
            prompts,
            max_new_tokens=first.max_tokens,
            temperature=first.temperature,
            top_p=1.0,
            stop_ids=stop,
            generator=generator,
        )
        seconds = (time.perf_counter() - began) / len(rows)
        replies = []
        for i, prompt, tokens, mask in zip(rows, prompts, found.tokens, found.mask, strict=True):
            written = tokens[mask.bool()].tolist()
            text = tokenizer.decode(written, skip_special_tokens=True)
            text = cut_at(text, requests[i].stop)
            calls = calls_in(text) if requests[i].tools else ()
            replies.append(Reply(text, calls, Usage(len(prompt), len(written), 1, seconds)))
        return replies

    @staticmethod
    def _counted_once(replies: list[Reply]) -> list[Reply]:
        """The n replies to one request read its prompt once, as a server counts it."""
        rest = [replace(r, usage=replace(r.usage, prompt_tokens=0, calls=0)) for r in replies[1:]]
        return [*replies[:1], *rest]


def _in_words(codec: Codec, request: Request) -> list[int]:
    """A conversation as a policy with one token a word was trained on it."""
    found: list[int] = []
    for message in request.messages:
        text = str(message.get("content") or "")
        if message["role"] == "assistant":
            found += codec.encode_reply(text)
        elif text.strip():
            found += codec.encode_prompt(text, first=not found)
    if not found:
        raise ZooError("The conversation has no token of the model's vocabulary.")
    return found

"""A client of any server that speaks OpenAI's chat protocol: vLLM, llama.cpp, Ollama, SGLang, ...

The package ``openai`` does the transport: it retries what is worth it with growing, jittered
pauses, and heeds the server's own.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.agents.envs.tools.calls import Call
from zoo.agents.llm.base import ClientError, CountingClient, Reply, Request, Usage
from zoo.atomic import write_json
from zoo.errors import ZooError, missing_extra

MESSAGE_KEYS = ("role", "content", "tool_calls", "tool_call_id", "name")


@dataclass
class ClientArgs:
    """A language model behind a server, as plain data.

    Attributes:
        base_url: Of an OpenAI-compatible server.
        model: Its name there.
        api_key_env: Environment variable that holds the key.
        cache: Folder in which its replies are kept; ``None`` for none.
    """

    base_url: str = "http://localhost:8000/v1"
    model: str = ""
    api_key_env: str = "OPENAI_API_KEY"
    cache: str | None = None

    @classmethod
    def of(cls, value: ClientArgs | Mapping[str, Any] | None, name: str) -> ClientArgs:
        """The arguments, from plain data.

        Args:
            value: They.
            name: Of the option, for the error.

        Raises:
            ZooError: If there is no model.
        """
        args = value if isinstance(value, ClientArgs) else cls(**(value or {}))
        if not args.model:
            raise ZooError(
                f"A language model is asked here: give {name}.model and {name}.base_url."
            )
        return args

    def client(self) -> OpenAICompatClient:
        """Asks it; nothing is sent before the first request."""
        return OpenAICompatClient(
            self.base_url, self.model, api_key_env=self.api_key_env, cache_dir=self.cache
        )


class OpenAICompatClient(CountingClient):
    """Asks a chat server.

    The key is read from the environment when the first request is made, and handed to the
    transport. It stands in no configuration, representation, pickle, cache, or error message.

    Args:
        base_url: Such as ``http://localhost:8000/v1``.
        model: Its name on the server.
        api_key_env: Name of the environment variable with the key; ``None`` for servers without.
        max_concurrency: Requests at a time.
        max_retries: Of a request that failed in a way that may pass.
        timeout_s: Of a request.
        cache_dir: Replies that are certain to recur, those at temperature 0 or with a seed, are
            kept there, under the request's SHA-256.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key_env: str | None = "OPENAI_API_KEY",
        max_concurrency: int = 8,
        max_retries: int = 5,
        timeout_s: float = 120.0,
        cache_dir: str | None = None,
    ) -> None:
        super().__init__()
        if not base_url.startswith(("http://", "https://")):
            raise ZooError(f"base_url={base_url!r}: expected http://... or https://...")
        if "@" in base_url.split("//")[1].split("/")[0]:
            raise ZooError("base_url holds a user or a password: keys come from the environment.")
        self.base_url, self.model, self.api_key_env = base_url, model, api_key_env
        self.max_concurrency, self.max_retries = max_concurrency, max_retries
        self.timeout_s, self.cache_dir = timeout_s, cache_dir
        self._transport: Any = None

    def __repr__(self) -> str:
        return f"OpenAICompatClient({self.base_url!r}, {self.model!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_transport": None}

    def _key(self) -> str:
        if self.api_key_env is None:
            return "none"
        key = os.environ.get(self.api_key_env, "")
        if not key:
            raise ZooError(
                f"The environment variable {self.api_key_env} holds no key for {self.base_url}; "
                "api_key_env=None if the server needs none."
            )
        return key

    def _connect(self) -> Any:
        if self._transport is None:
            try:
                import openai
            except ImportError:
                raise missing_extra("openai", "llm") from None
            self._transport = openai.OpenAI(
                base_url=self.base_url,
                api_key=self._key(),
                max_retries=self.max_retries,
                timeout=self.timeout_s,
            )
        return self._transport

    def _answer_all(self, requests: Sequence[Request]) -> list[list[Reply]]:
        if len(requests) == 1:
            return [self._answer(requests[0])]
        self._connect()
        with ThreadPoolExecutor(self.max_concurrency) as pool:
            return list(pool.map(self._answer, requests))

    def _body(self, request: Request) -> dict[str, Any]:
        """What is sent."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [
                {k: m[k] for k in MESSAGE_KEYS if m.get(k) is not None} for m in request.messages
            ],
            "temperature": request.temperature,
            "max_tokens": request.max_tokens,
            "n": request.n,
        }
        if request.tools:
            body["tools"] = [dict(tool) for tool in request.tools]
        if request.seed is not None:
            body["seed"] = request.seed
        if request.stop:
            body["stop"] = list(request.stop)
        return body

    def _cached(self, body: dict[str, Any], request: Request) -> Path | None:
        """The file of the replies, for requests that are answered alike each time."""
        if self.cache_dir is None or (request.temperature > 0 and request.seed is None):
            return None
        text = json.dumps([self.base_url, body], sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()
        return Path(self.cache_dir) / name[:2] / f"{name}.json"

    def _answer(self, request: Request) -> list[Reply]:
        body = self._body(request)
        path = self._cached(body, request)
        if path is not None and path.exists():
            return [
                Reply(r["text"], tuple(Call(c["name"], c["arguments"]) for c in r["tool_calls"]))
                for r in json.loads(path.read_text(encoding="utf-8"))
            ]
        replies = self._ask(body)
        if path is not None:
            write_json(
                path,
                [
                    {"text": r.text, "tool_calls": [c.to_dict() for c in r.tool_calls]}
                    for r in replies
                ],
            )
        return replies

    def _ask(self, body: dict[str, Any]) -> list[Reply]:
        client = self._connect()
        import openai

        began = time.perf_counter()
        try:
            found = client.chat.completions.create(**body)
            choices = [(c.message.content or "", c.message.tool_calls or []) for c in found.choices]
        except openai.OpenAIError as error:
            detail = str(error).replace(client.api_key, "***")[:300]
            raise ClientError(
                f"{self.base_url} did not answer for '{self.model}': {detail}"
            ) from None
        except (AttributeError, TypeError):
            raise ClientError(
                f"{self.base_url} answered, but not in OpenAI's chat protocol."
            ) from None
        if len(choices) < 1:
            raise ClientError(f"{self.base_url} answered without a reply.")
        used = found.usage
        usage = Usage(
            prompt_tokens=used.prompt_tokens if used else 0,
            completion_tokens=used.completion_tokens if used else 0,
            calls=1,
            seconds=time.perf_counter() - began,
        )
        return [
            Reply(text, tuple(map(_call, calls)), usage if i == 0 else Usage())
            for i, (text, calls) in enumerate(choices)
        ]


def _call(call: Any) -> Call:
    """A tool call of the server; arguments that are no JSON object are kept under ``_invalid``."""
    try:
        arguments = json.loads(call.function.arguments or "{}")
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        arguments = {"_invalid": call.function.arguments}
    return Call(call.function.name, arguments)

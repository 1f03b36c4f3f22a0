"""Function calls in an agent's text: JSON, or Python's syntax, parsed and never evaluated."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass, field
from typing import Any

MAX_CHARACTERS = 20_000
MAX_CALLS = 16


class CallError(ValueError):
    """Text that holds no well-formed call."""


@dataclass(frozen=True)
class Call:
    """A function's name and its arguments, plain JSON values."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def to_text(self) -> str:
        """In Python's syntax."""
        inner = ", ".join(f"{k}={v!r}" for k, v in self.arguments.items())
        return f"{self.name}({inner})"

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {"name": self.name, "arguments": self.arguments}


def parse_calls(text: str) -> list[Call]:
    """The calls in a text.

    Args:
        text: ``{"name": ..., "arguments": {...}}``, a list of these, ``name(key=value)``, or a list
            of these.

    Raises:
        CallError: If it is none of these; it says why.
    """
    text = text.strip()
    if len(text) > MAX_CHARACTERS:
        raise CallError(f"the text is longer than {MAX_CHARACTERS} characters")
    if not text:
        raise CallError("the text is empty")
    calls = _from_json(text) if text[0] in "{[" else None
    calls = calls if calls is not None else _from_python(text)
    if not 1 <= len(calls) <= MAX_CALLS:
        raise CallError(f"there are {len(calls)} calls, expected 1 to {MAX_CALLS}")
    return calls


def _from_json(text: str) -> list[Call] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    calls = []
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise CallError('a call is {"name": ..., "arguments": {...}}')
        arguments = item.get("arguments", {})
        if isinstance(arguments, str):  # as chat servers send them
            try:
                arguments = json.loads(arguments)
            except (ValueError, RecursionError):
                raise CallError("the arguments are no JSON") from None
        if not isinstance(arguments, dict):
            raise CallError("the arguments are no JSON object")
        calls.append(Call(item["name"], arguments))
    return calls


def _from_python(text: str) -> list[Call]:
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise CallError("it is neither JSON nor name(key=value)") from None
    return [_call(node) for node in (tree.elts if isinstance(tree, ast.List) else [tree])]


def _call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call):
        raise CallError("it is neither JSON nor name(key=value)")
    if node.args or any(keyword.arg is None for keyword in node.keywords):
        raise CallError("arguments are given by name")
    try:
        name = ast.unparse(node.func)
        arguments = {str(k.arg): ast.literal_eval(k.value) for k in node.keywords}
        json.dumps(arguments, allow_nan=False)
    except (ValueError, TypeError, RecursionError, MemoryError, SyntaxError):
        raise CallError("an argument is no plain value") from None
    if not all(part.isidentifier() for part in name.split(".")):
        raise CallError("a function is called by its name")
    return Call(name, arguments)

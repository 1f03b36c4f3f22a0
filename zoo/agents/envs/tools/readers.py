"""Published function-calling benchmarks, read from their own files.

BFCL: Patil et al., "The Berkeley Function Calling Leaderboard", 2025; ``BFCL_v3_*.json`` or
``BFCL_v4_*.json``, JSON Lines, with ``possible_answer/`` beside (Apache-2.0).
tau2-bench: Barres et al., 2025, https://arxiv.org/abs/2506.07982; ``data/tau2/domains/<domain>/``
with ``tasks.json``, ``db.json`` and ``policy.md`` (MIT).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.agents.envs.base import Obs, State, Step, Task
from zoo.agents.envs.tools.calls import Call, CallError, parse_calls
from zoo.errors import ZooError

# BFCL's names of types, in JSON schema's.
TYPES = {
    "dict": "object",
    "float": "number",
    "tuple": "array",
    "any": None,
    "String": "string",
    "HashMap": "object",
}


def _json_lines(path: Path) -> list[dict[str, Any]]:
    """The entries of a file: a line for each, or one JSON list."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ZooError(f"{path} can't be read: {error}.") from None
    if text.lstrip().startswith("["):
        try:
            return list(json.loads(text))
        except ValueError as error:
            raise ZooError(f"{path} is no JSON: {error}.") from None
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                found.append(json.loads(line))
            except ValueError as error:
                raise ZooError(f"{path}, line {number} is no JSON: {error}.") from None
    return found


def bfcl_tasks(path: str | os.PathLike[str], split: str = "test") -> list[Task]:
    """The single-turn tasks of a BFCL file, such as ``BFCL_v4_simple_python.json``.

    Args:
        path: Of the file with the questions; the answers are in ``possible_answer/`` beside it, and
            a file without answers (irrelevance) asks for no call.
        split: A word for the tasks.

    Raises:
        ZooError: If a file is malformed, an answer is missing, or the tasks take several turns, for
            which BFCL's own simulators would be needed.
    """
    path = Path(path)
    match = re.fullmatch(r"BFCL_v\d_(\w+)\.json", path.name)
    if not match:
        raise ZooError(f"{path.name} is no BFCL file: expected BFCL_v<n>_<category>.json.")
    family = match[1]
    entries = _json_lines(path)
    answers_path = path.parent / "possible_answer" / path.name
    answers = {}
    if answers_path.exists():
        answers = {entry["id"]: entry["ground_truth"] for entry in _json_lines(answers_path)}
    elif "irrelevance" not in family:
        raise ZooError(f"The answers of {path.name} are missing: expected {answers_path}.")
    tasks = []
    for number, entry in enumerate(entries, 1):
        where = f"{path}, entry {number}"
        if "initial_config" in entry or len(entry.get("question", [])) != 1:
            raise ZooError(f"{where} takes several turns, which needs BFCL's own simulators.")
        try:
            payload = {
                "messages": list(entry["question"][0]),
                "functions": [_function(f) for f in entry["function"]],
                "answer": list(answers[entry["id"]]) if answers else [],
            }
            tasks.append(Task(entry["id"], family, split, number, payload))
        except (KeyError, TypeError) as error:
            raise ZooError(f"{where} lacks {error}.") from None
    return tasks


def _function(function: Mapping[str, Any]) -> dict[str, Any]:
    """A function with its parameters in JSON schema."""
    parameters = _schema(function["parameters"])
    description = function.get("description", "")
    return {"name": function["name"], "description": description, "parameters": parameters}


def _schema(value: Any) -> Any:
    if isinstance(value, list):
        return [_schema(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    found = {key: _schema(item) for key, item in value.items()}
    if isinstance(value.get("type"), str):
        kind = TYPES.get(value["type"], value["type"])
        if kind is None:
            del found["type"]
        else:
            found["type"] = kind
    return found


def matches(calls: Sequence[Call], answer: Sequence[Mapping[str, Any]]) -> bool:
    """Whether calls are those of a BFCL answer, in any order.

    Args:
        calls: That were made.
        answer: For each call its name, and for each argument the values that are accepted; an empty
            string among them means that it may be left out.
    """
    if len(calls) != len(answer):
        return False
    left = list(answer)
    for call in calls:
        index = next((i for i, wanted in enumerate(left) if _match(call, wanted)), None)
        if index is None:
            return False
        del left[index]
    return True


def _match(call: Call, wanted: Mapping[str, Any]) -> bool:
    ((name, arguments),) = wanted.items()
    if call.name != name or set(call.arguments) - set(arguments):
        return False
    return all(
        _accepted(call.arguments[key], values) if key in call.arguments else "" in values
        for key, values in arguments.items()
    )


def _accepted(value: Any, values: Sequence[Any]) -> bool:
    return any(_same(value, wanted) for wanted in values)


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    if isinstance(value, str) and isinstance(wanted, str):
        # BFCL leaves case, spaces and these marks aside.
        return _plain(value) == _plain(wanted)
    if isinstance(value, list | tuple) and isinstance(wanted, list | tuple):
        return len(value) == len(wanted) and all(map(_same, value, wanted))
    if isinstance(value, dict) and isinstance(wanted, dict):
        return not set(value) - set(wanted) and all(
            _accepted(value[k], v if isinstance(v, list) else [v])
            if k in value
            else "" in (v if isinstance(v, list) else [v])
            for k, v in wanted.items()
        )
    return bool(value == wanted)


def _plain(text: str) -> str:
    return re.sub(r"[ ,./\-_*^]", "", text).lower().replace("'", '"')


class BfclEnv:
    """One turn of function calling: the action is the calls; reward 1 if they are the answer's.

    An action of ``[]`` or text without a call is right where no function fits.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.task: Task | None = None

    def reset(self, task: Task) -> Obs:
        """The user's words and the functions, as JSON."""
        self.task, self.calls = task, []
        talk = "\n".join(f"{m['role']}: {m['content']}" for m in task.payload["messages"])
        functions = "\n".join(json.dumps(f, sort_keys=True) for f in task.payload["functions"])
        return Obs(f"{talk}\nFunctions:\n{functions}")

    def step(self, action: str) -> Step:
        """Takes the calls, which ends the episode."""
        if self.task is None:
            raise ZooError("An episode begins with reset.")
        try:
            self.calls = [] if action.strip() == "[]" else parse_calls(action)
        except CallError:
            self.calls = []
        success = self.verify(self.task, self.state_dict())
        info = {"success": success, "valid": bool(self.calls)}
        return Step(Obs("Finished."), float(success), True, info)

    def close(self) -> None:
        """Nothing to free."""

    def vocabulary(self) -> list[str]:
        """Open: a language model's own tokenizer is needed."""
        return []

    def verify(self, task: Task, state: State) -> bool:
        """Whether the calls are those of the answer."""
        calls = [Call(call["name"], call["arguments"]) for call in state["calls"]]
        return matches(calls, task.payload["answer"])

    def state_dict(self) -> State:
        """The calls."""
        return {"calls": [call.to_dict() for call in self.calls]}

    def load_state_dict(self, state: State) -> None:
        """Goes back to calls made."""
        self.calls = [Call(call["name"], call["arguments"]) for call in state["calls"]]


def tau2_tasks(
    root: str | os.PathLike[str], domain: str, split: str = "test"
) -> tuple[list[Task], dict[str, Any]]:
    """The tasks of a tau2-bench domain, and its database.

    A task's payload has ``policy``, the user's ``scenario``, the ``actions`` that are expected,
    what is to be told the user, ``communicate``, and ``initial_state``. Its tools are tau2's own.

    Args:
        root: Of tau2-bench's repository, or of its ``data`` folder.
        domain: Such as ``retail``.
        split: A word for the tasks.

    Raises:
        ZooError: If files are missing or malformed.
    """
    root = Path(root)
    places = [base / "tau2" / "domains" for base in (root / "data", root)]
    base = next((p for p in places if p.is_dir()), None)
    if base is None:
        raise ZooError(f"{root} holds no tau2-bench: expected {places[0]} or {places[1]}.")
    folder = base / domain
    if not folder.is_dir():
        known = sorted(p.name for p in base.iterdir() if p.is_dir())
        raise ZooError(f"tau2-bench has no domain '{domain}' in {base}: {', '.join(known)}.")
    for name in ("tasks.json", "db.json", "policy.md"):
        if not (folder / name).exists():
            raise ZooError(f"{folder} lacks {name}.")
    try:
        policy = (folder / "policy.md").read_text(encoding="utf-8")
        database = json.loads((folder / "db.json").read_text(encoding="utf-8"))
        entries = json.loads((folder / "tasks.json").read_text(encoding="utf-8"))
        tasks = [
            Task(
                f"{domain}-{entry['id']}",
                domain,
                split,
                number,
                {
                    "policy": policy,
                    "scenario": entry["user_scenario"],
                    "initial_state": entry.get("initial_state"),
                    "actions": [
                        {"name": a["name"], "arguments": a["arguments"]}
                        for a in (entry.get("evaluation_criteria") or {}).get("actions") or []
                    ],
                    "communicate": (entry.get("evaluation_criteria") or {}).get("communicate_info")
                    or [],
                },
            )
            for number, entry in enumerate(entries)
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ZooError(f"{folder} is no tau2-bench domain: {error!r}.") from None
    return tasks, database

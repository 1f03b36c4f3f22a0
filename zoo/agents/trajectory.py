"""Trajectories of agents as plain records: JSON Lines on disk, and readers of others' logs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.atomic import atomic_path
from zoo.errors import ZooError, did_you_mean
from zoo.json_lines import read_json_lines

if TYPE_CHECKING:
    from zoo.agents.codec import Codec
    from zoo.agents.rollout import Collected

SCHEMA = 1
ROLES = ("system", "user", "assistant", "tool")


@dataclass
class Turn:
    """One message.

    Attributes:
        role: "system", "user", "assistant" or "tool".
        text: What was said.
        token_ids: Of the policy's tokenizer; empty where they are not known.
        logprobs: Of these tokens when they were sampled; empty for others' turns.
        mask: Whether each token is trained on; empty where there are no tokens.
        tool_calls: ``name`` and ``arguments`` of each.
        observation: What the environment answered, where it is kept with the action.
    """

    role: str
    text: str
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    observation: str | None = None


@dataclass
class Cost:
    """What a trajectory took.

    Attributes:
        prompt_tokens: Read by the model.
        completion_tokens: Written by it.
        calls: Of the model.
        seconds: Wall time.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    calls: int = 0
    seconds: float = 0.0


@dataclass
class Trajectory:
    """An agent's attempt at one task.

    Attributes:
        task_id: Of the task.
        family: Kind of task.
        skills: Names of the skills in its prompt.
        turns: The messages, in order.
        reward: Of the whole.
        success: Whether the verifier says so.
        cost: What it took.
        meta: Anything else, as plain JSON values.
    """

    task_id: str
    family: str
    turns: list[Turn]
    skills: list[str] = field(default_factory=list)
    reward: float = 0.0
    success: bool = False
    cost: Cost = field(default_factory=Cost)
    meta: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, the version of the schema first."""
        return {"schema": SCHEMA, **asdict(self)}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any], where: str = "The trajectory") -> Trajectory:
        """The inverse of :meth:`to_dict`.

        Raises:
            ZooError: For another schema, a missing or unknown key, an unknown role, or lists of
                tokens of different lengths; it says where.
        """
        if row.get("schema") != SCHEMA:
            raise ZooError(
                f"{where} has the schema {row.get('schema')!r}: this version reads {SCHEMA}."
            )
        values = {k: v for k, v in row.items() if k != "schema"}
        _check_keys(values, cls, where, ("task_id", "family", "turns"))
        turns = []
        for number, turn in enumerate(values["turns"]):
            place = f"{where}, turn {number},"
            _check_keys(turn, Turn, place, ("role", "text"))
            turns.append(_checked(Turn(**turn), place))
        _check_keys(values.get("cost", {}), Cost, f"{where}, cost,", ())
        values |= {"turns": turns, "cost": Cost(**values.get("cost", {}))}
        return cls(**values)

    def messages(self) -> list[dict[str, str]]:
        """Role and content of each turn; observations that are kept with actions follow them."""
        found = []
        for turn in self.turns:
            found.append({"role": turn.role, "content": turn.text})
            if turn.observation is not None:
                found.append({"role": "user", "content": turn.observation})
        return found


def _check_keys(
    row: Mapping[str, Any], cls: Callable[..., Any], where: str, needed: Sequence[str]
) -> None:
    known = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    for key in row:
        if key not in known:
            raise ZooError(f"{where} has the unknown key '{key}'.{did_you_mean(key, known)}")
    for key in needed:
        if key not in row:
            raise ZooError(f"{where} lacks the key '{key}'.")


def _checked(turn: Turn, where: str) -> Turn:
    if turn.role not in ROLES:
        raise ZooError(f"{where} has the role {turn.role!r}: expected {', '.join(ROLES)}.")
    for name in ("logprobs", "mask"):
        size = len(getattr(turn, name))
        if size not in (0, len(turn.token_ids)):
            raise ZooError(f"{where} has {size} {name} for {len(turn.token_ids)} tokens.")
    return turn


# -- files --------------------------------------------------------------------------------------


def write_trajectories(path: str | Path, trajectories: Iterable[Trajectory]) -> int:
    """Writes JSON Lines as they come, whole or not at all; returns how many."""
    count = 0
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for trajectory in trajectories:
            file.write(json.dumps(trajectory.to_dict(), ensure_ascii=False, allow_nan=False) + "\n")
            count += 1
    return count


def read_trajectories(path: str | Path) -> Iterator[Trajectory]:
    """Reads JSON Lines one by one.

    Raises:
        ZooError: If the file is missing, or a line is no trajectory; it names the line.
    """
    for where, row in read_json_lines(Path(path), "trajectories"):
        yield Trajectory.from_dict(row, where)


# -- from elsewhere -----------------------------------------------------------------------------


def from_messages(
    messages: Sequence[Mapping[str, Any]], task_id: str, family: str = "", **more: Any
) -> Trajectory:
    """From a list of chat messages in the OpenAI format, tool calls among them.

    Args:
        messages: With ``role`` and ``content``, which may be parts with ``text``.
        task_id: Of the task.
        family: Kind of task.
        **more: Further fields of the trajectory.

    Raises:
        ZooError: For an unknown role, or arguments of a tool call that are no JSON.
    """
    turns = []
    for number, message in enumerate(messages):
        where = f"Message {number} of {task_id}"
        role = {"function": "tool", "developer": "system"}.get(message["role"], message["role"])
        content = message.get("content") or ""
        if not isinstance(content, str):
            content = "\n".join(str(part.get("text", "")) for part in content)
        calls = [_call(call, where) for call in message.get("tool_calls") or ()]
        turns.append(_checked(Turn(role, content, tool_calls=calls), where))
    return Trajectory(task_id, family, turns, **more)


def _call(call: Mapping[str, Any], where: str) -> dict[str, Any]:
    inner = call.get("function", call)
    arguments = inner.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError as error:
            raise ZooError(
                f"{where} calls '{inner.get('name')}' with arguments that are no JSON: {error}."
            ) from error
    return {"name": inner.get("name"), "arguments": arguments}


def from_skillrl(memories: Sequence[Mapping[str, Any]]) -> list[Trajectory]:
    """From SkillRL's memory JSON: refined trajectories of observations and actions.

    Its entries are summaries, so there is no whole prompt: the goal opens the conversation.

    Raises:
        ZooError: If an entry lacks goal or trajectory; it names the entry.
    """
    found = []
    for number, entry in enumerate(memories):
        content, tags = entry.get("content") or {}, entry.get("tags") or {}
        goal = (content.get("task_meta") or {}).get("original_goal")
        steps = content.get("refined_trajectory", "")
        if isinstance(steps, Mapping):  # the published file has it once more inside
            steps = steps.get("refined_trajectory")
        name = str(entry.get("memory_id", number))
        if not goal or not (steps is None or isinstance(steps, list)):
            missing = "content.task_meta.original_goal" if not goal else "refined_trajectory"
            raise ZooError(f"Memory {name} lacks {missing}: is this SkillRL's memory JSON?")
        turns = [Turn("user", goal)]
        turns += [
            Turn(
                "assistant",
                str(step.get("action") or ""),
                observation=step.get("critical_observation"),
            )
            for step in steps or ()  # failures have lessons only
        ]
        kind = re.search(r"classified as '([^']+)'", str(entry.get("contextual_description")))
        success = tags.get("outcome") == "Success"
        found.append(
            Trajectory(
                name,
                kind[1] if kind else str(tags.get("environment") or ""),
                turns,
                reward=float(success),
                success=success,
                meta={"source": "skillrl", "guidelines": content.get("strategic_guidelines") or {}},
            )
        )
    return found


def from_tau_bench(rows: Sequence[Mapping[str, Any]], domain: str) -> list[Trajectory]:
    """From tau-bench's and tau2-bench's results: ``task_id``, ``reward`` and ``traj`` of each run.

    Of tau2-bench's, ``messages`` and ``reward_info.reward`` stand in for the last two.
    """
    found = []
    for row in rows:
        reward = row.get("reward")
        if reward is None:
            reward = (row.get("reward_info") or {}).get("reward", 0.0)
        messages = row.get("traj") or row.get("messages")
        if messages is None:
            raise ZooError(f"Run of task {row.get('task_id')} has no traj and no messages.")
        known = [m for m in messages if m.get("role") in (*ROLES, "function", "developer")]
        found.append(
            from_messages(
                known,
                str(row.get("task_id")),
                domain,
                reward=float(reward or 0),
                success=float(reward or 0) >= 1,
                meta={"source": "tau-bench", "trial": row.get("trial")},
            )
        )
    return found


def from_appworld(
    task_id: str, interactions: Sequence[Mapping[str, Any]], success: bool = False
) -> Trajectory:
    """From a log of AppWorld: code that was run and what it printed, step by step.

    Args:
        task_id: Of the task; its part before the underscore is the scenario, the family here.
        interactions: With ``code`` (or ``action``) and ``output`` (or ``observation``); a first one
            may have an ``instruction``.
        success: By AppWorld's own evaluation.
    """
    turns = []
    for number, step in enumerate(interactions):
        if "instruction" in step:
            turns.append(Turn("user", str(step["instruction"])))
        code = step.get("code", step.get("action"))
        if code is None and "instruction" not in step:
            raise ZooError(f"Step {number} of AppWorld's task {task_id} has no code and no action.")
        if code is not None:
            output = step.get("output", step.get("observation"))
            turns.append(
                Turn("assistant", str(code), observation=None if output is None else str(output))
            )
    family = task_id.partition("_")[0]
    return Trajectory(task_id, family, turns, reward=float(success), success=success)


def from_episodes(collected: Collected, skills: Sequence[Sequence[str]] = ()) -> list[Trajectory]:
    """From what a :class:`~zoo.agents.rollout.RolloutCollector` played, with its tokens.

    Tokens and log-probabilities are kept where an episode is one sequence; one whose context was
    cut has its texts alone.
    """
    sequences, found = collected.sequences, []
    owners = sequences.owner.tolist()
    for number, episode in enumerate(collected.episodes):
        turns = [Turn("user", episode.observations[0])]
        for action, observation in zip(episode.actions, episode.observations[1:], strict=True):
            turns += [Turn("assistant", action), Turn("user", observation)]
        rows = [i for i, owner in enumerate(owners) if owner == number]
        if len(rows) == 1:
            _fill_tokens(turns, sequences, rows[0])
        found.append(
            Trajectory(
                episode.task.task_id,
                episode.task.family,
                turns,
                skills=list(skills[number]) if skills else [],
                reward=episode.reward,
                success=episode.success,
                cost=Cost(
                    int(sum(sequences.mask[i].sum() - sequences.actions[i].sum() for i in rows)),
                    int(sum(sequences.actions[i].sum() for i in rows)),
                    len(episode.actions),
                ),
            )
        )
    return found


def _fill_tokens(turns: list[Turn], sequences: Any, row: int) -> None:
    """Deals a sequence's runs of agent tokens and of others to the turns that they are of."""
    there = sequences.mask[row].bool()
    ids, actions, logprobs = (
        x[row][there].tolist() for x in (sequences.ids, sequences.actions, sequences.logprobs)
    )
    starts = [i for i in range(len(ids)) if i == 0 or actions[i] != actions[i - 1]]
    ends = [*starts[1:], len(ids)]
    if len(starts) not in (len(turns), len(turns) - 1):  # the last observation is not read
        return
    for turn, start, end in zip(turns, starts, ends, strict=False):
        turn.token_ids, turn.mask = ids[start:end], actions[start:end]
        turn.logprobs = logprobs[start:end] if actions[start] else []


def encode(trajectory: Trajectory, codec: Codec) -> tuple[list[int], list[bool]]:
    """Tokens of a trajectory, and which of them are the agent's.

    Turns in a row that are not the agent's are one turn to the model; turns after its last are left
    out, since nothing is to be learned from them.

    Raises:
        ZooError: For a word that a word-level vocabulary lacks, or a trajectory without a turn of
            the agent.
    """
    ids: list[int] = []
    mask: list[bool] = []
    heard: list[str] = []
    for message in trajectory.messages():
        if message["role"] != "assistant":
            heard.append(message["content"])
            continue
        prompt = codec.encode_prompt("\n".join(heard), first=not ids)
        reply = codec.encode_reply(message["content"])
        ids += [*prompt, *reply]
        mask += [False] * len(prompt) + [True] * len(reply)
        heard = []
    if not ids:
        raise ZooError(f"Trajectory {trajectory.task_id} has no turn of the agent.")
    return ids, mask

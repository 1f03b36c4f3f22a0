"""What a trajectory teaches: an analysis of what went well, one of what did not, and a workflow."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from zoo.agents.llm.base import LLMClient, Reply, Request
from zoo.agents.rollout import Episode
from zoo.agents.skills.library import render
from zoo.agents.skills.skill import Skill, slug
from zoo.errors import ZooError

FIELDS = ("success_analysis", "mistake_analysis", "golden_workflow")
MAX_WORDS = 200  # of a summary; the paper's limit, in tokens
MARK = "skill:"  # before a skill in the prompt of a small model, and nowhere else
QUOTED = re.compile(r"<skills [0-9a-f]{12}>")  # before one in that of a large model


@dataclass(frozen=True)
class Summary:
    """One skill, drawn from a trajectory.

    Attributes:
        success_analysis: What went well and why.
        mistake_analysis: What went wrong and why.
        golden_workflow: The steps to take.

    Raises:
        ZooError: If a field is no text, or there is no workflow.
    """

    success_analysis: str
    mistake_analysis: str
    golden_workflow: str

    def __post_init__(self) -> None:
        for name in FIELDS:
            value = getattr(self, name)
            if not isinstance(value, str):
                raise ZooError(f"A summary's {name} is text, not {type(value).__name__}.")
        if not self.golden_workflow.strip():
            raise ZooError("An empty summary: its golden_workflow has no step.")

    def to_dict(self) -> dict[str, str]:
        """The fields as plain values."""
        return asdict(self)

    def brief(self) -> str:
        """The workflow alone, as a small model with few words reads it."""
        return f"{MARK} {self.golden_workflow.strip().rstrip('.')}."

    def skill(self, task: str) -> Skill:
        """In the format of :mod:`zoo.agents.skills`."""
        parts = [f"{n.replace('_', ' ')}: {getattr(self, n).strip()}" for n in FIELDS]
        return Skill(slug(task), f"How to do tasks like {task}"[:1024], "\n\n".join(parts))

    def quoted(self, task: str, budget_tokens: int = 2 * MAX_WORDS) -> str:
        """As data in a delimited block, for large models: it gives no orders."""
        return render([self.skill(task)], budget_tokens, "body")


def check_plain(prompt: str, brief: bool) -> str:
    """The prompt, if it holds no skill: what the student acts on never does.

    Args:
        prompt: It.
        brief: Whether skills are written as in :meth:`Summary.brief`.

    Raises:
        ZooError: If it does.
    """
    match = (re.search(rf"\b{MARK}", prompt) if brief else None) or QUOTED.search(prompt)
    if match:
        raise ZooError(
            f"The student's prompt holds a skill ('{prompt[match.start() :][:60]}'): the student "
            "acts under the plain prompt."
        )
    return prompt


def parse_summary(text: str) -> Summary:
    """A model's answer: one JSON object of the three fields, whatever stands around it.

    Raises:
        ZooError: If it is none; it shows the beginning of the answer.
    """
    start, end = text.find("{"), text.rfind("}")
    try:
        row = json.loads(text[start : end + 1])
        values = {name: row[name] for name in FIELDS}
    except (KeyError, TypeError, ValueError) as error:
        raise ZooError(
            f"The summariser answered '{text[:60]}': expected a JSON object of {', '.join(FIELDS)}."
        ) from error
    summary = Summary(**values)
    return _shortened(summary)


def _parsed(replies: Sequence[Reply]) -> Summary | ZooError:
    """The first reply's summary, or what is wrong with it."""
    try:
        return parse_summary(replies[0].text if replies else "")
    except ZooError as error:
        return error


def _shortened(summary: Summary) -> Summary:
    """At most :data:`MAX_WORDS` words; the workflow is kept before the analyses."""
    left, kept = MAX_WORDS, {}
    for name in reversed(FIELDS):
        words = getattr(summary, name).split(" ")[:left]
        left -= len(words)
        kept[name] = " ".join(words)
    return Summary(**kept)


class SkillSummarizer:
    """Summarises trajectories, by rule or by a language model.

    It sees the trajectory and its reward, and no ground truth.

    Args:
        client: Of the model; ``None`` for the rule: the workflow is what was done.
        general: Whether a skill serves several tasks: the rule then leaves out words of the task
            at hand, such as its object.
    """

    def __init__(self, client: LLMClient | None = None, general: bool = True) -> None:
        self.client, self.general = client, general

    def __call__(
        self, wins: Sequence[Episode], losses: Sequence[Episode | None]
    ) -> list[Summary | None]:
        """One summary for each pair of attempts at a task.

        Args:
            wins: The best attempts.
            losses: A failed one at the same task, if there was any.

        Returns:
            ``None`` where a model's answer was no summary.

        Raises:
            ZooError: If none of the model's answers was one; it shows the first.
        """
        pairs = list(zip(wins, losses, strict=True))
        if self.client is None:
            return [self._by_rule(*pair) for pair in pairs]
        if not pairs:
            return []
        replies = self.client.chat_batch([_request(*pair) for pair in pairs])
        found = [_parsed(reply) for reply in replies]
        errors = [x for x in found if isinstance(x, ZooError)]
        if len(errors) == len(found):
            raise errors[0]
        return [None if isinstance(x, ZooError) else x for x in found]

    def _by_rule(self, win: Episode, loss: Episode | None) -> Summary:
        steps = [self._step(action, win.observations[0]) for action in win.actions]
        turns = len(win.actions)
        success = f"All was done in {turns} turn{'s' * (turns != 1)}."
        return Summary(success, _difference(win, loss), ", ".join(steps))

    def _step(self, action: str, goal: str) -> str:
        if not self.general:
            return action
        words = set(re.findall(r"\w+", goal.lower()))
        kept = [w for w in action.split() if w.lower() not in words]
        return " ".join(kept) or action


def _difference(win: Episode, loss: Episode | None) -> str:
    if loss is None:
        return "No attempt failed."
    for turn, (right, wrong) in enumerate(zip(win.actions, loss.actions, strict=False), 1):
        if right != wrong:
            return f"In turn {turn} one attempt took '{wrong}' and failed."
    return f"One attempt stopped after {len(loss.actions)} turns and failed."


def _request(win: Episode, loss: Episode | None) -> Request:
    from zoo.agents.llm.prompts import render_prompt

    text = _written(win)
    if loss is not None:
        text += f"\n\nAnother attempt, which failed:\n\n{_written(loss)}"
    prompt = render_prompt(
        "summarise",
        trajectory=text,
        success=win.success,
        reward=round(win.reward, 3),
        max_words=MAX_WORDS,
    )
    return Request([{"role": "user", "content": prompt}], max_tokens=4 * MAX_WORDS)


def _written(episode: Episode) -> str:
    lines = [episode.observations[0]]
    for action, seen in zip(episode.actions, episode.observations[1:], strict=False):
        lines += [f"> {action}", seen]
    return "\n".join(lines)


def summary_of(row: Any) -> Summary:
    """The inverse of :meth:`Summary.to_dict`."""
    return Summary(**row)

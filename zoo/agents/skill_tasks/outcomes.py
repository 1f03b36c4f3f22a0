"""How often agents did tasks, with skills and without: what a forecast of lift is learnt from."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch

from zoo.agents.skill_tasks.features import features
from zoo.agents.skill_tasks.task import SkillTask
from zoo.agents.trajectory import Trajectory, read_trajectories
from zoo.atomic import atomic_path
from zoo.errors import ZooError


@dataclass(frozen=True)
class Outcome:
    """Trials of one agent at one task under one condition.

    Attributes:
        task: Its name.
        agent: Its name.
        condition: "none", "curated", "self" or "placebo".
        trials: Made, without those that failed for want of infrastructure.
        successes: Of these.
    """

    task: str
    agent: str
    condition: str
    trials: int
    successes: int


def count_outcomes(trajectories: Iterable[Trajectory]) -> list[Outcome]:
    """Counts trajectories, whose ``meta`` has ``agent``, ``condition`` and ``status``."""
    counts: dict[tuple[str, str, str], list[int]] = {}
    for t in trajectories:
        if t.meta.get("status") == "infrastructure":
            continue
        key = t.task_id, str(t.meta["agent"]), str(t.meta["condition"])
        pair = counts.setdefault(key, [0, 0])
        pair[0] += 1
        pair[1] += t.success
    return [Outcome(*key, *pair) for key, pair in sorted(counts.items())]


def write_outcomes(path: str | Path, outcomes: Sequence[Outcome]) -> None:
    """Writes a table, whole or not at all."""
    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Outcome)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in outcomes)


def read_outcomes(path: str | Path) -> list[Outcome]:
    """Reads a table of outcomes, or the ``trajectories.jsonl`` of a run.

    Raises:
        ZooError: If the file is missing, or a line of it is wrong; it names the line.
    """
    path = Path(path)
    if path.suffix == ".jsonl":
        try:
            return count_outcomes(read_trajectories(path))
        except KeyError as error:
            raise ZooError(f"{path} has a trajectory without {error} in its meta.") from None
    if not path.is_file():
        raise ZooError(f"No table of outcomes at {path}.")
    names = [f.name for f in fields(Outcome)]
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != names:
            raise ZooError(f"{path} has the columns {reader.fieldnames}: expected {names}.")
        found = []
        for number, row in enumerate(reader, 2):
            try:
                trials, successes = int(row["trials"]), int(row["successes"])
            except (TypeError, ValueError):
                raise ZooError(
                    f"{path}, line {number}: trials and successes are numbers."
                ) from None
            if not 0 <= successes <= trials:
                raise ZooError(f"{path}, line {number}: {successes} successes of {trials} trials.")
            texts = row["task"], row["agent"], row["condition"]
            found.append(Outcome(*texts, trials=trials, successes=successes))
    return found


def lift_rows(items: Mapping[str, SkillTask], outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """What a forecast is learnt from: a row for each task and agent.

    Args:
        items: Tasks by name; outcomes of others are left out.
        outcomes: Of the conditions "none" and "curated"; others are left out.

    Returns:
        ``name``, ``family``, ``agent``, ``features`` (15,), and ``successes`` and ``trials`` (2,),
        without skills and with them, float32. The agent's rate among the features is of other tasks
        than the row's.
    """
    counts = {(o.task, o.agent, o.condition): o for o in outcomes if o.task in items}
    agents = sorted({agent for _, agent, _ in counts})
    rows = []
    for agent in agents:
        without = [o for o in counts.values() if (o.agent, o.condition) == (agent, "none")]
        for name in sorted(items):
            pair = [counts.get((name, agent, c)) for c in ("none", "curated")]
            if pair == [None, None]:
                continue
            others = [o for o in without if o.task != name]
            tried = sum(o.trials for o in others)
            rate = sum(o.successes for o in others) / tried if tried else 0.5
            rows.append(
                {
                    "name": name,
                    "family": items[name].task.family,
                    "agent": agent,
                    "features": torch.from_numpy(features(items[name], rate)),
                    "successes": torch.tensor([float(o.successes) if o else 0.0 for o in pair]),
                    "trials": torch.tensor([float(o.trials) if o else 0.0 for o in pair]),
                }
            )
    return rows

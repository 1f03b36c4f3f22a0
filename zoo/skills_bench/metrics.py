"""``PairedEvaluation``: the benchmark's figures as a metric that adds up over processes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric

from zoo.agents.trajectory import Trajectory
from zoo.skills_bench.conditions import CONDITIONS
from zoo.skills_bench.runner import excluded
from zoo.skills_bench.statistics import compare, rates


class PairedEvaluation(Metric):
    """Lifts, intervals, pass rates and regressions of paired trajectories.

    Args:
        agents: Names.
        conditions: "none" among them.
    """

    is_differentiable = False
    full_state_update = False
    rows: list[Tensor]

    def __init__(self, agents: Sequence[str], conditions: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.agents, self.conditions = list(agents), list(conditions)
        self.add_state("rows", [], dist_reduce_fx="cat")

    def update(self, trajectories: Sequence[Trajectory]) -> None:
        """Adds all trajectories of some tasks."""
        gone = excluded(trajectories)
        rows = [
            [
                number(t.task_id),
                number(t.family),
                self.conditions.index(t.meta["condition"]),
                self.agents.index(t.meta["agent"]),
                t.meta["seed"],
                -1 if (t.task_id, t.meta["agent"], t.meta["seed"]) in gone else int(t.success),
            ]
            for t in trajectories
        ]
        self.rows.append(torch.tensor(rows, dtype=torch.long, device=self.device))

    def compute(self) -> dict[str, Tensor]:
        """Figures by name.

        By condition ``pass_``, ``lift_`` with ``_low`` and ``_high``, ``gain_``, ``p_``,
        ``worst_agent_`` (the least lift of an agent), ``regressions_`` and
        ``significant_regressions_``; and ``excluded``, the trials left out.
        """
        rows = torch.cat(list(self.rows)) if isinstance(self.rows, list) else self.rows
        array = np.unique(rows.cpu().numpy(), axis=0)  # sorted, and each once
        tasks, place = np.unique(array[:, 0], return_inverse=True)
        domain = np.zeros(len(tasks), dtype=np.int64)
        domain[place] = array[:, 1]
        shape = len(tasks), len(self.conditions), len(self.agents), array[:, 4].max() + 1
        outcomes = np.full(shape, np.nan)
        values = np.where(array[:, 5] < 0, np.nan, array[:, 5])
        outcomes[place, array[:, 2], array[:, 3], array[:, 4]] = values
        found = {"excluded": float(np.isnan(outcomes[:, 0]).sum())}
        if np.isnan(outcomes).all():
            return {name: torch.tensor(value) for name, value in found.items()}
        before = outcomes[:, self.conditions.index("none")]
        names = [str(task) for task in tasks]
        found["pass_none"] = float(np.nanmean(rates(before)))
        for i, condition in enumerate(self.conditions):
            if condition == "none":
                continue
            compared = compare(before, outcomes[:, i], domain, names)
            lift, fell = compared.lift, compared.fell
            found |= {
                f"pass_{condition}": lift.after,
                f"lift_{condition}": lift.value,
                f"lift_{condition}_low": lift.low,
                f"lift_{condition}_high": lift.high,
                f"gain_{condition}": lift.gain,
                f"p_{condition}": lift.p,
                f"worst_agent_{condition}": min(compared.by_agent.values()),
                f"regressions_{condition}": float(len(fell.fallen)),
                f"significant_regressions_{condition}": float(len(fell.significant)),
            }
        return {name: torch.tensor(value, dtype=torch.float32) for name, value in found.items()}


def number(name: str) -> int:
    """A name as an integer that is the same in all processes."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")


def outcome_array(
    trajectories: Sequence[Trajectory], tasks: Sequence[str], agents: Sequence[str]
) -> dict[str, np.ndarray]:
    """Outcomes by condition, NaN for pairs that are left out. Shape: (T, A, S) each."""
    gone = excluded(trajectories)
    trials = 1 + max(t.meta["seed"] for t in trajectories)
    there = {t.meta["condition"] for t in trajectories}
    found = {
        c: np.full((len(tasks), len(agents), trials), np.nan) for c in CONDITIONS if c in there
    }
    for t in trajectories:
        if (t.task_id, t.meta["agent"], t.meta["seed"]) not in gone:
            place = tasks.index(t.task_id), agents.index(t.meta["agent"]), t.meta["seed"]
            found[t.meta["condition"]][place] = t.success
    return found

"""The report of a benchmark: tables for people, and the same figures for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.agents.metrics import Interval, wilson_interval
from zoo.agents.trajectory import Trajectory, write_trajectories
from zoo.atomic import atomic_path, write_json, write_text
from zoo.skills_bench.metrics import number, outcome_array
from zoo.skills_bench.runner import excluded
from zoo.skills_bench.statistics import (
    Lift,
    Regressions,
    compare,
    domain_lifts,
    variance_components,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass
class Report:
    """What came out.

    Attributes:
        tasks: Names.
        domains: Of each task.
        agents: Names.
        trials: Of each task under each condition by each agent.
        outcomes: 1, 0, or NaN for what was left out, by condition. Shape: (T, A, S) each.
        lifts: By condition, against "none".
        by_agent: Lift in points by condition and agent.
        by_domain: Lift in points and Holm's p by condition and domain.
        fell: By condition, the tasks that got worse.
        components: Shares of the variance of outcomes without skills.
        excluded: Pairs left out since infrastructure failed, in all conditions.
        status: How many trajectories ended how.
        forecast: Log loss of forecasts, see :func:`~zoo.skills_bench.network.cross_validate`.
    """

    tasks: list[str]
    domains: list[str]
    agents: list[str]
    trials: int
    outcomes: dict[str, np.ndarray]
    lifts: dict[str, Lift]
    by_agent: dict[str, dict[str, float]]
    by_domain: dict[str, dict[str, tuple[float, float]]]
    fell: dict[str, Regressions]
    components: dict[str, float]
    excluded: int
    status: dict[str, int]
    forecast: dict[str, float] = field(default_factory=dict)

    def rate(self, task: str, condition: str) -> Interval:
        """Pass rate of a task with Wilson's interval, trials of all agents together."""
        values = self.outcomes[condition][self.tasks.index(task)]
        there = values[~np.isnan(values)]
        return wilson_interval(float(there.sum()), len(there))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        rows = [
            {"task": task, "domain": domain} | {c: self.rate(task, c).value for c in self.outcomes}
            for task, domain in zip(self.tasks, self.domains, strict=True)
        ]
        return {
            "lifts": {c: asdict(lift) for c, lift in self.lifts.items()},
            "by_agent": self.by_agent,
            "by_domain": {
                c: {d: {"lift": v, "p": p} for d, (v, p) in found.items()}
                for c, found in self.by_domain.items()
            },
            "regressions": {c: asdict(fell) for c, fell in self.fell.items()},
            "variance_components": self.components,
            "excluded_pairs": self.excluded,
            "status": self.status,
            "forecast_log_loss": self.forecast,
            "trials": self.trials,
            "agents": self.agents,
            "tasks": [{k: None if v != v else v for k, v in row.items()} for row in rows],
        }

    def to_markdown(self) -> str:
        """Tables of conditions, agents, domains and tasks."""
        count = f"{len(self.tasks)} tasks, {len(self.agents)} agents, {self.trials} trials of each"
        lines = [f"{count}; {self.excluded} pairs left out for want of infrastructure.", ""]
        lines += table(
            ("condition", "pass rate", "lift (points)", "95 % interval", "gain", "McNemar p"),
            [
                ("none", f"{self._mean('none'):.3f}", "", "", "", ""),
                *(
                    (
                        name,
                        f"{lift.after:.3f}",
                        f"{lift.value:+.1f}",
                        f"{lift.low:+.1f} to {lift.high:+.1f}",
                        f"{lift.gain:.2f}",
                        f"{lift.p:.3g}",
                    )
                    for name, lift in self.lifts.items()
                ),
            ],
        )
        conditions = list(self.lifts)
        lines += [
            "",
            *table(
                ("lift by agent", *conditions),
                [(a, *(f"{self.by_agent[c][a]:+.1f}" for c in conditions)) for a in self.agents],
            ),
        ]
        lines += [
            "",
            *table(
                ("lift by domain (Holm's p)", *conditions),
                [
                    (
                        d,
                        *(
                            f"{v:+.1f} ({p:.2g})"
                            for v, p in (self.by_domain[c][d] for c in conditions)
                        ),
                    )
                    for d in sorted(set(self.domains))
                ],
            ),
        ]
        for name, fell in self.fell.items():
            found = ", ".join(fell.significant) or "none"
            count = f"{len(fell.fallen)} of {len(self.tasks)} tasks"
            lines += ["", f"Worse with {name}: {count}, some by chance; significantly: {found}."]
        if self.components:
            parts = ", ".join(
                f"{k.replace('_', ' x ')} {v:.2f}" for k, v in self.components.items()
            )
            lines += ["", f"Variance of outcomes without skills: {parts}."]
        if self.forecast:
            f = self.forecast
            better = "beats" if f["model"] < f["domain"] else "does not beat"
            text = f"Forecast of tasks not trained on: log loss {f['model']:.3f}, which {better} "
            text += f"the domain's mean ({f['domain']:.3f}); mean of all {f['all']:.3f}."
            lines += ["", text]
        lines += [
            "",
            *table(
                ("task", "domain", *self.outcomes),
                [
                    (t, d, *(f"{self.rate(t, c).value:.2f}" for c in self.outcomes))
                    for t, d in zip(self.tasks, self.domains, strict=True)
                ],
            ),
        ]
        return "\n".join(lines) + "\n"

    def _mean(self, condition: str) -> float:
        return (
            next(iter(self.lifts.values())).before
            if self.lifts
            else float(np.nanmean(self.outcomes[condition]))
        )

    def figure(self) -> Figure:
        """Paired differences by task, and lifts by condition."""
        from zoo.skills_bench.figure import paired_differences

        return paired_differences(self)

    def save(self, folder: str | Path, trajectories: Sequence[Trajectory] = ()) -> list[Path]:
        """Writes ``report.json``, ``report.md``, ``report.png`` and ``trajectories.jsonl``."""
        folder = Path(folder)
        write_json(folder / "report.json", self.to_dict())
        write_text(folder / "report.md", self.to_markdown())
        with atomic_path(folder / "report.png") as path:
            self.figure().savefig(path, dpi=120)
        names = ["report.json", "report.md", "report.png"]
        if trajectories:
            write_trajectories(folder / "trajectories.jsonl", trajectories)
            names.append("trajectories.jsonl")
        return [folder / name for name in names]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table."""
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
    return lines


def make_report(
    trajectories: Sequence[Trajectory], forecast: Mapping[str, float] | None = None
) -> Report:
    """The report of trajectories, as :class:`~zoo.skills_bench.runner.Bench` makes them."""
    domain = {t.task_id: t.family for t in trajectories}
    tasks = sorted(domain)
    domains = [domain[name] for name in tasks]
    agents = list(dict.fromkeys(t.meta["agent"] for t in trajectories))
    outcomes = outcome_array(trajectories, tasks, agents)
    before = outcomes["none"]
    strata = np.array([number(name) for name in domains])
    status: dict[str, int] = {}
    for t in trajectories:
        status[t.meta["status"]] = status.get(t.meta["status"], 0) + 1
    others = [c for c in outcomes if c != "none"] if not np.isnan(before).all() else []
    compared = {c: compare(before, outcomes[c], strata, tasks) for c in others}
    return Report(
        tasks,
        domains,
        agents,
        before.shape[2],
        outcomes,
        {c: found.lift for c, found in compared.items()},
        {c: {agents[i]: v for i, v in found.by_agent.items()} for c, found in compared.items()},
        {c: domain_lifts(before, outcomes[c], domains) for c in others},
        {c: found.fell for c, found in compared.items()},
        variance_components(before),
        len(excluded(trajectories)),
        dict(sorted(status.items())),
        dict(forecast or {}),
    )

"""Runs the arms of a claim over seeds, and reports mean and spread, run time and peak memory.

Each run is a ``zoo fit`` in a process of its own, which tests its best checkpoint, followed by one
``zoo test`` of that for each evaluation with options of its own. A claim over several targets makes
such a run in each of its settings, and compares means over them. The figures of a run are one JSON
line each in ``benchmarks/results``; runs that are there already are not repeated, so an interrupted
study goes on where it was.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Arm:
    """One competitor.

    Attributes:
        name: As in the table.
        options: What ``zoo fit`` is given beside the config, for this arm alone.
        of: For a baseline without training: the arm whose test runs measure it as well.
        metric: The metric of that arm which is this one's; ``None`` for the claim's own.
    """

    name: str
    options: Sequence[str] = ()
    of: str | None = None
    metric: str | None = None


@dataclass(frozen=True)
class Check:
    """One sentence of the claim, and whether the figures bear it out.

    Attributes:
        text: What is claimed, with its margin.
        holds: From the figures to the verdict and the numbers behind it.
    """

    text: str
    holds: Callable[[Figures], tuple[bool, str]]


@dataclass(frozen=True)
class Column:
    """One column of the table.

    Attributes:
        evaluation: Whose test runs it is from.
        metrics: Of ``metrics.json``; the mean of several. ``None`` for the arm's or the claim's.
    """

    evaluation: str
    metrics: Sequence[str] | None = None


@dataclass(frozen=True)
class Claim:
    """What a method's abstract claims, and how it is measured at the embedded scale.

    Attributes:
        method: Its name; the runs use its default config.
        metric: The metric of the table, as in ``metrics.json``.
        unit: Of the metric.
        arms: Method, honest baselines, ablations and controls.
        evaluations: Options of ``zoo test`` by name.
        columns: Of the table by heading; without any, one for each evaluation.
        settings: Options of both ``zoo fit`` and ``zoo test`` by name, for instance the target
            domains of leave-one-out: each arm is trained in each of them, and what is compared is
            the mean over them.
        checks: The sentences.
        options: What every run is given.
    """

    method: str
    metric: str
    unit: str
    arms: Sequence[Arm]
    evaluations: Mapping[str, Sequence[str]]
    checks: Sequence[Check] = ()
    options: Sequence[str] = field(default_factory=tuple)
    columns: Mapping[str, Column] = field(default_factory=dict)
    settings: Mapping[str, Sequence[str]] = field(default_factory=lambda: {"": ()})

    @property
    def table_columns(self) -> Mapping[str, Column]:
        """The columns by heading."""
        return self.columns or {name: Column(name) for name in self.evaluations}


class Figures:
    """The measured figures of one claim, by arm, evaluation, setting and seed."""

    def __init__(self, claim: Claim, lines: Iterable[Mapping[str, Any]]) -> None:
        self.claim = claim
        self.lines = list(lines)
        self._arms = {arm.name: arm for arm in claim.arms}

    def by_setting(
        self, arm: str, evaluation: str, metric: str | Sequence[str] | None = None
    ) -> dict[str, dict[int, float]]:
        """Value of each seed, in order, by setting; ``metric`` may be several, for their mean.

        Runs that did not measure the metric (a baseline has none of a method's own) are left out.
        """
        source = self._arms[arm].of or arm
        metric = metric or self._arms[arm].metric or self.claim.metric
        keys = [metric] if isinstance(metric, str) else list(metric)
        found: dict[str, dict[int, float]] = {setting: {} for setting in self.claim.settings}
        for line in sorted(self.lines, key=lambda line: line["seed"]):
            values = line["metrics"]
            known = line["arm"] == source and line["evaluation"] == evaluation
            if known and line.get("setting", "") in found and all(key in values for key in keys):
                mean = statistics.mean(values[key] for key in keys)
                found[line.get("setting", "")][line["seed"]] = mean
        return found

    def by_seed(
        self, arm: str, evaluation: str, metric: str | Sequence[str] | None = None
    ) -> dict[int, float]:
        """Value of each seed, in order: the mean over the settings, if all of them have it."""
        settings = list(self.by_setting(arm, evaluation, metric).values())
        return {
            seed: statistics.mean(values[seed] for values in settings)
            for seed in settings[0]
            if all(seed in values for values in settings)
        }

    def mean(self, arm: str, evaluation: str, metric: str | Sequence[str] | None = None) -> float:
        """Mean over the seeds."""
        return statistics.mean(self.by_seed(arm, evaluation, metric).values())

    def cost(self, arm: str) -> tuple[float, float] | None:
        """Mean training seconds and peak MiB; ``None`` for a baseline without training."""
        training = [line["training"] for line in self.lines if line["arm"] == arm]
        if not training:
            return None
        return (
            statistics.mean(t["seconds"] for t in training),
            max(t["peak_rss_mib"] for t in training),
        )


def run(
    claim: Claim, seeds: Sequence[int], arms: Sequence[str] | None = None, jobs: int = 1
) -> Figures:
    """Makes the runs that are missing, and returns all figures of the claim.

    Args:
        claim: Declared in ``benchmarks/claims``.
        seeds: Of ``seed_everything``.
        arms: Only these; ``None`` for all.
        jobs: Runs at the same time. With more than one, each computes on one thread.
    """
    path = RESULTS / f"{claim.method}.jsonl"
    done = {(line["arm"], line.get("setting", ""), line["seed"]) for line in read(path)}
    trained = [arm for arm in claim.arms if arm.of is None and (not arms or arm.name in arms)]
    todo = [
        (arm, setting, seed)
        for seed in seeds
        for setting in claim.settings
        for arm in trained
        if (arm.name, setting, seed) not in done
    ]
    with ThreadPoolExecutor(jobs) as pool:
        runs = [pool.submit(_train_and_test, claim, *task, jobs) for task in todo]
        for finished in as_completed(runs):  # written at once: a stopped study loses what runs
            try:
                lines = finished.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            RESULTS.mkdir(exist_ok=True)
            with path.open("a", encoding="utf-8") as file:  # one write a run: whole or not at all
                file.write("".join(json.dumps(line) + "\n" for line in lines))
    return Figures(claim, [line for line in read(path) if line["seed"] in seeds])


def read(path: Path) -> list[dict[str, Any]]:
    """The JSON lines of earlier runs; none if there is no such file."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _train_and_test(
    claim: Claim, arm: Arm, setting: str, seed: int, jobs: int
) -> list[dict[str, Any]]:
    config = ["--config", f"zoo/{claim.method}.yaml", "--seed_everything", str(seed)]
    shared = [*claim.options, *claim.settings[setting], *arm.options]
    options = [*shared, "--trainer.enable_progress_bar", "false"]
    with tempfile.TemporaryDirectory() as folder:
        root = ["--trainer.default_root_dir", folder]
        _zoo(["fit", *config, *options, *root], jobs)
        (trained,) = Path(folder).glob("runs/*/version_0")
        (best,) = (trained / "checkpoints").glob("best-*.ckpt")
        tested: dict[str, Any] = json.loads((trained / "metrics.json").read_text())
        training = tested["training"]
        lines, number = [], 0
        for evaluation, given in claim.evaluations.items():
            record = tested
            if given:
                number += 1
                ckpt = ["--ckpt_path", str(best)]
                _zoo(["test", *config, *options, *root, *ckpt, *given], jobs)
                path = trained.parent / f"version_{number}/metrics.json"
                record = json.loads(path.read_text())
            record = {**record, "training": training, "checkpoint": best.name}
            run = {"arm": arm.name, "seed": seed, "evaluation": evaluation}
            run |= {"setting": setting} if setting else {}
            lines.append(run | record)
    values = ", ".join(f"{x['evaluation']} {x['metrics'][claim.metric]:.4g}" for x in lines)
    where = f"{arm.name}, {setting}, seed {seed}" if setting else f"{arm.name}, seed {seed}"
    sys.stderr.write(f"{where}: {values} ({training['seconds']:.0f} s)\n")
    return lines


def _zoo(args: Sequence[str], jobs: int) -> None:
    threads = {"OMP_NUM_THREADS": "1"} if jobs > 1 else {}
    done = subprocess.run(
        [sys.executable, "-m", "zoo", *args],
        env={**os.environ, **threads},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"zoo {' '.join(args)} failed:\n{done.stdout}\n{done.stderr}")


def table(figures: Figures) -> str:
    """The card's table in Markdown: mean ± standard deviation over the seeds.

    Arms without a figure are named below it.
    """
    claim = figures.claim
    columns = claim.table_columns
    seeds = sorted({line["seed"] for line in figures.lines})
    head = [f"{claim.metric.removeprefix('test_')} ({claim.unit})", *columns]
    rows = [[*head, "train (s)", "peak (MiB)"]]
    unmeasured = []
    for arm in claim.arms:
        found = [
            # What the arm whose runs these are has measured of itself is not this arm's.
            []
            if arm.of and column.metrics
            else list(figures.by_seed(arm.name, column.evaluation, column.metrics).values())
            for column in columns.values()
        ]
        count = max(map(len, found))
        if not count:
            unmeasured.append(arm.name)
            continue
        cells = []
        for values in found:
            spread = f" ± {statistics.stdev(values):.3f}" if len(set(values)) > 1 else ""
            cells.append(f"{statistics.mean(values):.3f}{spread}" if values else "")
        cost = figures.cost(arm.name)
        name = arm.name if count == len(seeds) else f"{arm.name} ({count} of {len(seeds)} seeds)"
        rows.append([name, *cells, *([f"{c:.0f}" for c in cost] if cost else ["", ""])])
    rows.insert(1, ["---"] * len(rows[0]))
    lines = [f"| {' | '.join(row)} |" for row in rows]
    last = max(line["date"] for line in figures.lines)[:10]
    hardware = ", ".join(sorted({line["hardware"] for line in figures.lines}))
    command = f"python -m benchmarks claims {claim.method} --seeds {' '.join(map(str, seeds))}"
    left = f" Not measured yet: {', '.join(unmeasured)}." if unmeasured else ""
    return "\n".join([*lines, "", f"`{command}`, {last}, {hardware}.{left}"]) + "\n"


def verdicts(figures: Figures) -> str:
    """Each sentence of the claim with its verdict, in Markdown."""
    lines = []
    for check in figures.claim.checks:
        try:
            holds, detail = check.holds(figures)
        except (ValueError, KeyError):  # no figure of some arm or seed
            lines.append(f"- Not measured yet: {check.text}.")
            continue
        lines.append(f"- {'Holds' if holds else '**Does not hold**'}: {check.text} ({detail}).")
    return "\n".join(lines) + "\n"

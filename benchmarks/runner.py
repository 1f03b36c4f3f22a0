"""Runs the arms of a claim over seeds, and reports mean and spread, run time and peak memory.

Each run is a ``zoo fit`` in a process of its own, which tests its best checkpoint, followed by one
``zoo test`` of that for each evaluation with options of its own. A claim over several targets makes
such a run in each of its settings, and compares means over them. The figures of a run are one JSON
line each in ``benchmarks/results``; runs that are there already are not repeated, so an interrupted
study goes on where it was.
"""

from __future__ import annotations

import csv
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
class Tuning:
    """An option whose best value is not known beforehand, as a learning rate.

    All values run with the first seed of a study; the one with the lowest validation metric runs
    with the others. One seed is a poor judge of a value that is at the edge of stability, so cheap
    runs may try all values with every seed.

    Attributes:
        option: Of ``zoo fit``.
        values: To choose from.
        every_seed: Choose by the mean over all seeds.
    """

    option: str
    values: Sequence[str]
    every_seed: bool = False


@dataclass(frozen=True)
class Arm:
    """One competitor.

    Attributes:
        name: As in the table.
        options: What ``zoo fit`` is given beside the config, for this arm alone.
        of: For a baseline without training: the arm whose test runs measure it as well.
        metric: The metric of that arm which is this one's; ``None`` for the claim's own.
        tune: What is chosen on validation; ``None`` for nothing.
        config: In place of the method's default one.
        evaluations: Those of the claim's that it has a part in; ``None`` for all.
    """

    name: str
    options: Sequence[str] = ()
    of: str | None = None
    metric: str | None = None
    tune: Tuning | None = None
    config: str | None = None
    evaluations: Sequence[str] | None = None


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
        validation: The validation metric, lower being better, that arms are tuned by; its values
            over the steps are kept.
        checks: The sentences.
        options: What every run is given.
        seeded: Options that the seed is given to, as ``--data.seed`` where a study is about which
            few data there are.
    """

    method: str
    metric: str
    unit: str
    arms: Sequence[Arm]
    evaluations: Mapping[str, Sequence[str]]
    checks: Sequence[Check] = ()
    options: Sequence[str] = field(default_factory=tuple)
    seeded: Sequence[str] = field(default_factory=tuple)
    columns: Mapping[str, Column] = field(default_factory=dict)
    settings: Mapping[str, Sequence[str]] = field(default_factory=lambda: {"": ()})
    validation: str | None = None

    @property
    def table_columns(self) -> Mapping[str, Column]:
        """The columns by heading."""
        return self.columns or {name: Column(name) for name in self.evaluations}


class Figures:
    """The measured figures of one claim, by arm, evaluation, setting and seed."""

    def __init__(self, claim: Claim, lines: Iterable[Mapping[str, Any]]) -> None:
        self.claim = claim
        self.tried = list(lines)
        self._arms = {arm.name: arm for arm in claim.arms}
        self.chosen = {arm.name: choose(arm, self.tried) for arm in claim.arms if arm.tune}
        self.lines = [
            line for line in self.tried if line.get("choice") == self.chosen.get(line["arm"])
        ]

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

    def curves(self, arm: str) -> dict[int, list[tuple[int, float]]]:
        """Steps and validation metric of each seed."""
        return {
            line["seed"]: line["validation"]
            for line in self.lines
            if line["arm"] == arm and "validation" in line
        }

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
    while todo := missing(claim, seeds, arms, read(path)):  # again, once values are chosen
        with ThreadPoolExecutor(jobs) as pool:
            runs = [pool.submit(_train_and_test, claim, *task, jobs) for task in todo]
            for finished in as_completed(runs):  # written at once: a stopped study loses what runs
                try:
                    lines = finished.result()
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
                RESULTS.mkdir(exist_ok=True)
                with path.open("a", encoding="utf-8") as file:  # one write a run: whole or not
                    file.write("".join(json.dumps(line) + "\n" for line in lines))
    return Figures(claim, [line for line in read(path) if line["seed"] in seeds])


def missing(
    claim: Claim,
    seeds: Sequence[int],
    arms: Sequence[str] | None,
    lines: Sequence[Mapping[str, Any]],
) -> list[tuple[Arm, str, int, str | None]]:
    """The runs that can be made now: arm, setting, seed and value of what is tuned."""
    done = {(x["arm"], x.get("setting", ""), x["seed"], x.get("choice")) for x in lines}
    trained = [arm for arm in claim.arms if arm.of is None and (not arms or arm.name in arms)]

    def values(arm: Arm, seed: int) -> Sequence[str | None]:
        if arm.tune is None:
            return [None]
        if seed == seeds[0] or arm.tune.every_seed:
            return arm.tune.values
        tried = [line for line in lines if line["seed"] == seeds[0]]
        known = {(x["choice"], x.get("setting", "")) for x in tried if x["arm"] == arm.name}
        complete = len(known) == len(arm.tune.values) * len(claim.settings)
        return [choose(arm, tried)] if complete else []

    return [
        (arm, setting, seed, value)
        for seed in seeds
        for setting in claim.settings
        for arm in trained
        for value in values(arm, seed)
        if (arm.name, setting, seed, value) not in done
    ]


def choose(arm: Arm, lines: Iterable[Mapping[str, Any]]) -> str | None:
    """The value with the lowest validation metric, see :class:`Tuning`."""
    tried = _validation(arm, lines)
    return min(tried, key=lambda value: tried[value]) if tried else None


def _validation(arm: Arm, lines: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The best validation metric of each value: on the seed that tried most, or over all seeds."""
    found: dict[int, dict[str, list[float]]] = {}
    for line in lines:
        if line["arm"] == arm.name and line.get("choice") is not None:
            best = min(value for _, value in line["validation"])
            found.setdefault(line["seed"], {}).setdefault(line["choice"], []).append(best)
    if not found:
        return {}
    if arm.tune is None or not arm.tune.every_seed:
        return {v: statistics.mean(x) for v, x in max(found.values(), key=len).items()}
    values = {value for tried in found.values() for value in tried}
    seeds = {v: [statistics.mean(t[v]) for t in found.values() if v in t] for v in sorted(values)}
    most = max(map(len, seeds.values()))
    return {v: statistics.mean(means) for v, means in seeds.items() if len(means) == most}


def read(path: Path) -> list[dict[str, Any]]:
    """The JSON lines of earlier runs; none if there is no such file."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _train_and_test(
    claim: Claim, arm: Arm, setting: str, seed: int, choice: str | None, jobs: int
) -> list[dict[str, Any]]:
    name = arm.config or f"zoo/{claim.method}.yaml"
    config = ["--config", name, "--seed_everything", str(seed)]
    drawn = [part for option in claim.seeded for part in (option, str(seed))]
    shared = [*claim.options, *drawn, *claim.settings[setting], *arm.options]
    if arm.tune is not None and choice is not None:
        shared += [arm.tune.option, choice]
    options = [*shared, "--trainer.enable_progress_bar", "false"]
    with tempfile.TemporaryDirectory() as folder:
        root = ["--trainer.default_root_dir", folder]
        _zoo(["fit", *config, *options, *root], jobs)
        (trained,) = Path(folder).glob("runs/*/version_0")
        # Each stage of training leaves its best, with the epoch in its name: the last is greatest.
        best = max((trained / "checkpoints").glob("best-*.ckpt"))
        tested: dict[str, Any] = json.loads((trained / "metrics.json").read_text())
        training = tested["training"]
        lines, number = [], 0
        for evaluation in arm.evaluations or claim.evaluations:
            given, record = claim.evaluations[evaluation], tested
            if given:
                number += 1
                ckpt = ["--ckpt_path", str(best)]
                _zoo(["test", *config, *options, *root, *ckpt, *given], jobs)
                path = trained.parent / f"version_{number}/metrics.json"
                record = json.loads(path.read_text())
            record = {**record, "training": training, "checkpoint": best.name}
            run = {"arm": arm.name, "seed": seed, "evaluation": evaluation}
            run |= {"setting": setting} if setting else {}
            run |= {"choice": choice} if choice is not None else {}
            if claim.validation:
                run["validation"] = _curve(trained / "metrics.csv", claim.validation)
            lines.append(run | record)
    values = ", ".join(f"{x['evaluation']} {x['metrics'][claim.metric]:.4g}" for x in lines)
    where = ", ".join(x for x in (arm.name, setting, choice, f"seed {seed}") if x)
    sys.stderr.write(f"{where}: {values} ({training['seconds']:.0f} s)\n")
    return lines


def _curve(path: Path, metric: str) -> list[tuple[int, float]]:
    """Steps done and a metric after them, from the log of a run."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get(metric)]
    return [(int(row["step"]) + 1, float(row[metric])) for row in rows]


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
        found = [_values(figures, arm, column) for column in columns.values()]
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
        if arm.tune is not None:
            name += f", {arm.tune.option.rpartition('.')[2]} {figures.chosen[arm.name]}"
        rows.append([name, *cells, *([f"{c:.0f}" for c in cost] if cost else ["", ""])])
    rows.insert(1, ["---"] * len(rows[0]))
    lines = [f"| {' | '.join(row)} |" for row in rows]
    last = max(line["date"] for line in figures.lines)[:10]
    hardware = ", ".join(sorted({line["hardware"] for line in figures.lines}))
    command = f"python -m benchmarks claims {claim.method} --seeds {' '.join(map(str, seeds))}"
    left = f" Not measured yet: {', '.join(unmeasured)}." if unmeasured else ""
    return (
        "\n".join([*lines, "", f"`{command}`, {last}, {hardware}.{left}", *_tried(figures)]) + "\n"
    )


def _values(figures: Figures, arm: Arm, column: Column) -> list[float]:
    """The figures of all seeds in a column; none if it is not measured for such an arm.

    What the arm whose runs these are has measured of itself is not a baseline's. But one whose
    metric is the claim's with something appended, as ``test_rmse_bicubic``, may have others so.
    """
    metrics = column.metrics
    if arm.of and metrics:
        suffix = (arm.metric or "").removeprefix(figures.claim.metric)
        if suffix == arm.metric:
            return []
        metrics = [f"{name}{suffix}" for name in metrics]
    return list(figures.by_seed(arm.name, column.evaluation, metrics).values())


def _tried(figures: Figures) -> list[str]:
    """What the values of tuned options gave on validation, one paragraph for all arms."""
    found = []
    for arm in figures.claim.arms:
        if figures.chosen.get(arm.name) is None or arm.tune is None:
            continue
        values = _validation(arm, figures.tried)
        grid = ", ".join(f"{k}: {values[k]:.3f}" for k in arm.tune.values if k in values)
        seeds = "; all seeds" if arm.tune.every_seed else ""
        found.append(f"{arm.name} ({grid}{seeds})")
    if not found:
        return []
    how = f"{figures.claim.validation} of the first seed, or of all where it says so"
    return ["", f"Chosen by {how}: {'; '.join(found)}."]


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

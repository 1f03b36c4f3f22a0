"""SkillsBench as a LightningModule: ``test`` runs agents, ``fit`` trains a forecast of the lift.

Reference:
    "SkillsBench: Benchmarking How Well Agent Skills Work Across Diverse Tasks", arXiv 2602.12670.
Differs from the paper: the placebo condition, the leak audit's definition, the forecast, and the
embedded tasks with simulated agents are ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torchmetrics import MeanMetric, MetricCollection

from zoo.agents.skill_tasks import (
    FEATURES,
    SkillTask,
    embedded_tasks,
    features,
    read_task,
    read_tasks,
)
from zoo.agents.skill_tasks.outcomes import count_outcomes, lift_rows
from zoo.agents.skills import load_skill
from zoo.agents.trajectory import Trajectory, write_trajectories
from zoo.atomic import write_text
from zoo.base import ZooModule
from zoo.distributed import gathered
from zoo.errors import check_choice
from zoo.skills_bench.agent import DEFAULT_AGENTS, AgentArgs
from zoo.skills_bench.metrics import PairedEvaluation
from zoo.skills_bench.network import LiftModel, binomial_loss, cross_validate
from zoo.skills_bench.report import Report, make_report, table
from zoo.skills_bench.runner import Bench, RunArgs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AGENT_RATE = 0.5  # of an agent of which nothing is known


class SkillsBenchRunner(ZooModule):
    """Does a skill help this agent, on which tasks, and where does it hurt?

    Args:
        agents: Who do the tasks, see :class:`~zoo.skills_bench.agent.AgentArgs`; ``None`` for three
            simulated ones.
        conditions: Of "none", "curated", "self" and "placebo".
        n_trials: Seeds of each task under each condition by each agent.
        max_turns: Actions of a trajectory.
        timeout_s: Seconds of a trajectory.
        command_s: Seconds of one command.
        memory_mb: MiB of a command.
        executor: "sandbox", or "docker", in the task's own image.
        concurrency: Trajectories at a time; results do not depend on it.
        cache_dir: Where trajectories are kept, so that a run that was stopped goes on.
        width: Of the forecast's hidden layers.
        folds: Of the test's cross-validation of forecasts, by tasks.
    """

    monitor: ClassVar[tuple[str, str]] = ("val_log_loss", "min")
    optimizer_config: Mapping[str, Any] = {
        "class_path": "torch.optim.AdamW",
        "init_args": {"lr": 3e-3, "weight_decay": 0.1},
    }

    def __init__(
        self,
        agents: list[AgentArgs] | None = None,
        conditions: Sequence[str] = ("none", "curated", "self", "placebo"),
        n_trials: int = 5,
        max_turns: int = 30,
        timeout_s: float = 600.0,
        command_s: float = 60.0,
        memory_mb: int = 512,
        executor: str = "sandbox",
        concurrency: int = 4,
        cache_dir: str | None = None,
        width: int = 64,
        folds: int = 6,
    ) -> None:
        super().__init__()
        conditions = list(conditions)
        chosen = [
            a if isinstance(a, AgentArgs) else AgentArgs(**a)
            for a in (DEFAULT_AGENTS if agents is None else agents)
        ]
        agents = None if agents is None else [asdict(a) for a in chosen]  # type: ignore[misc]
        self.save_hyperparameters()
        run = RunArgs(
            tuple(conditions),
            n_trials,
            max_turns,
            timeout_s,
            command_s,
            memory_mb,
            executor,
            concurrency,
            cache_dir,
        )
        self.bench = Bench(chosen, run)
        self.width, self.folds = width, folds
        self.lift_model = LiftModel(width)
        self.measure(MetricCollection({"log_loss": MeanMetric()}))
        self.paired = PairedEvaluation([a.name for a in chosen], run.conditions)
        self._made: list[Trajectory] = []
        self._items: dict[str, SkillTask] = {}

    # -- the forecast ------------------------------------------------------------------------

    def forward(self, features: Tensor) -> dict[str, Tensor]:
        """Forecast pass rates.

        Args:
            features: See :func:`zoo.agents.skill_tasks.features`. Shape: (B, 15).

        Returns:
            ``without`` and ``curated``, log odds of success. Shape: (B,) each.
        """
        logits = self.lift_model(features)
        return {"without": logits[:, 0], "curated": logits[:, 1]}

    def training_step(self, batch: Mapping[str, Any], batch_idx: int) -> Tensor:
        """Binomial log-likelihood of tasks' outcomes."""
        logits = self.lift_model(batch["features"])
        loss = binomial_loss(logits, batch["successes"], batch["trials"])
        self.log("train_loss", loss, prog_bar=True, batch_size=len(logits))
        return loss

    def validation_step(self, batch: Mapping[str, Any], batch_idx: int) -> Tensor:
        """Log loss on tasks that are not trained on; gives the log odds, (B, 2)."""
        logits: Tensor = self.lift_model(batch["features"])
        trials = batch["trials"]
        loss = binomial_loss(logits, batch["successes"], trials)
        self.val_metrics["val_log_loss"].update(loss, weight=trials.sum())
        return logits

    def forecast(self, item: SkillTask, agent_rate: float = AGENT_RATE) -> dict[str, float]:
        """Pass rates that are to be expected, before any agent runs.

        Args:
            item: A task; with others in place of its own, ``item.with_skills(...)``.
            agent_rate: Share of other tasks that the agent does without skills.

        Returns:
            ``without``, ``curated`` and ``lift`` in points.
        """
        with self.evaluating():
            x = torch.from_numpy(features(item, agent_rate))[None].to(self.device)
            rates = {name: float(v.sigmoid()) for name, v in self(x).items()}
        return {**rates, "lift": 100 * (rates["curated"] - rates["without"])}

    # -- the benchmark -----------------------------------------------------------------------

    def test_step(self, batch: Mapping[str, Any], batch_idx: int) -> list[Trajectory]:  # type: ignore[override]
        """Runs all conditions, agents and trials of a batch of tasks."""
        items = [SkillTask.from_json(text) for text in batch["task"]]
        made = self.bench.run(items)
        self.paired.update(made)
        self._made += made
        self._items.update({item.name: item for item in items})
        return made

    def on_test_start(self) -> None:
        """Takes placebos from all tasks of the test."""
        dataset = getattr(self.trainer.test_dataloaders, "dataset", None)
        pool = getattr(dataset, "items", None)
        if not self.bench.pool and isinstance(pool, list):
            self.bench.pool = pool

    def on_test_epoch_end(self) -> None:
        """Logs lifts with intervals, and writes report and trajectories into the run folder."""
        made, items = self._gathered()
        self._made, self._items = [], {}
        forecast = self._cross_validated(made, items)
        figures = {f"test_{k}": v for k, v in self.paired.compute().items()}
        self.paired.reset()
        figures |= {f"test_log_loss_{name}": torch.tensor(v) for name, v in forecast.items()}
        for name, value in figures.items():  # equal on all ranks
            self.log(name, value, rank_zero_only=False, sync_dist=False)
        report = make_report(made, forecast)
        if self.trainer.is_global_zero and self.trainer.loggers:
            folder = Path(self.trainer.loggers[0].log_dir or self.trainer.default_root_dir)
            report.save(folder, made)

    def _gathered(self) -> tuple[list[Trajectory], dict[str, SkillTask]]:
        """Trajectories and tasks of all processes, each once, in the order of the tasks' names."""
        parts = gathered((self._made, self._items))
        rows = {
            (t.task_id, t.meta["agent"], t.meta["seed"], t.meta["condition"]): t
            for made, _ in parts
            for t in made
        }
        names = [a.name for a in self.bench.agents]
        conditions = self.bench.args.conditions
        order = sorted(rows, key=lambda k: (k[0], names.index(k[1]), k[2], conditions.index(k[3])))
        return [rows[key] for key in order], {k: v for _, items in parts for k, v in items.items()}

    def _cross_validated(
        self, made: Sequence[Trajectory], items: Mapping[str, SkillTask]
    ) -> dict[str, float]:
        """How well lifts are forecast on tasks that were not trained on; nothing for one task."""
        if len(items) < 2 or "curated" not in self.bench.args.conditions:
            return {}
        rows = lift_rows(items, count_outcomes(made))
        if not rows:
            return {}
        x, y, n = (
            torch.stack([row[key] for row in rows]) for key in ("features", "successes", "trials")
        )
        task, domain = ([row[key] for row in rows] for key in ("name", "family"))
        return cross_validate(x, y, n, task, domain, self.width, self.folds)

    def evaluate(self, tasks: Sequence[SkillTask] | str | Path) -> Report:
        """Runs the benchmark on tasks.

        Args:
            tasks: Task folders' parent, or tasks.

        Raises:
            ZooError: If a task can't be read.
        """
        return self._report(self._tasks(tasks))[0]

    def compare(
        self,
        skill_dir: str | Path,
        tasks: Sequence[SkillTask] | str | Path | None = None,
        output: str | Path | None = None,
    ) -> Report:
        """Does this skill help? It takes the place of the tasks' own under "curated".

        Args:
            skill_dir: A folder with SKILL.md.
            tasks: Task folders' parent, or tasks; ``None`` for those that come with the package.
            output: Folder for report and trajectories.

        Raises:
            ZooError: If skill or tasks can't be read.
        """
        skill = load_skill(skill_dir)
        items = [item.with_skills((skill,)) for item in self._tasks(tasks)]
        pool = self.bench.pool
        self.bench.pool = pool or [*self._tasks(None), *items]
        try:
            report, made = self._report(items)
        finally:
            self.bench.pool = pool
        if output is not None:
            report.save(output, made)
        return report

    def _tasks(self, tasks: Sequence[SkillTask] | str | Path | None) -> list[SkillTask]:
        if tasks is None:
            return embedded_tasks()
        return read_tasks(tasks) if isinstance(tasks, str | Path) else list(tasks)

    def _report(self, items: Sequence[SkillTask]) -> tuple[Report, list[Trajectory]]:
        made = self.bench.run(items)
        return make_report(made, self._cross_validated(made, {i.name: i for i in items})), made

    def predict(
        self,
        task: str | Path | SkillTask,
        condition: str = "curated",
        agent: str = "",
        seed: int = 0,
    ) -> Trajectory:
        """One agent's attempt at one task.

        Args:
            task: Its folder.
            condition: "none", "curated" or "self".
            agent: Name; the first if empty.
            seed: Of its replies.

        Raises:
            ZooError: If the task can't be read, or there is no such agent.
        """
        item = task if isinstance(task, SkillTask) else read_task(task)
        check_choice("condition", condition, ("none", "curated", "self"))
        names = {a.name: a for a in self.bench.agents}
        chosen = agent or next(iter(names))
        check_choice("agent", chosen, list(names))
        with self.evaluating():
            return self.bench.one(item, condition, names[chosen], seed)

    def predict_step(self, batch: Mapping[str, Any], batch_idx: int) -> list[dict[str, Any]]:
        """All trajectories of each task, and what the forecast expects."""
        found = []
        for text in batch["task"]:
            item = SkillTask.from_json(text)
            made = self.bench.run([item])
            expected = self.forecast(item)
            found.append({"name": item.name, "trajectories": made, "forecast": expected})
        return found

    def write_prediction(self, prediction: Mapping[str, Any], path: Path) -> list[Path]:
        """Writes ``<name>.jsonl``, the trajectories, and ``<name>.md``, how they ended."""
        made: list[Trajectory] = prediction["trajectories"]
        rows: dict[tuple[str, str], list[Trajectory]] = {}
        for t in made:
            key = t.meta["agent"], t.meta["condition"]
            rows.setdefault(key, []).append(t)
        lines = table(
            ("agent", "condition", "passed", "turns"),
            [
                (
                    *key,
                    f"{sum(t.success for t in part)} of {len(part)}",
                    f"{sum(t.cost.calls for t in part) / len(part):.1f}",
                )
                for key, part in rows.items()
            ],
        )
        f = prediction["forecast"]
        lines += [
            "",
            (
                f"Forecast: {f['without']:.2f} without skills, {f['curated']:.2f} with them, "
                f"{f['lift']:+.0f} points."
            ),
        ]
        files = [path.with_name(f"{path.name}{suffix}") for suffix in (".jsonl", ".md")]
        write_trajectories(files[0], made)
        write_text(files[1], "\n".join(lines) + "\n")
        return files

    def example_inputs(self) -> dict[str, Tensor]:
        """Three tasks' features."""
        return {"features": torch.linspace(-1, 1, 3 * FEATURES).reshape(3, FEATURES)}

    def figures(self, batch: Mapping[str, Any], outputs: Any) -> dict[str, Figure]:
        """Forecasts against outcomes; of the test, paired differences by task."""
        from zoo.skills_bench.figure import forecast

        if isinstance(outputs, Tensor):
            trials = batch["trials"].cpu()
            observed = batch["successes"].cpu() / trials.clamp_min(1)
            return {"forecast": forecast(outputs.float().sigmoid().cpu(), observed, trials)}
        return {"paired_differences": make_report(outputs).figure()}

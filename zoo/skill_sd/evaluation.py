"""What Skill-SD measures: attempts without skills, with them, and the teacher's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from zoo.agents.envs.base import Task
from zoo.agents.rollout import Collected
from zoo.agents.sequences import Sequences
from zoo.distributed import sum_over_ranks
from zoo.skill_sd.agent import SkilledAgent, read_tasks, succeeded
from zoo.skill_sd.bandit import SkillBandit
from zoo.skill_sd.report import Progress
from zoo.skill_sd.summary import Summary
from zoo.skill_sd.teacher import Teacher, judge

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VAL_ROLLOUTS = 2  # sampled of each validation task


class EvaluatedAgent(SkilledAgent):
    """An agent with a bank of skills and a teacher, and how good all three are.

    Attributes:
        bandit: The bank.
        teacher: Earlier weights.
        progress: Of the training.
        test_rollouts: Sampled of each test task.
    """

    bandit: SkillBandit
    teacher: Teacher
    progress: Progress
    test_rollouts: int

    def judged(
        self, collected: Collected, skills: Mapping[str, Summary], weights: Any = None
    ) -> tuple[Tensor, Tensor]:
        """The teacher's log-probabilities of what was done, where the task has a skill.

        Args:
            collected: The student's rollouts.
            skills: By key of the task.
            weights: In place of the teacher's.

        Returns:
            Log-probabilities, 0 elsewhere, and of which tokens. Shape of both: (B, T).
        """
        sequences = collected.sequences
        owners = sequences.owner.tolist()
        episodes = [collected.episodes[i] for i in owners]
        with_skill = [i for i, e in enumerate(episodes) if self.key(e.task) in skills]
        values = torch.zeros_like(sequences.logprobs)
        taught = torch.zeros_like(sequences.actions)
        if not with_skill:
            return values, taught
        plain, skilled = [], []
        for i in with_skill:
            key, first = self.key(episodes[i].task), episodes[i].observations[0]
            plain.append(self.policy.encode_prompt(self.plain(first)))
            text = self.skilled(first, skills[key], episodes[i].task.family)
            skilled.append(self.policy.encode_prompt(text))
        rows = torch.tensor(with_skill, device=sequences.ids.device)
        part = Sequences(
            *(getattr(sequences, n)[rows] for n in ("ids", "mask", "actions", "logprobs", "owner"))
        )
        with self.teacher.acting(self.policy, weights):
            found = judge(
                self.policy,
                part,
                plain,
                skilled,
                self.updates.temperature,
                self.updates.micro_batch,
            )
        values[rows], taught[rows] = found, part.actions
        return values, taught

    def validation_step(self, batch: Mapping[str, Any], batch_idx: int) -> dict[str, Any]:
        """Sampled and greedy attempts under the plain prompt; returns them."""
        return self._evaluate(batch, VAL_ROLLOUTS, self.val_metrics, "val_")

    def test_step(self, batch: Mapping[str, Any], batch_idx: int) -> dict[str, Any]:
        """The same with more attempts; then with skills, for student and teacher."""
        metrics = self.test_metrics
        found = self._evaluate(batch, self.test_rollouts, metrics, "test_")
        tasks, keys = read_tasks(batch), self._keys(batch, 1)
        sequences = found["sampled"].sequences
        metrics["test_tokens"].update(self._tokens(found["sampled"]))
        skills = self._best(tasks)
        known = [i for i, task in enumerate(tasks) if self.key(task) in skills]
        wins: dict[str, Tensor] = {"skill": torch.zeros(0), "teacher": torch.zeros(0)}
        kl = torch.zeros(0)
        if known:
            chosen, rows = [tasks[i] for i in known], keys[torch.tensor(known)]
            wins["skill"] = succeeded(self.play(chosen, 1, skills, keys=rows))
            if self.teacher:
                with self.teacher.acting(self.policy):
                    wins["teacher"] = succeeded(self.play(chosen, 1, skills, keys=rows))
                values, taught = self.judged(found["sampled"], skills)
                gap = (sequences.logprobs - values).masked_fill(~taught, 0).sum(dim=1)
                kl = (gap / taught.sum(dim=1).clamp_min(1))[taught.any(dim=1)]
        for name, success in wins.items():
            metrics[f"test_{name}"].update(success.to(self.device))
        metrics["test_kl"].update(kl)
        return found

    def _evaluate(
        self, batch: Mapping[str, Any], count: int, metrics: Any, prefix: str
    ) -> dict[str, Any]:
        tasks = read_tasks(batch)
        sampled = self.play(tasks, count, keys=self._keys(batch, count))
        greedy = self.play(tasks, 1, temperature=0.0)
        metrics[f"{prefix}success"].update(succeeded(sampled).to(self.device))
        metrics[f"{prefix}greedy"].update(succeeded(greedy).to(self.device))
        return {"sampled": sampled, "greedy": greedy}

    def _keys(self, batch: Mapping[str, Any], count: int) -> Tensor:
        index = torch.as_tensor(batch["index"], device=self.device)
        return (index[:, None] * count + torch.arange(count, device=self.device)).flatten()

    def _best(self, tasks: Sequence[Task]) -> dict[str, Summary]:
        found = {self.key(task): self.bandit.best(self.key(task)) for task in tasks}
        return {key: skill for key, skill in found.items() if skill is not None}

    @staticmethod
    def _tokens(collected: Collected) -> Tensor:
        sequences = collected.sequences
        sizes = sequences.mask.sum(dim=1).float()
        blank = sizes.new_zeros(len(collected.episodes))
        return blank.index_add(0, sequences.owner, sizes)

    def on_validation_epoch_end(self) -> None:
        """Logs, and keeps the sampled success for the curve."""
        super().on_validation_epoch_end()
        if self.trainer.state.fn == "fit" and not self.trainer.sanity_checking:
            rate = float(self.val_metrics["val_success"].compute())
            self.progress.validations.append([self.progress.env_steps, rate])

    def on_test_epoch_end(self) -> None:
        """Logs what was measured; with skills only where the bank has any of the test's tasks."""
        values: dict[str, Tensor | float] = {}
        for name, metric in self.test_metrics.items():
            value = metric.compute()
            if sum_over_ranks(cast("Tensor", metric.count).sum()) > 0:
                values[name] = value
        values |= {f"test_{name}": value for name, value in self.progress.report().items()}
        self.log_dict(values)

    def figures(self, batch: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Figure]:
        """Success over the training, the bank, and a trajectory beside the skill of its task."""
        from zoo.skill_sd.figure import bank_figure, success_curve, trajectory_figure

        if self.trainer.state.fn == "fit" and not self.progress.rounds:
            return {}  # demonstrations are still being imitated
        episodes = outputs["greedy"].episodes
        shown = next((e for e in episodes if self.key(e.task) in self.bandit), episodes[0])
        skill = self.bandit.best(self.key(shown.task))
        found = {"trajectory": trajectory_figure(shown, skill)}
        if self.progress.rounds:
            found["success"] = success_curve(self.progress)
        if self.bandit.visited:
            found["bank"] = bank_figure(self.bandit)
        return found

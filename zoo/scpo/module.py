"""SCPO as a LightningModule: reinforcement from checked answers, few rollouts a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torchmetrics import MeanMetric, MetricCollection

from zoo.agents.llm import ClientArgs
from zoo.agents.losses import check_rewards, grpo_advantage, skill_sums
from zoo.agents.metrics import PassAtK, SuccessRate
from zoo.agents.module import Experience, PolicyModule, Updates
from zoo.agents.policy import PolicyArgs
from zoo.agents.rollout import Rollout, Sequences
from zoo.agents.verifiers import VERIFIERS, verify
from zoo.atomic import write_json
from zoo.distributed import gathered, sum_over_ranks
from zoo.errors import ZooError, check_choice
from zoo.scpo.baseline import BASELINES, PSEUDO_COUNT, estimate_baselines
from zoo.scpo.history import SkillHistory
from zoo.scpo.report import (
    MEASURED,
    VALUE_ROLLOUTS,
    Rollouts,
    baseline_errors,
    errors_in_training,
    gradient_scatter,
)
from zoo.scpo.skills import SOURCES, ClusterSkills, SkillTagger

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NORMALISE = ("batch_std", "none")
VAL_ROLLOUTS = 2  # sampled of each validation prompt
UNKNOWN = -1  # skill of a question that nobody labelled


class SCPO(PolicyModule):
    """Skill-Coupled Policy Optimization: baselines that borrow from prompts of the same skill.

    Args:
        policy: The language model. Real scale: ``model_id: Qwen/Qwen2.5-Math-1.5B``.
        group_size: n, rollouts a prompt. Real scale: 4 to 8.
        baseline: "scpo", or for comparison "global", "rloo" or "grpo".
        skill_source: "label", the data's ``skill``; "cluster", k-means on the questions' embeddings
            as the policy has them when reinforcement begins; "llm", a model tags each question.
        n_skills: K.
        skill_names: Of the skills, for reports; ``None`` for numbers.
        coupling: "correlated", "group", or "none" for no history: see
            :class:`~zoo.scpo.SkillHistory`.
        history_decay: rho, of the history's sums at each step.
        pseudo_count: c, prompts at the batch's mean that each skill is given.
        drift_guard: Forget three quarters of a skill's history where a batch contradicts it.
        normalise: "batch_std" divides advantages by one number, their deviation over the batch;
            "none". GRPO divides by each group's, whatever is said here.
        allow_single: Take a group size of 1: the baseline is then the skill's alone.
        clip_rewards: Cut rewards off at 0 and 1 rather than refuse others.
        clip: Width of the ratio's clip.
        kl: Weight of the divergence from the policy that reinforcement began with.
        sft_steps: Updates on demonstrations, before reinforcement.
        sft_lr: Their peak learning rate.
        rl_steps: Updates on rollouts; ``None`` for the rest of the training.
        ppo_epochs: Passes over a step's rollouts.
        minibatches: Updates a pass.
        micro_batch: Responses of one backward pass; ``None`` for all.
        grad_clip: Largest norm of the gradient.
        temperature: Of the rollouts.
        max_new_tokens: Of a response. Real scale: 4096.
        verifier: "exact", or "math" for sympy in the sandbox.
        test_rollouts: Of each test prompt, for pass@k and, from 32 + n on, the errors of the
            baselines and the scatter of the gradient.
        test_batch: Prompts of the batches on which these are computed.
        tagger: Of skill_source "llm".

    Source: the abstract names the skill-coupled target, task correlations and a light history; the
    leave-one-out and the shrinkage are after arXiv 2511.03710; what these leave open is our choice.
    """

    # What is trained for: greedy answers hardly change while sampled ones become right.
    monitor: ClassVar[tuple[str, str]] = ("val_sampled", "max")

    def __init__(
        self,
        policy: PolicyArgs,
        group_size: int = 2,
        baseline: str = "scpo",
        skill_source: str = "label",
        n_skills: int = 8,
        skill_names: list[str] | None = None,
        coupling: str = "correlated",
        history_decay: float = 0.7,
        pseudo_count: float = PSEUDO_COUNT,
        drift_guard: bool = False,
        normalise: str = "batch_std",
        allow_single: bool = False,
        clip_rewards: bool = False,
        clip: float = 0.2,
        kl: float = 0.0,
        sft_steps: int = 110,
        sft_lr: float = 3e-3,
        rl_steps: int | None = None,
        ppo_epochs: int = 1,
        minibatches: int = 1,
        micro_batch: int | None = None,
        grad_clip: float = 1.0,
        temperature: float = 1.0,
        max_new_tokens: int = 8,
        verifier: str = "exact",
        test_rollouts: int = 40,
        test_batch: int = 64,
        tagger: ClientArgs | None = None,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        check_choice("baseline", baseline, BASELINES)
        check_choice("skill_source", skill_source, SOURCES)
        check_choice("normalise", normalise, NORMALISE)
        check_choice("verifier", verifier, VERIFIERS)
        if group_size < 2 and not (allow_single and baseline == "scpo" and group_size == 1):
            raise ZooError(
                f"group_size={group_size} with baseline={baseline!r}: a prompt's other rollouts "
                "are its baseline, so it needs 2 or more; allow_single=True lets 'scpo' do with 1."
            )
        if n_skills < 1 or not 0 <= history_decay < 1 or pseudo_count < 0:
            raise ZooError(
                f"n_skills={n_skills}, history_decay={history_decay}, pseudo_count={pseudo_count}: "
                "expected at least 1, in [0, 1), not negative."
            )
        if skill_names is not None and len(skill_names) != n_skills:
            raise ZooError(f"skill_names has {len(skill_names)} names for n_skills={n_skills}.")
        self.setup_policy(
            policy,
            Updates(
                epochs=ppo_epochs,
                minibatches=minibatches,
                micro_batch=micro_batch,
                grad_clip=grad_clip,
                clip_low=clip,
                clip_high=clip,
                kl=kl,
                temperature=temperature,
            ),
            sft_steps,
            sft_lr,
            rl_steps,
        )
        self.group_size, self.baseline, self.skill_source = group_size, baseline, skill_source
        self.n_skills, self.pseudo_count, self.normalise = n_skills, pseudo_count, normalise
        self.allow_single, self.clip_rewards, self.verifier = allow_single, clip_rewards, verifier
        self.max_new_tokens, self.test_batch = max_new_tokens, test_batch
        self.test_rollouts = test_rollouts
        self.skill_names = skill_names or [str(k) for k in range(n_skills)]
        self.history = SkillHistory(n_skills, history_decay, coupling, drift_guard)
        self.clusters: ClusterSkills | None = None
        self.tagger: SkillTagger | None = None
        if skill_source == "cluster":
            self.clusters = ClusterSkills(self.policy, n_skills)
        elif skill_source == "llm":
            self.tagger = SkillTagger(ClientArgs.of(tagger, "tagger"), self.skill_names)
        tries = {f"pass_at_{k}": PassAtK(k) for k in (8,) if k <= test_rollouts}
        self.measure(
            MetricCollection({"accuracy": MeanMetric(), "sampled": MeanMetric()}),
            by_skill=SuccessRate(self.skill_names, "accuracy"),
            **tries,
        )
        self.errors: Tensor
        self.register_buffer("errors", torch.zeros(len(MEASURED) + 1))
        self._tested: list[Rollouts] = []

    # -- training ----------------------------------------------------------------------------

    def on_train_start(self) -> None:
        """Refuses data whose skills this model does not have, before any step."""
        dataset = getattr(self.trainer.train_dataloader, "dataset", None)
        for problem in getattr(dataset, "problems", ()):
            if self.skill_source == "label" and not 0 <= problem.skill < self.n_skills:
                raise ZooError(
                    f"The question '{problem.question[:60]}' has the skill {problem.skill}: "
                    f"n_skills={self.n_skills}."
                )

    def experience(self, batch: Mapping[str, Any], generator: torch.Generator) -> Experience:
        """Samples n responses to each question, their rewards, and advantages by the baseline."""
        questions, n = list(batch["question"]), self.group_size
        prompts = [self.policy.encode_prompt(q) for q in questions for _ in range(n)]
        rollout = self.policy.generate(
            prompts, self.max_new_tokens, self.updates.temperature, generator=generator
        )
        answers = [a for a in batch["answer"] for _ in range(n)]
        rewards = self.reward(self.policy.decode(rollout.rows()), answers).view(-1, n)
        skills = self.skills(batch)
        advantage = self.advantage(rewards, skills)
        if n > 1:
            checked = check_rewards(rewards, self.clip_rewards)
            errors = errors_in_training(
                checked, skills, self.n_skills, self.history.prior(), self.pseudo_count
            )
            self.errors.add_(sum_over_ranks(errors))
        sums = skill_sums(rewards, skills, self.n_skills, reduce=sum_over_ranks)
        self.history.update(sums)  # after the step's baseline was made
        equal = (rewards == rewards[:, :1]).all(dim=1)
        return Experience(
            Sequences.of(prompts, rollout, self.policy.pad_id),
            advantage.flatten(),
            {
                "reward": rewards.mean(),
                "success": (rewards == 1).float().mean(),
                "zero_groups": equal.float().mean(),
                "ended": rollout.ended.float().mean(),
            },
        )

    def reward(self, responses: list[str], answers: Sequence[str]) -> Tensor:
        """1 for a right answer, else 0; a method of one's own may give anything in 0..1.

        Shape: (N,), float32.
        """
        right = verify(responses, answers, self.verifier)
        rewards = torch.tensor(right, dtype=torch.float32, device=self.device)
        return rewards

    def advantage(self, rewards: Tensor, skills: Tensor) -> Tensor:
        """Rewards less their baseline. Shape: (P, n) to the same."""
        rewards = check_rewards(rewards, self.clip_rewards)
        if self.baseline == "grpo":
            return grpo_advantage(rewards).values
        advantage = rewards - estimate_baselines(
            rewards,
            skills,
            self.baseline,
            self.n_skills,
            self.history.prior(),
            pseudo_count=self.pseudo_count,
            allow_single=self.allow_single,
            reduce=sum_over_ranks,
        )
        if self.normalise == "none":
            return advantage
        # One number for the whole batch: a group's own deviation would undo the shrinkage.
        sums = torch.stack(
            [advantage.sum(), advantage.square().sum(), advantage.new_tensor(advantage.numel())]
        )
        total, square, count = sum_over_ranks(sums)
        variance = (square - total.square() / count) / (count - 1).clamp_min(1)
        scaled: Tensor = advantage / (variance.clamp_min(0).sqrt() + 1e-6)
        return scaled

    def skills(self, batch: Mapping[str, Any]) -> Tensor:
        """Of each question: labels, shape (B,), or weights, shape (B, K).

        Raises:
            ZooError: If the batch has no labels, or one that is out of range; it names the row.
        """
        questions = list(batch["question"])
        if self.clusters is not None:
            if not self.clusters.fitted:
                self.clusters.fit(self.policy, self._training_questions(questions))
            weights: Tensor = self.clusters(questions)
            return weights
        if self.tagger is not None:
            return self.tagger(questions).to(self.device)
        labels = batch.get("skill")
        if labels is None:
            raise ZooError("skill_source='label' needs the data's skills: this batch has none.")
        return torch.as_tensor(labels, device=self.device)

    def _training_questions(self, default: list[str]) -> list[str]:
        dataset = getattr(self.trainer.train_dataloader, "dataset", None)
        problems = getattr(dataset, "problems", None)
        return [p.question for p in problems] if problems else default

    # -- validation and test -----------------------------------------------------------------

    def validation_step(self, batch: Mapping[str, Any], batch_idx: int) -> dict[str, Any]:
        """Greedy answers and sampled ones; returns which of the first are right."""
        right, texts = self._greedy(batch)
        self.val_metrics["val_accuracy"].update(right)
        self.val_metrics["val_sampled"].update(self._sample(batch, VAL_ROLLOUTS)[1])
        return {"right": right, "texts": texts}

    def test_step(self, batch: Mapping[str, Any], batch_idx: int) -> dict[str, Any]:
        """Greedy answers, and many sampled ones; returns what is right."""
        right, texts = self._greedy(batch)
        self.test_metrics["test_accuracy"].update(right)
        labels = torch.as_tensor(batch["skill"], device=self.device)
        self.test_metrics["test_by_skill"].update(right, labels)
        found: dict[str, Any] = {"right": right, "texts": texts}
        if self.test_rollouts:
            rollouts = self._rollouts(batch)
            found["rewards"] = rollouts.rewards
            self.test_metrics["test_sampled"].update(rollouts.rewards)
            for name, metric in self.test_metrics.items():
                if name.startswith("test_pass_at"):
                    metric.update(rollouts.rewards == 1)
            self._tested.append(rollouts)
        return found

    def _greedy(self, batch: Mapping[str, Any]) -> tuple[Tensor, list[str]]:
        rollout = self.respond(list(batch["question"]))
        texts = self.policy.decode(rollout.rows())
        return self.reward(texts, batch["answer"]), texts

    def _sample(self, batch: Mapping[str, Any], count: int) -> tuple[Sequences, Tensor]:
        """Responses that depend on the prompt's number alone, and their rewards, (B, count)."""
        index = torch.as_tensor(batch["index"])
        prompts = [self.policy.encode_prompt(q) for q in batch["question"] for _ in range(count)]
        keys = (index[:, None] * count + torch.arange(count)).flatten().to(self.device)
        rollout = self.policy.generate(
            prompts, self.max_new_tokens, self.updates.temperature, keys=keys
        )
        answers = [a for a in batch["answer"] for _ in range(count)]
        rewards = self.reward(self.policy.decode(rollout.rows()), answers).view(-1, count)
        return Sequences.of(prompts, rollout, self.policy.pad_id), rewards

    def _rollouts(self, batch: Mapping[str, Any]) -> Rollouts:
        sequences, rewards = self._sample(batch, self.test_rollouts)
        for name in ("ids", "mask", "actions", "logprobs", "owner"):
            setattr(sequences, name, getattr(sequences, name).cpu())
        skills = self.skills(batch) if self._skills_known() else torch.as_tensor(batch["skill"])
        index = torch.as_tensor(batch["index"])
        return Rollouts(rewards.cpu(), skills.cpu(), index.cpu(), sequences)

    def _skills_known(self) -> bool:
        return self.clusters is None or self.clusters.fitted

    def on_test_epoch_end(self) -> None:
        """Logs accuracies, and the table of the baselines."""
        values: dict[str, Tensor | float] = {}
        for name, metric in self.test_metrics.items():
            if metric.update_called:
                value = metric.compute()
                parts = value if isinstance(value, dict) else {name: value}
                values |= {k if k == name else f"test_{k}": v for k, v in parts.items()}
                metric.reset()
        values |= {f"test_{name}": value for name, value in self.baseline_table().items()}
        if self.errors[-1] > 0:
            means = (self.errors[:-1] / self.errors[-1]).tolist()
            values |= {f"test_training_mse_{k}": v for k, v in zip(MEASURED, means, strict=True)}
        self.log_dict(values)
        self._tested.clear()

    def baseline_table(self) -> dict[str, float]:
        """Errors of the baselines at this policy, and the scatter of the gradient.

        ``scpo`` has the history that training left, of which the last steps are a little older than
        the policy; ``scpo_alone`` has none. The same on all processes.
        """
        parts = [part for share in gathered(list(self._tested)) for part in share]
        if not parts or self.test_rollouts < VALUE_ROLLOUTS + max(2, self.group_size):
            return {}
        if self.group_size < 2:
            return {}  # the others need two rollouts
        rollouts = Rollouts.join(parts, self.policy.pad_id)
        prior = self.history.prior()
        prior = None if prior is None else prior.cpu()
        sizes = self.test_batch, self.group_size, self.n_skills
        errors = baseline_errors(
            rollouts, *sizes, {"": prior, "alone": None}, pseudo_count=self.pseudo_count
        )
        scatter = gradient_scatter(
            self.policy,
            rollouts,
            *sizes,
            prior,
            self.updates.temperature,
            pseudo_count=self.pseudo_count,
        )
        return {f"mse_{k}": v for k, v in errors.items()} | {
            f"gradient_{k}": v for k, v in scatter.items()
        }

    # -- use ---------------------------------------------------------------------------------

    def respond(self, questions: list[str], temperature: float = 0.0, **draws: Any) -> Rollout:
        """Responses, the likeliest tokens unless there is a temperature."""
        prompts = [self.policy.encode_prompt(q) for q in questions]
        return self.policy.generate(prompts, self.max_new_tokens, temperature, **draws)

    def _in_eval(self, make: Any) -> Any:
        with self.evaluating():
            return make()

    def predict(self, question: str | list[str]) -> list[dict[str, Any]]:
        """The likeliest answer to each question.

        Args:
            question: One or more.

        Returns:
            For each a dict: ``answer``, ``logprob`` in nats, and ``skill``, a number or -1.

        Raises:
            ZooError: For an empty question, or a word that the tiny policy does not know.
        """
        questions = [question] if isinstance(question, str) else list(question)
        for row, text in enumerate(questions):
            if not text.strip():
                raise ZooError(f"Question {row} is empty.")
        found: list[dict[str, Any]] = self._in_eval(lambda: self._answers(questions))
        return found

    def _answers(self, questions: list[str]) -> list[dict[str, Any]]:
        rollout = self.respond(questions)
        texts = self.policy.decode(rollout.rows())
        logprobs = rollout.logprobs.sum(dim=1).tolist()
        skills = [UNKNOWN] * len(questions)
        if (self.clusters is not None and self.clusters.fitted) or self.tagger is not None:
            known = self.skills({"question": questions})
            skills = (known if known.ndim == 1 else known.argmax(dim=1)).tolist()
        return [
            {"answer": a, "logprob": p, "skill": k}
            for a, p, k in zip(texts, logprobs, skills, strict=True)
        ]

    def solve(self, questions: list[str], n: int = 4, seed: int = 0) -> list[list[str]]:
        """Samples n answers to each question, at the temperature of training.

        Raises:
            ZooError: For a word that the tiny policy does not know.
        """
        repeated = [q for q in questions for _ in range(n)]
        generator = torch.Generator().manual_seed(seed)

        def sample() -> list[str]:
            rollout = self.respond(repeated, self.updates.temperature, generator=generator)
            return self.policy.decode(rollout.rows())

        texts = self._in_eval(sample)
        return [texts[i : i + n] for i in range(0, len(texts), n)]

    def predict_step(self, batch: Mapping[str, Any], batch_idx: int) -> list[dict[str, Any]]:
        """The likeliest answer to each question of a file, by name."""
        questions = list(batch["question"])
        return [
            {"name": name, "question": question, **answer}
            for name, question, answer in zip(
                batch["name"], questions, self._answers(questions), strict=True
            )
        ]

    def write_prediction(self, prediction: Mapping[str, Any], path: Path) -> list[Path]:
        """Writes ``<name>.json``: question, answer, log-probability and skill."""
        path = path.with_name(f"{path.name}.json")
        write_json(path, dict(prediction))
        return [path]

    def figures(self, batch: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Figure]:
        """Accuracy by skill; in the test also estimates against values."""
        from zoo.scpo.figure import accuracy_by_skill, estimates

        labels = torch.as_tensor(batch["skill"])
        found = {
            "accuracy": accuracy_by_skill(outputs["right"].cpu(), labels.cpu(), self.skill_names)
        }
        enough = VALUE_ROLLOUTS + self.group_size
        if "rewards" in outputs and self.test_rollouts >= enough and self.group_size > 1:
            rewards = outputs["rewards"].cpu()
            few = rewards[:, VALUE_ROLLOUTS:enough]
            baselines = {
                "RLOO": estimate_baselines(few, baseline="rloo"),
                "global": estimate_baselines(few, baseline="global"),
                "SCPO": estimate_baselines(few, labels.cpu(), "scpo", self.n_skills),
            }
            value = rewards[:, :VALUE_ROLLOUTS].mean(dim=1)
            found["baselines"] = estimates(value, baselines)
        return found

"""What methods share that train a language-model policy: demonstrations first, then rewards."""

from __future__ import annotations

import copy
import math
import time
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from zoo.agents.losses import aggregate, aggregate_count, clipped_surrogate, kl_k3
from zoo.agents.policy import CausalPolicy, PolicyArgs, pad_rows
from zoo.agents.rollout import Sequences
from zoo.base import ZooModule
from zoo.distributed import step_generator, sum_over_ranks, world_size
from zoo.errors import ZooError
from zoo.stages import Stage

if TYPE_CHECKING:
    from lightning.pytorch.core.optimizer import LightningOptimizer

BETAS = (0.9, 0.95)
WARMUP = 10  # updates
SFT_FINAL = 0.1  # of the peak learning rate, at the end of the demonstrations


@dataclass
class Experience:
    """What one step of reinforcement learns from.

    Attributes:
        sequences: Of all trajectories.
        advantage: Of each trajectory, shape (N,), or of each token of each sequence, shape (B, T).
        logs: Means over this process's trajectories, to log: ``reward``, ``success`` and others.
        group: Number of each trajectory's task, for the aggregation by group. Shape: (N,).
    """

    sequences: Sequences
    advantage: Tensor
    logs: dict[str, Tensor | float] = field(default_factory=dict)
    group: Tensor | None = None


@dataclass(frozen=True)
class Updates:
    """How the policy is updated.

    Attributes:
        epochs: Passes over a step's rollouts.
        minibatches: Updates a pass.
        micro_batch: Sequences of one backward pass; ``None`` for all of a minibatch.
        grad_clip: Largest norm of the gradient.
        clip_low: Width of the ratio's clip below 1.
        clip_high: Above 1.
        kl: Weight of the k3 divergence from the policy that reinforcement began with.
        how: "token", "sequence" or "group": what counts alike in the loss.
        temperature: Of the rollouts, and of their log-probabilities.
    """

    epochs: int = 1
    minibatches: int = 1
    micro_batch: int | None = None
    grad_clip: float = 1.0
    clip_low: float = 0.2
    clip_high: float = 0.2
    kl: float = 0.0
    how: str = "token"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        for name in ("epochs", "minibatches", "micro_batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ZooError(f"{name}={value} must be at least 1.")
        for name in ("grad_clip", "clip_low", "clip_high", "temperature"):
            if getattr(self, name) <= 0:
                raise ZooError(f"{name}={getattr(self, name)} must be positive.")
        if self.kl < 0:
            raise ZooError(f"kl={self.kl} must not be negative.")
        if self.how == "group" and self.micro_batch is not None:
            raise ZooError("micro_batch would split groups: it needs how='token' or 'sequence'.")


class PolicyModule(ZooModule):
    """Base of methods that train a :class:`~zoo.agents.policy.CausalPolicy`.

    A subclass calls :meth:`setup_policy` in its ``__init__`` and implements :meth:`experience`.
    Training has two stages: "sft" imitates the batch's ``demonstrations``, or its trajectories
    (``input_ids``, ``attention_mask`` and ``actions``); "rl" learns from rollouts of the batch's
    tasks. It steps its optimiser itself, since one batch of tasks gives
    several updates; so ``gradient_clip_val`` of the trainer is ``grad_clip`` here.
    """

    optimizer_config: Mapping[str, Any] = {
        "class_path": "torch.optim.AdamW",
        "init_args": {"lr": 3e-4, "betas": BETAS, "weight_decay": 0.0},
    }
    lr_scheduler_config: Mapping[str, Any] | None = {
        "class_path": "torch.optim.lr_scheduler.LinearLR",
        "init_args": {"start_factor": 1 / WARMUP, "total_iters": WARMUP},
        "interval": "step",
    }

    def setup_policy(
        self,
        policy: PolicyArgs | Mapping[str, Any] | None,
        updates: Updates,
        sft_steps: int,
        sft_lr: float,
        rl_steps: int | None,
    ) -> None:
        """Builds the policy, and the stages of training.

        Args:
            policy: Which model.
            updates: How it is updated.
            sft_steps: Updates on demonstrations; 0 for none.
            sft_lr: Their peak learning rate.
            rl_steps: Updates on rollouts; 0 for none, ``None`` for the rest of the training.
        """
        self.automatic_optimization = False
        args = PolicyArgs.of(policy)
        self.policy = CausalPolicy(args, fetch=self.fetch_weights(True))
        self.updates = updates
        train = [f"policy.{name}".rstrip(".") for name in self.policy.trainable()]
        stages = []
        if sft_steps:
            optimizer = {
                "class_path": "torch.optim.AdamW",
                "init_args": {"lr": sft_lr, "betas": BETAS, "weight_decay": 0.01},
            }
            schedule = {
                "class_path": "zoo.optim.schedule.WarmupCosineLR",
                "init_args": {
                    "total_steps": max(sft_steps, 2),
                    "warmup_steps": min(WARMUP, sft_steps // 2),
                    "final": SFT_FINAL,
                },
                "interval": "step",
            }
            last = sft_steps if rl_steps != 0 else None
            stages.append(Stage("sft", train, last, optimizer, schedule))
        if rl_steps != 0:
            stages.append(Stage("rl", train, rl_steps))
        if not stages:
            raise ZooError("sft_steps=0 and rl_steps=0: nothing would be trained.")
        self.training_stages = tuple(stages)
        self._reference: list[CausalPolicy] = []  # hidden: neither trained nor published

    def frozen_modules(self) -> tuple[str, ...]:
        """All of the policy but its adapters, if it has any."""
        return tuple(f"policy.{name}" for name in self.policy.frozen())

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Logits of the next token.

        Args:
            input_ids: Shape: (B, T), int64.
            attention_mask: 1 on tokens, 0 on padding on either side. Shape: (B, T).

        Returns:
            Shape: (B, T, V).
        """
        logits: Tensor = self.policy(input_ids, attention_mask)
        return logits

    def example_inputs(self) -> dict[str, Tensor]:
        """Two rows of the first ids, the second padded on its left."""
        size = self.policy.base.config.vocab_size
        ids = torch.arange(12).view(2, 6) % size
        mask = torch.ones_like(ids)
        mask[1, :2] = 0
        return {"input_ids": ids, "attention_mask": mask}

    # -- what a method says ------------------------------------------------------------------

    @abstractmethod
    def experience(self, batch: Mapping[str, Any], generator: torch.Generator) -> Experience:
        """Rolls the policy out on the batch's tasks, without gradient and in eval mode."""

    def demonstrations(self, batch: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """Prompts and replies to imitate: ``batch["demonstrations"]`` as the loader collates it."""
        shown = batch["demonstrations"]
        pairs = [
            pair
            for columns in zip(shown["question"], shown["answer"], strict=True)
            for pair in zip(*columns, strict=True)
        ]
        return [q for q, _ in pairs], [a for _, a in pairs]

    def extra_loss(
        self, part: Sequences, experience: Experience, rows: Tensor, now: Tensor, count: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]] | None:
        """A method's own term, added to the surrogate of a part of the sequences.

        Args:
            part: They; where this process has none, one row without actions.
            experience: Of the step.
            rows: Their numbers in it.
            now: Log-probabilities of their actions, with gradient. Shape: (B, T).
            count: What the surrogate divides by, over all micro-batches and processes.

        Returns:
            The term, and what to log, or ``None`` for no term.
        """
        return None

    # -- training ----------------------------------------------------------------------------

    def training_step(self, batch: Mapping[str, Any], batch_idx: int) -> Tensor:
        """One update on demonstrations, or rollouts and the updates on them.

        Returns:
            The last update's loss. Its gradient has been used, and stays in the parameters until
            the next update.
        """
        loss = self._imitate(batch) if self.stage.name == "sft" else self._reinforce(batch)
        self.log("train_loss", loss, prog_bar=True, batch_size=1)
        return loss

    def _imitate(self, batch: Mapping[str, Any]) -> Tensor:
        if "input_ids" in batch:  # of TrajectoryDataModule
            ids, mask = batch["input_ids"], batch["attention_mask"]
            used = mask.any(dim=0)
            ids, mask, wanted = ids[:, used], mask[:, used], batch["actions"][:, used]
            loss = aggregate(-self.policy.token_logprobs(ids, mask, wanted).values, wanted)
        else:
            loss = self.imitation_loss(*self.demonstrations(batch))
        self._update([lambda: loss])
        return loss.detach()

    def imitation_loss(self, questions: list[str], answers: list[str]) -> Tensor:
        """Mean negative log-likelihood of the replies' tokens."""
        policy = self.policy
        prompts = [policy.encode_prompt(q) for q in questions]
        replies = [policy.encode_reply(a) for a in answers]
        rows = [[*p, *r] for p, r in zip(prompts, replies, strict=True)]
        longest = max(range(len(rows)), key=lambda i: len(rows[i]))
        if len(rows[longest]) > policy.max_context:
            raise ZooError(
                f"The demonstration '{questions[longest][:60]}' has {len(rows[longest])} tokens: "
                f"policy.max_context is {policy.max_context}."
            )
        ids, mask = pad_rows(rows, policy.pad_id, self.device)
        begin = torch.tensor([len(p) for p in prompts], device=self.device)
        wanted = (torch.arange(ids.shape[1], device=self.device) >= begin[:, None]) & mask.bool()
        found = policy.token_logprobs(ids, mask, wanted)
        return aggregate(-found.values, wanted)

    def _reinforce(self, batch: Mapping[str, Any]) -> Tensor:
        self.remember_reference()
        started = time.perf_counter()
        training = self.policy.training
        self.policy.eval()
        with torch.no_grad():
            experience = self.experience(batch, step_generator(self.trainer.global_step))
        self.policy.train(training)
        seconds = time.perf_counter() - started
        logs = dict(experience.logs)
        sequences = experience.sequences
        tokens = sequences.actions.sum()
        logs["response_len"] = tokens / max(1, len(experience.advantage))
        generator = step_generator(self.trainer.global_step + 2**31)
        loss = torch.zeros(())
        found: dict[str, Tensor | float] = {}
        for _ in range(self.updates.epochs):
            order = torch.randperm(len(sequences), generator=generator)
            for rows in order.tensor_split(self.updates.minibatches):
                loss, found = self._minibatch(experience, rows.to(self.device))
        self._log_means({**logs, **found})
        self.log("train_tokens_per_s", tokens * world_size() / seconds, batch_size=1)
        return loss

    def _minibatch(
        self, experience: Experience, rows: Tensor
    ) -> tuple[Tensor, dict[str, Tensor | float]]:
        how, size = self.updates.how, self.updates.micro_batch
        sequences = experience.sequences
        pieces = 1 if size is None else _most(math.ceil(len(rows) / size), self.device)
        groups = None if experience.group is None else experience.group[sequences.owner]
        count = aggregate_count(
            sequences.actions[rows], how, None if groups is None else groups[rows]
        )
        losses: list[Tensor] = []
        found: dict[str, Tensor] = {}

        def make(piece: Tensor) -> Any:
            def loss() -> Tensor:
                value, logs = self.policy_loss(experience, piece, count)
                for name, number in logs.items():
                    found[name] = found.get(name, 0) + number.detach()
                losses.append(value.detach())
                return value

            return loss

        norm = self._update([make(piece) for piece in rows.tensor_split(pieces)])
        return torch.stack(losses).sum(), {**found, "grad_norm": norm}

    def policy_loss(
        self, experience: Experience, rows: Tensor, count: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The clipped surrogate of some sequences, with the divergence from the reference.

        Args:
            experience: Of the step.
            rows: Which of its sequences; none gives a zero that depends on the parameters.
            count: What the loss divides by, over all micro-batches and processes.

        Returns:
            The loss, and what to log.
        """
        sequences, updates = experience.sequences, self.updates
        nothing = len(rows) == 0  # this process has fewer than the others, who must not wait
        if nothing:
            rows = torch.zeros(1, dtype=torch.long, device=self.device)
        part = sequences[rows]
        if nothing:
            part.actions = torch.zeros_like(part.actions)
        advantage = experience.advantage
        if advantage.ndim == 1:
            advantage = advantage[part.owner]
        else:
            advantage = advantage[rows][:, sequences.mask[rows].any(dim=0)]
        groups = None if experience.group is None else experience.group[part.owner]
        now = self.policy.token_logprobs(
            part.ids, part.mask, part.actions, updates.temperature, entropy=True
        )
        surrogate = clipped_surrogate(
            now.values,
            part.logprobs,
            advantage,
            part.actions,
            updates.clip_low,
            updates.clip_high,
            updates.how,
            groups,
            count,
        )
        assert now.entropy is not None
        loss, tokens = surrogate.loss, part.actions.sum().clamp_min(1)
        share = part.actions.sum() * world_size() / count.clamp_min(1)
        if updates.how != "token":
            share = share.new_tensor(len(rows) * world_size()) / count.clamp_min(1)
        logs = {
            "clip_frac": surrogate.clipped * share,
            "entropy": now.entropy.detach().sum() / tokens * share,
        }
        if updates.kl > 0:
            reference = self.reference_logprobs(part)
            kl = aggregate(kl_k3(now.values, reference), part.actions, updates.how, groups, count)
            loss, logs["kl"] = loss + updates.kl * kl, kl
        extra = self.extra_loss(part, experience, rows, now.values, count)
        if extra is not None:
            loss, logs = loss + extra[0], {**logs, **extra[1]}
        return loss, logs

    def _update(self, losses: list[Any]) -> Tensor:
        """One optimiser step on the sum of losses, each computed when its turn comes."""
        optimizer = cast("LightningOptimizer", self.optimizers())
        optimizer.zero_grad()
        for number, loss in enumerate(losses):
            with nullcontext() if number + 1 == len(losses) else self._without_sync():
                self.manual_backward(loss())
        weights = [p for p in self.parameters() if p.requires_grad]
        norm = torch.nn.utils.clip_grad_norm_(weights, self.updates.grad_clip)
        optimizer.step()
        self._step_schedules("step")
        return norm

    def _without_sync(self) -> AbstractContextManager[Any]:
        wrapped = self.trainer.strategy.model
        return wrapped.no_sync() if isinstance(wrapped, DistributedDataParallel) else nullcontext()

    def _step_schedules(self, interval: str) -> None:
        for config in self.trainer.lr_scheduler_configs:
            if config.interval == interval:
                config.scheduler.step()  # type: ignore[call-arg]

    def on_train_epoch_end(self) -> None:
        """Steps schedules by the epoch."""
        self._step_schedules("epoch")

    def _log_means(self, values: Mapping[str, Tensor | float]) -> None:
        """Logs the means over processes as ``train_<name>``, in one exchange."""
        numbers = torch.stack(
            [torch.as_tensor(v, dtype=torch.float32).cpu() for v in values.values()]
        )
        means = sum_over_ranks(numbers.to(self.device)) / world_size()
        for name, value in zip(values, means, strict=True):
            self.log(f"train_{name}", value, batch_size=1)

    # -- the reference policy ----------------------------------------------------------------

    def remember_reference(self) -> None:
        """Keeps a copy of the policy as it is, if a divergence from it is asked for."""
        if self.updates.kl > 0 and not self._reference and self.policy.args.lora is None:
            self._reference.append(copy.deepcopy(self.policy).requires_grad_(False).eval())

    @torch.no_grad()
    def reference_logprobs(self, part: Sequences) -> Tensor:
        """Under the policy that reinforcement began with; under adapters, their base."""
        policy = self.policy
        if self.policy.args.lora is None:
            policy = self._reference[0].to(self.device)
        with policy.adapters_off():
            found = policy.token_logprobs(
                part.ids, part.mask, part.actions, self.updates.temperature
            )
        return found.values

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keeps the reference beside the weights, for a run that goes on."""
        super().on_save_checkpoint(checkpoint)
        if self._reference:
            checkpoint["reference"] = self._reference[0].state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Takes the reference back."""
        super().on_load_checkpoint(checkpoint)
        if "reference" in checkpoint:
            self._reference.clear()
            self.remember_reference()
            for reference in self._reference:
                reference.load_state_dict(checkpoint["reference"])


def _most(number: int, device: torch.device) -> int:
    """The largest over all processes, which must make as many backward passes as each other."""
    if world_size() == 1:
        return number
    most = torch.tensor(number, device=device)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return int(most)

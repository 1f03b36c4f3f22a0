"""How good are the baselines at the policy as it is? Their errors, and the gradient's scatter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from zoo.agents.losses import Prior, aggregate
from zoo.agents.policy import CausalPolicy
from zoo.agents.rollout import Sequences
from zoo.distributed import sum_over_ranks
from zoo.reproducible import generator
from zoo.scpo.baseline import BASELINES, PSEUDO_COUNT, estimate_baselines

VALUE_ROLLOUTS = 32  # of the prompt's value; the others are what baselines are made of
MEASURED = ("rloo", "global", "scpo", "scpo_alone")  # in training; the last without history
UNBIASED = ("rloo", "global", "scpo")  # group means scale the gradient


@dataclass
class Rollouts:
    """Many rollouts of each of N prompts.

    Attributes:
        rewards: Shape: (N, R).
        skills: Labels (N,) or weights (N, K).
        index: Number of each prompt, which orders them. Shape: (N,).
        sequences: N * R of them, the R of a prompt beside each other.
    """

    rewards: Tensor
    skills: Tensor
    index: Tensor
    sequences: Sequences

    @classmethod
    def join(cls, parts: list[Rollouts], pad_id: int) -> Rollouts:
        """Those of several batches, or processes, in the order of the prompts, each once."""
        index = torch.cat([p.index for p in parts])
        unique, where = torch.unique(index, return_inverse=True)
        first = torch.full_like(unique, len(index)).scatter_reduce(
            0, where, torch.arange(len(index)), "amin"
        )
        rewards = torch.cat([p.rewards for p in parts])[first]
        width = max(p.sequences.ids.shape[1] for p in parts)
        rows = (first[:, None] * rewards.shape[1] + torch.arange(rewards.shape[1])).flatten()
        fill = {"ids": pad_id}
        columns = {
            name: torch.cat(
                [
                    torch.nn.functional.pad(
                        getattr(p.sequences, name),
                        (0, width - p.sequences.ids.shape[1]),
                        value=fill.get(name, 0),
                    )
                    for p in parts
                ]
            )[rows]
            for name in ("ids", "mask", "actions", "logprobs")
        }
        return cls(
            rewards,
            torch.cat([p.skills for p in parts])[first],
            unique,
            Sequences(**columns, owner=torch.arange(len(rows))),
        )

    def batches(self, size: int, group: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Prompts and columns of batches as in training, without end, equal for equal rollouts.

        Each pass shuffles the prompts anew and takes the next ``group`` of the rollouts that the
        values are not made of.
        """
        draws = generator(len(self.rewards), size)
        spare = (self.rewards.shape[1] - VALUE_ROLLOUTS) // group
        number = 0
        while True:
            start = VALUE_ROLLOUTS + group * (number % spare)
            order = torch.randperm(len(self.rewards), generator=draws)
            for rows in torch.split(order, size):
                if len(rows) == min(size, len(order)):
                    yield rows, torch.arange(start, start + group)
            number += 1


def errors_in_training(
    rewards: Tensor,
    skills: Tensor,
    n_skills: int,
    prior: Prior | None,
    pseudo_count: float = PSEUDO_COUNT,
) -> Tensor:
    """Squared errors of :data:`MEASURED` on a step's own rewards, summed over its rollouts.

    A baseline that does not depend on r has E (r - b)^2 = (b - v)^2 + Var r, and the variance
    within prompts estimates the last term without bias: so their difference estimates the error
    against the values v, which nobody knows. Single steps may give less than 0.

    Args:
        rewards: Shape: (P, n), n >= 2.
        skills: Labels (P,) or weights (P, K).
        n_skills: K.
        prior: Of earlier steps.
        pseudo_count: See :func:`~zoo.scpo.baseline.estimate_baselines`.

    Returns:
        One for each of :data:`MEASURED`, and the number of rollouts. Shape: (5,).
    """
    variance = rewards.var(dim=1).sum() * rewards.shape[1]
    sums = []
    for name in MEASURED:
        past = None if name.endswith("_alone") else prior
        baseline = estimate_baselines(
            rewards,
            skills,
            name.removesuffix("_alone"),
            n_skills,
            past,
            pseudo_count=pseudo_count,
            reduce=sum_over_ranks,
        )
        sums.append((rewards - baseline).square().sum() - variance)
    return torch.stack([*sums, rewards.new_tensor(rewards.numel())])


def baseline_errors(
    rollouts: Rollouts,
    batch_size: int,
    group_size: int,
    n_skills: int,
    priors: dict[str, Prior | None],
    pseudo_count: float = PSEUDO_COUNT,
) -> dict[str, float]:
    """Mean squared error of each baseline against the prompt's value.

    The value is the mean of 32 other rollouts; its own sampling variance is taken off, so that a
    perfect baseline has an error of 0.

    Args:
        rollouts: At least 32 + ``group_size`` of each prompt.
        batch_size: P of the batches that baselines see.
        group_size: n.
        n_skills: K.
        priors: By name of a variant of "scpo", what earlier steps of training said.
        pseudo_count: See :func:`~zoo.scpo.baseline.estimate_baselines`.

    Returns:
        By baseline, and by variant as ``scpo_<name>``; the plain "scpo" is without its suffix.
    """
    known = rollouts.rewards[:, :VALUE_ROLLOUTS]
    value, noise = known.mean(dim=1), known.var(dim=1).mean() / VALUE_ROLLOUTS
    spare = (rollouts.rewards.shape[1] - VALUE_ROLLOUTS) // group_size
    passes = spare * max(1, len(value) // batch_size)
    errors: dict[str, list[Tensor]] = {}
    for _, (rows, columns) in zip(
        range(passes), rollouts.batches(batch_size, group_size), strict=False
    ):
        rewards, skills = rollouts.rewards[rows][:, columns], rollouts.skills[rows]
        found = {
            name: estimate_baselines(rewards, baseline=name) for name in BASELINES if name != "scpo"
        }
        for name, prior in priors.items():
            found[f"scpo_{name}".rstrip("_")] = estimate_baselines(
                rewards, skills, "scpo", n_skills, prior, pseudo_count=pseudo_count
            )
        for name, baseline in found.items():
            off = baseline - value[rows, None]
            errors.setdefault(name, []).append(off.square().mean())
    return {name: float(torch.stack(e).mean() - noise) for name, e in errors.items()}


def gradient_scatter(
    policy: CausalPolicy,
    rollouts: Rollouts,
    batch_size: int,
    group_size: int,
    n_skills: int,
    prior: Prior | None,
    temperature: float = 1.0,
    batches: int = 16,
    pseudo_count: float = PSEUDO_COUNT,
) -> dict[str, float]:
    """Trace of the covariance of the policy gradient at fixed weights, by unbiased baseline.

    All baselines are given the same batches. Advantages are not normalised.
    """
    weights = [p for p in policy.parameters() if p.requires_grad]
    needed = [p.requires_grad for p in policy.parameters()]
    if not weights:  # a model that was loaded rather than trained
        weights = list(policy.parameters())
    per_prompt = rollouts.rewards.shape[1]
    found: dict[str, list[Tensor]] = {name: [] for name in UNBIASED}
    with torch.inference_mode(False), torch.enable_grad():
        for weight in weights:
            weight.requires_grad_(True)
        for _, (rows, columns) in zip(
            range(batches), rollouts.batches(batch_size, group_size), strict=False
        ):
            part = rollouts.sequences[(rows[:, None] * per_prompt + columns).flatten()]
            device = policy.device
            ids, mask, actions = (x.clone().to(device) for x in (part.ids, part.mask, part.actions))
            values = policy.token_logprobs(ids, mask, actions, temperature).values
            rewards = rollouts.rewards[rows][:, columns].clone()
            skills = rollouts.skills[rows].clone()
            for name in UNBIASED:
                baseline = estimate_baselines(
                    rewards, skills, name, n_skills, prior, pseudo_count=pseudo_count
                )
                advantage = (rewards - baseline).flatten().to(device)
                loss = aggregate(-values * advantage[:, None], actions)
                gradients = torch.autograd.grad(loss, weights, retain_graph=name != UNBIASED[-1])
                found[name].append(torch.cat([g.flatten() for g in gradients]).cpu())
        for weight, was in zip(policy.parameters(), needed, strict=True):
            weight.requires_grad_(was)
    return {name: float(torch.stack(g).var(dim=0).sum()) for name, g in found.items()}

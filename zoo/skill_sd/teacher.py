"""The teacher: earlier weights of the same model, which read a skill before the plain prompt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from zoo.agents.policy import CausalPolicy, pad_rows
from zoo.agents.rollout import Sequences
from zoo.errors import ZooError

DECAY = 0.9  # of the moving average


def trained_parameters(policy: CausalPolicy) -> dict[str, nn.Parameter]:
    """What distinguishes the teacher from the student: all weights, or the adapters' alone."""
    places = tuple(f"{name}." if name else "" for name in policy.trainable())
    return {name: p for name, p in policy.named_parameters() if name.startswith(places)}


class Teacher:
    """A copy of the trained weights, put in their place while the teacher acts or judges.

    There is no second model: no parameter of it that an optimiser or DDP could find, and under
    adapters no second base in memory. Its weights lie in checkpoints under their own key, and are
    not published.
    """

    def __init__(self) -> None:
        self.weights: dict[str, Tensor] = {}

    def __bool__(self) -> bool:
        return bool(self.weights)

    @torch.no_grad()
    def candidate(self, policy: CausalPolicy, decay: float = 0.0) -> dict[str, Tensor]:
        """What the teacher would become: the student, or ``decay`` of itself and the rest of it."""
        found = {}
        for name, parameter in trained_parameters(policy).items():
            now = parameter.detach().clone()
            if decay and self.weights:
                now.lerp_(self.weights[name].to(now), decay)
            found[name] = now
        return found

    @contextmanager
    def acting(
        self, policy: CausalPolicy, weights: Mapping[str, Tensor] | None = None
    ) -> Iterator[None]:
        """Inside, the policy has the teacher's weights, or others; it takes no gradient then."""
        weights = self.weights if weights is None else weights
        parameters = trained_parameters(policy)
        own = {name: parameter.data for name, parameter in parameters.items()}
        try:
            for name, parameter in parameters.items():
                parameter.data = weights[name].to(parameter.data)
            yield
        finally:
            for name, parameter in parameters.items():
                parameter.data = own[name]


class Judged(NamedTuple):
    """Sequences as the teacher reads them.

    Attributes:
        ids: Shape: (B, T').
        mask: 1 on tokens. Shape: (B, T').
        actions: The student's tokens. Shape: (B, T'), bool.
    """

    ids: Tensor
    mask: Tensor
    actions: Tensor


def with_openings(
    sequences: Sequences,
    plain: Sequence[Sequence[int]],
    skilled: Sequence[Sequence[int]],
    pad_id: int,
) -> Judged:
    """Sequences with another first prompt; all after it stays as it was.

    Args:
        sequences: Padded on the right.
        plain: The first prompt of each, with which it begins.
        skilled: What to put in its place.
        pad_id: Of the padding.

    Raises:
        ZooError: If a sequence does not begin with its plain prompt: teacher and student would be
            misaligned.
    """
    device = sequences.ids.device
    old, old_mask = pad_rows(plain, pad_id, device)
    new, new_mask = pad_rows(skilled, pad_id, device)
    before, after = old_mask.sum(dim=1), new_mask.sum(dim=1)  # (B,)
    begin = sequences.ids[:, : old.shape[1]]
    same = (begin == old[:, : begin.shape[1]]) | ~old_mask[:, : begin.shape[1]].bool()
    if begin.shape[1] < old.shape[1] or not bool((same.all(dim=1) & sequences.mask[:, 0]).all()):
        raise ZooError(
            "Token misalignment: a sequence does not begin with its plain prompt, so the teacher "
            "would judge other tokens than the student's."
        )
    lengths = sequences.mask.sum(dim=1) - before + after
    place = torch.arange(int(lengths.max()), device=device)[None]  # (1, T')
    source = (place - after[:, None] + before[:, None]).clamp(0, sequences.ids.shape[1] - 1)
    opening = place < after[:, None]
    there = place < lengths[:, None]
    first = new.gather(1, place.clamp_max(new.shape[1] - 1).expand(len(new), -1))
    ids = torch.where(opening, first, sequences.ids.gather(1, source))
    actions = sequences.actions.gather(1, source) & ~opening & there
    return Judged(ids.masked_fill(~there, pad_id), there.long(), actions)


@torch.no_grad()
def judge(
    policy: CausalPolicy,
    sequences: Sequences,
    plain: Sequence[Sequence[int]],
    skilled: Sequence[Sequence[int]],
    temperature: float,
    micro_batch: int | None = None,
) -> Tensor:
    """The log-probabilities of the student's tokens after the skilled prompts, without gradient.

    Tokens are matched by their number among the agent's own, since the prompts differ in length;
    rows of like length are padded together.

    Args:
        policy: With the teacher's weights, in eval mode.
        sequences: The student's.
        plain: Its first prompts.
        skilled: The teacher's.
        temperature: Of the rollouts: of both alike.
        micro_batch: Rows at a time; ``None`` for all.

    Returns:
        Shape: (B, T) of the sequences, 0 where the student did not act.

    Raises:
        ZooError: If the teacher's tokens are not the student's, or a skill leaves no room for them.
    """
    judged = with_openings(sequences, plain, skilled, policy.pad_id)
    longest = int(judged.mask.sum(dim=1).max())
    limit = getattr(policy.base.config, "max_position_embeddings", longest)
    if longest > limit:
        raise ZooError(
            f"With its skill a trajectory has {longest} tokens: the model reads {limit} at most."
        )
    values = torch.zeros(judged.ids.shape, device=judged.ids.device)
    order = judged.mask.sum(dim=1).argsort(descending=True)
    for rows in torch.split(order, micro_batch or len(order)):
        part = [x[rows] for x in judged]
        width = int(part[1].sum(dim=1).max())
        ids, mask, actions = (x[:, :width] for x in part)
        values[rows, :width] = policy.token_logprobs(ids, mask, actions, temperature).values
    if not torch.equal(judged.ids[judged.actions], sequences.ids[sequences.actions]):
        raise ZooError("Token misalignment: the teacher judged other tokens than the student's.")
    blank = torch.zeros(sequences.ids.shape, device=values.device)
    return blank.masked_scatter(sequences.actions, values[judged.actions])

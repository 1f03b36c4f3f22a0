"""What sampling gives and training takes: tokens, their log-probabilities, and whose they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from zoo.agents.policy import pad_rows


class Rollout(NamedTuple):
    """Responses, of one turn.

    Attributes:
        tokens: What was sampled, the one that ends the response among them. Shape: (B, T), int64.
        logprobs: Of the temperature-scaled distribution, 0 where masked. Shape: (B, T), float32.
        mask: Which tokens are there. Shape: (B, T), bool.
        ended: Whether the response ended by itself rather than at the limit. Shape: (B,), bool.
    """

    tokens: Tensor
    logprobs: Tensor
    mask: Tensor
    ended: Tensor

    def rows(self) -> list[list[int]]:
        """The tokens of each response."""
        lengths = self.mask.sum(dim=1).tolist()
        return [row[:n] for row, n in zip(self.tokens.tolist(), lengths, strict=True)]


@dataclass
class Sequences:
    """Token sequences to train on; of one trajectory there are several if its context was cut.

    Attributes:
        ids: Shape: (B, T), int64.
        mask: 1 on tokens, 0 on padding. Shape: (B, T), int64.
        actions: Tokens that the agent sampled; never prompts or observations. Shape: (B, T), bool.
        logprobs: When they were sampled; 0 elsewhere. Shape: (B, T), float32.
        owner: Number of the trajectory that each sequence is of. Shape: (B,), int64.
    """

    ids: Tensor
    mask: Tensor
    actions: Tensor
    logprobs: Tensor
    owner: Tensor

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, rows: Tensor | slice) -> Sequences:
        """Some of the sequences, without columns that are padding in all of them."""
        part = [x[rows] for x in (self.ids, self.mask, self.actions, self.logprobs)]
        used = part[1].any(dim=0)
        ids, mask, actions, logprobs = (x[:, used] for x in part)
        return Sequences(ids, mask, actions, logprobs, self.owner[rows])

    @classmethod
    def of(cls, prompts: Sequence[Sequence[int]], rollout: Rollout, pad_id: int) -> Sequences:
        """Prompts and their responses, one trajectory each."""
        ids, mask = pad_rows(prompts, pad_id, rollout.tokens.device, left=True)
        return cls(
            torch.cat([ids, rollout.tokens], dim=1),
            torch.cat([mask, rollout.mask.long()], dim=1),
            torch.cat([torch.zeros_like(mask, dtype=torch.bool), rollout.mask], dim=1),
            torch.cat([torch.zeros_like(mask, dtype=torch.float32), rollout.logprobs], dim=1),
            torch.arange(len(ids), device=ids.device),
        )

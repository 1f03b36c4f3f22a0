"""Where the skills of prompts come from, if the data do not say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.cluster.vq import kmeans2
from torch import Tensor, nn

from zoo.agents.llm import ClientArgs
from zoo.agents.policy import CausalPolicy, pad_rows
from zoo.errors import ZooError, did_you_mean

SOURCES = ("label", "cluster", "llm")
DIMENSIONS = 64  # of the embeddings that are kept
RARE = 1e-3  # a of a / (a + p): frequent words say little of what is asked
RESTARTS = 8


class ClusterSkills(nn.Module):
    """Skills by k-means on mean-pooled embeddings of the questions.

    A question's embedding is the mean over its tokens of the policy's input embeddings, each with
    the weight a / (a + p) of its frequency p (smooth inverse frequency: Arora et al., ICLR 2017),
    on the questions' principal axes. They are taken once, at the first call, and stay as they were
    while the policy changes.

    Args:
        policy: Whose embeddings.
        n_skills: K.
    """

    table: Tensor
    centres: Tensor
    scale: Tensor

    def __init__(self, policy: CausalPolicy, n_skills: int) -> None:
        super().__init__()
        rows, width = policy.base.get_input_embeddings().weight.shape
        self.n_skills, self._policy = n_skills, [policy]  # hidden: it is another's submodule
        self.register_buffer("table", torch.zeros(rows, min(DIMENSIONS, width)))
        self.register_buffer("centres", torch.zeros(n_skills, min(DIMENSIONS, width)))
        self.register_buffer("scale", torch.zeros(()))

    @property
    def fitted(self) -> bool:
        """Whether there are clusters."""
        return bool(self.scale > 0)

    @torch.no_grad()
    def fit(self, policy: CausalPolicy, questions: Sequence[str], seed: int = 0) -> None:
        """Finds the clusters of training questions; equal on all processes for equal weights.

        Raises:
            ZooError: If there are fewer questions than clusters.
        """
        if len(questions) < self.n_skills:
            raise ZooError(
                f"{len(questions)} training questions can't be in n_skills={self.n_skills} "
                "clusters."
            )
        weight = policy.base.get_input_embeddings().weight.detach().float()
        ids, mask = self._tokens(questions)
        counts = torch.bincount(ids[mask.bool()], minlength=len(weight)).float()
        frequency = counts / counts.sum()
        weighted = weight * (RARE / (RARE + frequency))[:, None]
        pooled = _mean(weighted, ids, mask)
        axes = torch.linalg.svd(pooled - pooled.mean(dim=0), full_matrices=False)[2]
        axes = axes[: self.table.shape[1]]
        self.table.zero_()
        self.table[:, : len(axes)] = weighted @ axes.mT
        features = _mean(self.table, ids, mask).double().cpu().numpy()
        best = np.inf
        for restart in range(RESTARTS):
            centres, label = kmeans2(
                features, self.n_skills, minit="++", rng=np.random.default_rng([seed, restart])
            )
            spread = float(np.square(features - centres[label]).sum(axis=1).mean())
            if spread < best and len(np.unique(label)) == self.n_skills:
                best = spread
                self.centres.copy_(torch.from_numpy(centres))
        if not np.isfinite(best):
            raise ZooError(f"The questions do not fall into n_skills={self.n_skills} clusters.")
        self.scale.fill_(max(best, 1e-8))

    def forward(self, questions: Sequence[str]) -> Tensor:
        """Weights softmax(-d^2 / T), T being the mean d^2 in a cluster. Shape: (B, K)."""
        ids, mask = self._tokens(questions)
        features = _mean(self.table, ids, mask)
        distance = (features[:, None] - self.centres).square().sum(dim=2)
        return torch.softmax(-distance / self.scale, dim=1)

    def _tokens(self, questions: Sequence[str]) -> tuple[Tensor, Tensor]:
        policy = self._policy[0]
        rows = [policy.encode_prompt(q) for q in questions]
        return pad_rows(rows, policy.pad_id, self.table.device)


def _mean(table: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
    """Mean of the tokens' rows of a table. Shape: (V, D), (B, T), (B, T) to (B, D)."""
    weights = mask.float() / mask.sum(dim=1, keepdim=True).clamp_min(1)
    return torch.einsum("btd,bt->bd", table[ids], weights)


class SkillTagger:
    """Skills by asking a language model once for each question.

    Args:
        args: Which one.
        names: The skills that it chooses from.
        client: Another one, that has ``chat_batch``; ``None`` makes that of ``args``.
    """

    def __init__(self, args: ClientArgs, names: Sequence[str], client: Any = None) -> None:
        self.args, self.names, self._client = args, list(names), client
        self.known: dict[str, int] = {}

    @property
    def client(self) -> Any:
        """Made at the first question."""
        if self._client is None:
            self._client = self.args.client()
        return self._client

    def __call__(self, questions: Sequence[str]) -> Tensor:
        """The number of each question's skill. Shape: (B,), int64.

        Raises:
            ZooError: If the model's answer is none of the skills.
        """
        new = sorted(set(questions) - set(self.known))
        if new:
            from zoo.agents.llm import Request

            asked = [
                Request([{"role": "user", "content": self._ask(question)}], max_tokens=16)
                for question in new
            ]
            for question, replies in zip(new, self.client.chat_batch(asked), strict=True):
                self.known[question] = self._number(question, replies[0].text)
        return torch.tensor([self.known[q] for q in questions])

    def _ask(self, question: str) -> str:
        return (
            "Which one skill does this problem need most? Answer with one of these words and "
            f"nothing else: {', '.join(self.names)}.\n\n{question}"
        )

    def _number(self, question: str, reply: str) -> int:
        name = reply.strip().strip(".").lower()
        for number, known in enumerate(self.names):
            if known.lower() == name:
                return number
        raise ZooError(
            f"The tagger called the skill of '{question[:60]}' '{reply[:60]}': expected one of "
            f"{', '.join(self.names)}.{did_you_mean(name, self.names)}"
        )

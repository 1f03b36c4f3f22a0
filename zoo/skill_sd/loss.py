"""Distillation on the student's own tokens: the gradient of the reverse KL, in two forms.

With ls, lo and lt the log-probabilities of a sampled token under the student, the policy that
sampled it and the teacher, rho = exp(ls - lo) and d = lt - ls:

    grad (rho k3) = rho (e^d - d - 1) grad ls + rho (1 - e^d) grad ls = rho (ls - lt) grad ls,

whose mean over the behaviour policy's samples is the gradient of KL(student || teacher); k3 without
rho has (1 - e^d) grad ls, the gradient of another objective (arXiv 2604.10674).
"""

from __future__ import annotations

import torch
from torch import Tensor

from zoo.agents.losses import iw_reverse_kl, kl_k3

FORMS = ("centred", "iw_k3", "k3")
LIMIT = 5.0  # of rho
CLAMP = 10.0  # of |d| in the centred form


def leave_one_out(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of the others at the same position among the agent's tokens; 0 where there is none.

    A row's own value would bias a baseline: it depends on the token whose score it multiplies.

    Args:
        values: Shape: (B, T).
        mask: Which count: the agent's tokens. Shape: (B, T), bool.
    """
    place = (mask.cumsum(dim=1) - 1).clamp_min(0)  # (B, T)
    size = values.shape[1]
    kept = values.masked_fill(~mask, 0).flatten()
    sums = kept.new_zeros(size).index_add(0, place.flatten(), kept)
    counts = kept.new_zeros(size).index_add(0, place.flatten(), mask.flatten().to(kept))
    others = (counts[place] - 1).clamp_min(0)
    mean = (sums[place] - values) / others.clamp_min(1)
    return mean.masked_fill(~mask | (others == 0), 0)


def distillation(
    ls: Tensor, lo: Tensor, lt: Tensor, mask: Tensor, form: str = "centred", limit: float = LIMIT
) -> Tensor:
    """What is added to a loss for each token.

    Args:
        ls: Of the student, with gradient. Shape: (B, T).
        lo: When the tokens were sampled. Shape: (B, T).
        lt: Of the teacher, without gradient. Shape: (B, T).
        mask: The agent's tokens that a teacher has judged. Shape: (B, T), bool.
        form: "iw_k3", rho k3, the paper's. "centred", -rho (d - mean of the others' d), where d and
            the mean are constants: the same expected gradient, since a baseline that does not
            depend on the token changes none, with less variance; its value is no divergence.
            "k3", without rho.
        limit: Largest rho; beyond it rho is a constant.

    Returns:
        0 where masked. Shape: (B, T).
    """
    if form == "iw_k3":
        return iw_reverse_kl(ls, lo, lt, mask, limit).masked_fill(~mask, 0)
    if form == "k3":
        return kl_k3(ls.masked_fill(~mask, 0), lt.masked_fill(~mask, 0)).masked_fill(~mask, 0)
    rho = (ls - lo).masked_fill(~mask, 0).clamp(-20, 20).exp().clamp_max(limit)
    with torch.no_grad():
        d = (lt - ls).masked_fill(~mask, 0).clamp(-CLAMP, CLAMP)
        centred = d - leave_one_out(d, mask)
    return (-rho * centred).masked_fill(~mask, 0)

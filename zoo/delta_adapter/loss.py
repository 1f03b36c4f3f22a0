"""The two losses: flow matching, and the consistency of the output's delta with the pair's."""

from __future__ import annotations

import torch
from torch import Tensor

from zoo.delta_adapter.delta import semantic_delta

STILL = 1e-3  # norm of a pooled semantic delta below which nothing moved
EPS = 1e-6


def flow_loss(velocity: Tensor, clean: Tensor, noise: Tensor) -> Tensor:
    """Mean of |v - (eps - z_1)|^2 over all tokens. Shape: (B, N, C) three times to ()."""
    return (velocity.float() - (noise - clean).float()).square().mean()


def delta_cosine(found: Tensor, wanted: Tensor) -> Tensor:
    """Cosine of two deltas, patch by patch, weighted by the size of the wanted one.

    What the edit leaves alone has no direction, so it has no weight.

    Args:
        found: Delta of the output. Shape: (B, P, C).
        wanted: Delta of the pair.

    Returns:
        -1..1. Shape: (B,).
    """
    found, wanted = found.float(), wanted.float()
    size = wanted.norm(dim=-1)
    cosine = (found * wanted).sum(dim=-1) / (found.norm(dim=-1) * size).clamp_min(EPS)
    weighted: Tensor = (size * cosine).sum(dim=-1) / size.sum(dim=-1).clamp_min(EPS)
    return weighted


def consistency_loss(output: Tensor, source: Tensor, target: Tensor, kept: Tensor) -> Tensor:
    """L_sdc = 1 - weighted mean cosine of Delta(x, y_hat) and Delta(x, y).

    Args:
        output: phi(y_hat), with gradient. Shape: (B, P, C).
        source: phi(x).
        target: phi(y).
        kept: The samples that count. Shape: (B,), bool.

    Returns:
        Scalar; 0 if none counts.
    """
    wanted = semantic_delta(source, target)
    cosine = delta_cosine(semantic_delta(source, output), wanted)
    counted = (kept & (wanted.norm(dim=-1).sum(dim=-1) > EPS)).to(cosine.dtype)
    loss: Tensor = ((1 - cosine) * counted).sum() / counted.sum().clamp_min(1)
    return loss


def directional_similarity(output: Tensor, query: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """cos(phi(out) - phi(query), phi(a') - phi(a)), of pooled features; each is (B, P, C).

    Pooled, since exemplar and query show their objects in different places. 0 if nothing moved: the
    direction would be that of rounding errors. Shape: (B,).
    """
    moved, asked = (semantic_delta(a, b).mean(dim=1) for a, b in ((query, output), (before, after)))
    cosine = torch.nn.functional.cosine_similarity(moved, asked, dim=-1, eps=EPS)
    return torch.where(moved.norm(dim=-1) > STILL, cosine, 0.0)

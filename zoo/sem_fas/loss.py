"""Losses of SEM-FAS beside the cross-entropy of the decision."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from zoo.sem_fas.head import EPS


def single_sensor_loss(alone: Tensor, label: Tensor, mask: Tensor) -> Tensor:
    """L_main: each sensor that is there must decide alone.

    Args:
        alone: Evidence of each sensor alone. Shape: (B, 3, 2).
        label: 1 live, 0 attack. Shape: (B,).
        mask: Which sensors are there. Shape: (B, 3).

    Returns:
        Mean over the samples of the mean over their sensors of -ln p. Shape: ().
    """
    log_q = alone.clamp_min(EPS).log()
    log_p = log_q - torch.logsumexp(log_q, dim=-1, keepdim=True)
    index = label.view(-1, 1, 1).expand(-1, alone.shape[1], 1)
    nll = -log_p.gather(-1, index)[..., 0]  # (B, 3)
    there = mask.to(nll.dtype)
    return ((nll * there).sum(dim=1) / there.sum(dim=1).clamp_min(1)).mean()


def budget_loss(class_trace: Tensor, budget: float) -> Tensor:
    """L_bud: leaves room for the rest effect, without which everything is covered.

    Args:
        class_trace: tr(E_0 + E_1) / d. Shape: ().
        budget: beta, what of the space the classes may measure at no cost.
    """
    return (class_trace - budget).clamp_min(0).square()


def diversity_loss(overlaps: Tensor) -> Tensor:
    """L_div: mean squared overlap of different heads. Shape: (B, K, K) gives ()."""
    heads = overlaps.shape[-1]
    if heads == 1:
        return overlaps.new_zeros(())
    off = overlaps.sum(dim=(-2, -1)) - overlaps.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    return off.mean() / (heads * (heads - 1))


def domain_loss(
    psi: Tensor,
    domain: Tensor,
    keep: Tensor,
    domains: int,
    gather: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """L_dom: live faces of all source domains share one mean density matrix; attacks are free.

    One-sided as in SSDG (arXiv 2004.14043). Domains without a live sample take no part: a mean over
    nothing is NaN, which would show much later, as a Cholesky factor that does not exist.

    Args:
        psi: Weighted states, whose projectors sum to rho, as (re, im). Shape: (B, K, 2, d).
        domain: Number of each sample's domain. Shape: (B,).
        keep: Which samples are live. Shape: (B,).
        domains: D.
        gather: Adds up what each process has, with gradients; ``None`` for one process.

    Returns:
        Sum over the pairs of domains of the squared Frobenius distance. Shape: ().
    """
    member = (domain[:, None] == torch.arange(domains, device=domain.device)) & keep[:, None]
    member = member.to(psi.dtype)  # (B, D)
    state = torch.complex(psi[:, :, 0], psi[:, :, 1])
    weighted = torch.einsum("bD,bki->Dbki", member, state).flatten(1, 2)  # (D, B K, d)
    sums = torch.view_as_real(weighted.mT @ state.flatten(0, 1).conj())  # (D, d, d, 2)
    counts = member.sum(dim=0)
    if gather is not None:
        sums, counts = gather(sums), gather(counts)
    means = (sums / counts.clamp_min(1).view(-1, 1, 1, 1)).flatten(1)  # (D, 2 d d)
    known = counts > 0
    distance = (means[:, None] - means[None]).square().sum(dim=-1)
    both = known[:, None] & known[None]
    return (distance * both).sum() / 2

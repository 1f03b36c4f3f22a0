"""What people would use instead: Hopfield retrieval on numbers that are read off the clouds."""

from __future__ import annotations

import torch
from torch import Tensor

ITERATIONS = 5
RIDGE = 1e-4  # of a covariance, relative to the unit of the standardised data


def euclidean_hopfield(
    x: Tensor, a: Tensor, y: Tensor, b: Tensor, beta: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Modern Hopfield retrieval of the flattened clouds, point by point in the order they come.

    Shorter clouds repeat their points from the start, so that all have max(n, m) of them. Each of
    five iterations replaces points and weights by the average of the stored ones under
    softmax(-beta |x - y_k|^2 / (2 L)). Source: H. Ramsauer et al., arXiv 2008.02217.

    Args:
        x: Queries. Shape: (Q, n, d).
        a: Weights; 0 for padding, which must come last. Shape: (Q, n).
        y: Patterns. Shape: (K, m, d).
        b: Weights. Shape: (K, m).
        beta: Inverse temperature.

    Returns:
        Points (Q, L, d), weights (Q, L) with L = max(n, m), and probabilities (Q, K).
    """
    length = max(x.shape[1], y.shape[1])
    (x, a), (y, b) = _repeat(x, a, length), _repeat(y, b, length)
    flat, stored, prob = x.flatten(1), y.flatten(1), x.new_zeros(len(x), len(y))
    for _ in range(ITERATIONS):
        prob = torch.softmax(-beta * torch.cdist(flat, stored).square() / (2 * length), -1)
        flat, a = prob @ stored, prob @ b
    return flat.view(len(flat), length, -1), a, prob


def _repeat(points: Tensor, weights: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Clouds of ``length`` points: real ones in turns, each with a share of its weight."""
    real = (weights > 0).sum(1, keepdim=True)
    order = torch.argsort((weights <= 0).to(torch.int8), dim=1, stable=True)
    turn = torch.arange(length, device=points.device) % real  # (B, length)
    index = order.gather(1, turn)
    drawn = weights.gather(1, index)
    points = points.gather(1, index[..., None].expand(-1, -1, points.shape[-1]))
    return points, drawn / drawn.sum(1, keepdim=True)


def moments_hopfield(
    x: Tensor, a: Tensor, y: Tensor, b: Tensor, beta: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The same on mean and covariance, which know no order; the query is then moved to fit them.

    The points are mapped by the affine map between the two Gaussians that is the optimal one, so
    mean and covariance of the result are the retrieved ones; weights stay.

    Args:
        x: Shape: (Q, n, d).
        a: Shape: (Q, n).
        y: Shape: (K, m, d).
        b: Shape: (K, m).
        beta: Inverse temperature.

    Returns:
        Points (Q, n, d), weights (Q, n) and probabilities (Q, K).
    """
    mean, covariance = moments(x, a)
    stored_mean, stored_covariance = moments(y, b)
    state = torch.cat([mean, covariance.flatten(1)], 1)
    stored = torch.cat([stored_mean, stored_covariance.flatten(1)], 1)
    prob = x.new_zeros(len(x), len(y))
    for _ in range(ITERATIONS):
        prob = torch.softmax(-beta * torch.cdist(state, stored).square() / 2, -1)
        state = prob @ stored
    dim = x.shape[-1]
    new_mean, new_covariance = state[:, :dim], state[:, dim:].view(-1, dim, dim)
    root = _power(covariance, 0.5)
    inverse = _power(covariance, -0.5)
    middle = _power(root @ new_covariance @ root, 0.5)
    affine = inverse @ middle @ inverse
    return (x - mean[:, None]) @ affine + new_mean[:, None], a, prob


def moments(x: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (B, d) and covariance (B, d, d) of weighted clouds."""
    mean = (a[..., None] * x).sum(1)
    centred = x - mean[:, None]
    covariance = (a[..., None] * centred).transpose(1, 2) @ centred
    return mean, covariance + RIDGE * torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)


def _power(matrix: Tensor, exponent: float) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    power: Tensor = (vectors * values.clamp_min(RIDGE).pow(exponent)[..., None, :]) @ vectors.mT
    return power

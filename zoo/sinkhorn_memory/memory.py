"""The stored measures: buffers that take what is stored, or prototypes that are learnt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from zoo.errors import ZooError
from zoo.measures import MAX_LABEL

VARIABLE = ("points", "mass", "labels", "mean")  # buffers whose size is that of what is stored


class Memory(nn.Module):
    """K measures in standardised coordinates: over all of them the mean is 0, the variance 1.

    The variance is the mean squared distance from the mean, one number for all coordinates, so
    that the cost |x - y|^2 / 2 of two random points is about 1 in any dimension.

    Args:
        count: K; 0 for an empty one.
        support: m, points of the largest measure.
        dim: d.
        learn: The measures are parameters instead of buffers.
    """

    points: Tensor
    mass: Tensor
    labels: Tensor
    mean: Tensor
    scale: Tensor
    fitted: Tensor

    def __init__(self, count: int, support: int, dim: int, learn: bool) -> None:
        super().__init__()
        self.learn = learn
        if learn:
            self.points = nn.Parameter(torch.randn(count, support, dim) / dim**0.5)
            self.mass = nn.Parameter(torch.zeros(count, support))  # logits
        else:
            self.register_buffer("points", torch.zeros(count, support, dim))
            self.register_buffer("mass", torch.zeros(count, support))
        self.register_buffer("labels", encode(str(k) for k in range(count)))
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))

    @property
    def weights(self) -> Tensor:
        """Rows sum to 1; 0 for padding. Shape: (K, m)."""
        return self.mass.softmax(-1) if self.learn else self.mass

    @property
    def names(self) -> list[str]:
        """Label of each measure."""
        return decode(self.labels)

    @property
    def filled(self) -> bool:
        """Whether there is anything to retrieve."""
        return len(self.points) > 0 and (self.learn or bool(self.fitted))

    def set_scaling(self, points: Tensor, weights: Tensor, standardize: bool = True) -> None:
        """Takes mean and scale from measures: points (K, m, d) in the user's unit, weights (K, m).

        Raises:
            ZooError: If all points are one.
        """
        self.mean, scale = points.new_zeros(points.shape[-1]), points.new_ones(())
        if standardize:
            self.mean = (weights[..., None] * points).sum((0, 1)) / len(points)
            squares = (points - self.mean).square().sum(-1)
            scale = ((weights * squares).sum() / len(points)).sqrt()
            if not scale > 0:
                raise ZooError("All points of all patterns are the same: there is nothing to tell.")
        self.scale = scale
        self.fitted.fill_(True)

    def store(
        self, points: Tensor, weights: Tensor, labels: Sequence[str], standardize: bool = True
    ) -> None:
        """Replaces what is stored.

        Args:
            points: In the user's unit. Shape: (K, m, d).
            weights: Rows sum to 1; 0 for padding. Shape: (K, m).
            labels: One of each measure.
            standardize: Else mean 0 and scale 1 are kept.
        """
        self.set_scaling(points, weights, standardize)
        self.points, self.mass = self.standardize(points, weights), weights.clone()
        self.labels = encode(labels).to(points.device)

    @torch.no_grad()
    def initialise(self, points: Tensor, weights: Tensor, standardize: bool = True) -> None:
        """Sets the prototypes to random measures of a batch, whose points are drawn by weight."""
        self.set_scaling(points, weights, standardize)
        count, support, _ = self.points.shape
        order = torch.cat(
            [torch.randperm(len(points)) for _ in range(-(-count // len(points)))]
        ).to(points.device)[:count]
        drawn = torch.multinomial(weights[order], support, replacement=True)
        drawn = drawn[..., None].expand(-1, -1, points.shape[-1])
        chosen = (points[order].gather(1, drawn) - self.mean) / self.scale
        # Two equal points of a prototype would stay equal: they would get the same gradient.
        self.points.copy_(chosen + 0.01 * torch.randn_like(chosen))

    def standardize(self, points: Tensor, weights: Tensor) -> Tensor:
        """From the user's unit; padding becomes 0."""
        return torch.where(weights[..., None] > 0, (points - self.mean) / self.scale, 0.0)

    def restore(self, points: Tensor, weights: Tensor) -> Tensor:
        """To the user's unit; padding becomes 0."""
        return torch.where(weights[..., None] > 0, points * self.scale + self.mean, 0.0)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        """Takes the sizes of what is loaded, unless they are those of parameters."""
        for name in () if self.learn else VARIABLE:
            saved, own = state_dict.get(prefix + name), getattr(self, name)
            if isinstance(saved, Tensor) and saved.ndim == own.ndim and saved.shape != own.shape:
                setattr(self, name, torch.empty_like(saved, device=own.device))
        super()._load_from_state_dict(state_dict, prefix, *rest)


def encode(labels: Any) -> Tensor:
    """Labels as UTF-8 bytes, padded with zeros: a checkpoint holds tensors. (K, 64), uint8."""
    rows = [list(label.encode().ljust(MAX_LABEL, b"\0")) for label in labels]
    return torch.tensor(rows, dtype=torch.uint8).view(len(rows), MAX_LABEL)


def decode(labels: Tensor) -> list[str]:
    """The inverse of :func:`encode`."""
    return [bytes(row).rstrip(b"\0").decode(errors="replace") for row in labels.tolist()]

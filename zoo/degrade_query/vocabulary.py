"""The proteins that a model knows, stored beside its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from zoo.errors import ZooError
from zoo.proteins import MAX_NAME, unpack_names


class Vocabulary(nn.Module):
    """Names, features and counts of proteins, taken from the first batch of training.

    Args:
        size: Most proteins that fit, the unknown one included.
        features: P.
    """

    names: Tensor
    features: Tensor
    scale: Tensor
    seen: Tensor
    target_count: Tensor
    e3_count: Tensor
    labels: Tensor
    positives: Tensor

    def __init__(self, size: int, features: int) -> None:
        super().__init__()
        self.register_buffer("names", torch.zeros(size, MAX_NAME, dtype=torch.uint8))
        self.register_buffer("features", torch.zeros(size, features))
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("seen", torch.zeros(size, dtype=torch.bool))
        for name in ("target_count", "e3_count", "labels", "positives"):
            self.register_buffer(name, torch.zeros(size, dtype=torch.long))

    @property
    def fitted(self) -> bool:
        """Whether training has begun."""
        return bool(self.names.any())

    def fit(self, given: Mapping[str, Tensor]) -> None:
        """Takes up the vocabulary of the data.

        Raises:
            ZooError: If it has more proteins, or features of another width.
        """
        count, width = given["features"].shape
        size, expected = self.features.shape
        if width != expected:
            raise ZooError(
                f"The data's protein features are {width} numbers a protein, but protein_dim is "
                f"{expected}."
            )
        if count > size:
            raise ZooError(
                f"The data name {count} proteins, but the model has room for {size}: raise "
                "max_proteins."
            )
        for name in ("names", "features", "target_count", "e3_count", "labels", "positives"):
            self.get_buffer(name)[:count] = given[name]
        known = given["features"][(given["features"] != 0).any(dim=1)]
        if len(known) > 1:
            self.scale.copy_(known.std().clamp_min(1e-6))
        self.seen[:count] = (given["target_count"] + given["e3_count"]) > 0

    def own(self, given: Mapping[str, Tensor]) -> Tensor:
        """Row here of each protein of the data, 0 for one that is not known. Shape: (V,)."""
        names = given["names"]
        count = len(names)
        if count <= len(self.names) and torch.equal(names, self.names[:count]):
            return torch.arange(count, device=names.device)
        index = self.index()
        return torch.tensor([index.get(n, 0) for n in unpack_names(names)], device=names.device)

    def index(self) -> dict[str, int]:
        """From name to row."""
        return {name: i for i, name in enumerate(unpack_names(self.names)) if name}

    def ranked(self, count: Tensor) -> list[tuple[str, int]]:
        """Names and rows of the proteins with a count, in order of the rows."""
        names = unpack_names(self.names)
        return [(names[i], i) for i in count.nonzero()[:, 0].tolist()]

    def identity(self, rows: Tensor) -> Tensor:
        """Rows whose identity training has seen; else 0. Shape: any."""
        return rows * self.seen[rows]

    def normalise(self, features: Tensor) -> Tensor:
        """Features as the network takes them. Shape: (..., P)."""
        return features / self.scale

    def balance(self) -> Tensor:
        """Negatives for each positive label of training. Shape: ()."""
        positives = self.positives.sum()
        return (self.labels.sum() - positives) / positives.clamp_min(1)

    def feature_rows(self, names: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Row and raw features of names, 0 and zeros where not known. Shapes: (n,), (n, P).

        The features of "A/B" are the mean of both proteins'.
        """
        index = self.index()
        rows = torch.tensor([index.get(n, 0) for n in names], device=self.names.device)
        found = self.features[rows].clone()
        for i, name in enumerate(names):
            parts = [index[part] for part in name.split("/") if part in index]
            if rows[i] == 0 and parts:
                found[i] = self.features[parts].mean(dim=0)
        return rows, found

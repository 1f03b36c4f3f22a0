"""Sums keys over the ranks of distributed training, in one collective a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor

from zoo.distributed import gathered
from zoo.errors import ZooError
from zoo.optim.keys import KEYS, KeySum

Sums: TypeAlias = list[dict[str, KeySum]]


class KeyReducer:
    """Adds what all ranks captured, else their momenta would part, and then their weights.

    Ranks may skip layers, each by itself, so the layout of the bucket must not follow from what one
    of them captured: it has a place for each captured weight, and one for all weights that shared
    their sums in the first step on every rank.

    Args:
        weights: Of one optimiser, in its order, as on every rank.
    """

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self.weights = [w for w in weights if w in KEYS.shapes]
        self.groups: list[tuple[str, list[int]]] | None = None

    def __call__(self, sums: Sums) -> Sums:
        """Sums over ranks.

        Args:
            sums: What each of ``weights`` captured here.

        Returns:
            The same over all ranks; the mean of them for ``unit``, as of the gradients.
        """
        if self.groups is None:
            self.groups = self._agree(sums)
        found: list[KeySum | None] = [
            self._one(kind, members, sums) for kind, members in self.groups
        ]
        device = self.weights[0].device
        dtype = max(
            (s.total.dtype for s in found if s), key=lambda d: d.itemsize, default=torch.float32
        )
        parts = []
        for (kind, members), one in zip(self.groups, found, strict=True):
            rows, columns = KEYS.shapes[self.weights[members[0]]][kind]
            flat = torch.zeros(rows * columns + 1, dtype=dtype, device=device)
            if one is not None:
                flat[:-1] = one.total.flatten()
                flat[-1] = one.count
            parts.append(flat)
        sizes = [len(part) for part in parts]
        bucket = torch.cat(parts)
        dist.all_reduce(bucket)
        reduced: Sums = [{} for _ in self.weights]
        for (kind, members), part in zip(self.groups, torch.split(bucket, sizes), strict=True):
            total = part[:-1].view(KEYS.shapes[self.weights[members[0]]][kind])
            # A layer that every rank skipped has S = 0, which is plain momentum; to ask for its
            # count would make the host wait for the device.
            number = dist.get_world_size() if kind == "unit" else part[-1].clamp_min(1)
            one = KeySum(total / number, 1)
            for member in members:
                reduced[member][kind] = one
        return reduced

    def _agree(self, sums: Sums) -> list[tuple[str, list[int]]]:
        """Which weights share one sum on every rank; each gets a group for each of its kinds."""
        first: dict[int, int] = {}
        mine = []
        for index, captured in enumerate(sums):
            gram = captured.get("gram")
            mine.append(first.setdefault(gram.serial, index) if gram else -1 - index)
        ranks = gathered(mine)
        if len({len(rank) for rank in ranks}) > 1:
            raise ZooError("The ranks capture the keys of different layers.")
        shared: dict[tuple[str, tuple[int, ...]], list[int]] = {}
        for index, signature in enumerate(zip(*ranks, strict=True)):
            for kind in KEYS.shapes[self.weights[index]]:
                own = signature if kind == "gram" else (index,)
                shared.setdefault((kind, own), []).append(index)
        return [(kind, members) for (kind, _), members in shared.items()]

    def _one(self, kind: str, members: Sequence[int], sums: Sums) -> KeySum | None:
        found = {s[kind].serial: s[kind] for s in (sums[i] for i in members) if kind in s}
        if len(found) > 1:
            names = ", ".join(KEYS.names.get(self.weights[i], "?") for i in members)
            raise ZooError(f"{names} shared their input in the first step, but no longer do.")
        return next(iter(found.values()), None)

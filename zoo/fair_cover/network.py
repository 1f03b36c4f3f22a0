"""Guesses a relaxation's solution: messages between sets, elements and groups.

What it is for: it starts the solver of first order nearer to the end, and where there is no time
for a linear program at all, its shares are rounded, repaired and pruned instead. Either way the
result is feasible, and a bound is only reported if multipliers prove it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

FEATURES = {"set": 2, "element": 3, "group": 3}


class Update(nn.Module):
    """h <- h + MLP(LN [h, mean of the messages, their logarithmic sum])."""

    def __init__(self, width: int, sources: int) -> None:
        super().__init__()
        size = (1 + 2 * sources) * width
        self.layers = nn.Sequential(
            nn.LayerNorm(size), nn.Linear(size, width), nn.SiLU(), nn.Linear(width, width)
        )

    def forward(self, h: Tensor, messages: list[Tensor]) -> Tensor:
        """Shape: (N, W) and lists of (N, W) to (N, W)."""
        out: Tensor = h + self.layers(torch.cat([h, *messages], dim=1))
        return out


class CoverNet(nn.Module):
    """Shares of the sets and multipliers of the groups, for instances of any size side by side.

    Args:
        width: W.
        rounds: Of messages: sets to elements to groups and back.
    """

    def __init__(self, width: int = 64, rounds: int = 3) -> None:
        super().__init__()
        self.embed = nn.ModuleDict({k: nn.Linear(v, width) for k, v in FEATURES.items()})
        self.to_element = nn.ModuleList(Update(width, 2) for _ in range(rounds))
        self.to_group = nn.ModuleList(Update(width, 1) for _ in range(rounds))
        self.to_set = nn.ModuleList(Update(width, 1) for _ in range(rounds))
        self.share = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))
        self.dual = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(
        self, edges: Tensor, cost: Tensor, least: Tensor, group_edges: Tensor, need: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Logits of the shares, and log(1 + multiplier / unit) of the groups.

        The unit is what a membership costs on average, see :func:`unit`, so that the currency of
        costs does not matter.

        Args:
            edges: Element and set of each membership. Shape: (2, E), long.
            cost: Of the sets, > 0. Shape: (M,).
            least: Lower bounds of z. Shape: (n,).
            group_edges: Group and element of each membership. Shape: (2, F), long.
            need: Of the groups. Shape: (l,).

        Returns:
            Shapes: (M,) and (l,).
        """
        element, owner = edges
        group, member = group_edges
        cost, least, need = cost.float(), least.float(), need.float()
        size = count(owner, len(cost))
        degree = count(element, len(least))
        # Cost beside that of the other sets that hold the same elements.
        per_member = cost / size.clamp_min(1)
        usual = mean(mean(per_member[owner], element, len(least))[element], owner, len(cost))
        members = count(group, len(need))
        h_set = self.embed["set"](
            torch.stack(
                [(per_member / usual.clamp_min(1e-12)).clamp(max=1e4).log1p(), size.log1p()], 1
            )
        )
        h_element = self.embed["element"](
            torch.stack([least, degree.log1p(), count(member, len(least)).log1p()], 1)
        )
        h_group = self.embed["group"](
            torch.stack(
                [need / members.clamp_min(1), members.log1p(), need.clamp_min(0).log1p()], 1
            )
        )
        for to_element, to_group, to_set in zip(
            self.to_element, self.to_group, self.to_set, strict=True
        ):
            from_sets = gather(h_set[owner], element, len(least))
            from_groups = gather(h_group[group], member, len(least))
            h_element = to_element(h_element, [*from_sets, *from_groups])
            h_group = to_group(h_group, gather(h_element[member], group, len(need)))
            h_set = to_set(h_set, gather(h_element[element], owner, len(cost)))
        return self.share(h_set)[:, 0], self.dual(h_group)[:, 0]


def unit(edges: Tensor, cost: Tensor) -> Tensor:
    """What a membership costs on average. Shape: ()."""
    return cost.float().sum() / max(1, edges.shape[1])


def count(index: Tensor, size: int) -> Tensor:
    """How often each number comes. Shape: (E,) to (size,), float32."""
    return torch.bincount(index, minlength=size).float()


def mean(values: Tensor, index: Tensor, size: int) -> Tensor:
    """Mean of the values of each number; 0 without one. Shape: (E,) to (size,)."""
    total = values.new_zeros(size).index_add_(0, index, values)
    return total / count(index, size).clamp_min(1).to(values.dtype)


def gather(values: Tensor, index: Tensor, size: int) -> list[Tensor]:
    """Mean, and logarithmically damped sum, of messages. Shape: (E, W) to (size, W) twice."""
    total = values.new_zeros(size, values.shape[1]).index_add_(0, index, values)
    many = count(index, size).clamp_min(1)[:, None].to(values.dtype)
    return [total / many, total / many * many.log1p()]

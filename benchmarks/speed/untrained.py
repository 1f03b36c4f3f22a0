"""A policy module whose steps can be timed without a trainer."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from zoo.agents.module import PolicyModule


def without_trainer(model: PolicyModule, lr: float) -> None:
    """Gives a module AdamW of its own, and logs nothing."""
    optimizer = torch.optim.AdamW(model.parameters(), lr)

    def update(losses: list) -> torch.Tensor:
        optimizer.zero_grad()
        for loss in losses:
            loss().backward()
        optimizer.step()
        return torch.zeros(())

    model._update = update  # type: ignore[method-assign]
    model.log = lambda *_, **__: None  # type: ignore[method-assign,assignment]
    model._trainer = SimpleNamespace(global_step=0)  # type: ignore[assignment]

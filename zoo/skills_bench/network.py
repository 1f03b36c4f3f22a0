"""``LiftModel``: a forecast of pass rates without and with skills, before any agent runs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.agents.skill_tasks import FEATURES
from zoo.reproducible import generator

EPS = 1e-3  # a rate that was never seen to fail is not certain


class LiftModel(nn.Module):
    """Two hidden layers from features to the log odds of success without and with skills.

    Args:
        width: Of the hidden layers.
    """

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(FEATURES, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, 2),
        )

    def forward(self, features: Tensor) -> Tensor:
        """Log odds without and with skills. Shapes: (B, 15) to (B, 2)."""
        return self.layers(features)  # type: ignore[no-any-return]


def binomial_loss(logits: Tensor, successes: Tensor, trials: Tensor) -> Tensor:
    """Negative log-likelihood of a trial, mean over all trials, without the binomial coefficient.

    Args:
        logits: Shape: (B, 2).
        successes: Shape: (B, 2).
        trials: Shape: (B, 2); 0 for what was not tried.

    Returns:
        Scalar; 0 with the graph kept if there are no trials.
    """
    failures = trials - successes
    total = successes * F.logsigmoid(logits) + failures * F.logsigmoid(-logits)
    return -total.sum() / trials.sum().clamp_min(1)


def cross_validate(
    features: Tensor,
    successes: Tensor,
    trials: Tensor,
    task: Sequence[str],
    domain: Sequence[str],
    width: int = 64,
    folds: int = 6,
    steps: int = 200,
    weight_decay: float = 0.1,
    seed: int = 0,
) -> dict[str, float]:
    """Log loss on tasks that were not trained on, against rates of the domain and of all.

    Tasks are dealt to folds; all rows of a task are in one.

    Args:
        features: Shape: (N, 15).
        successes: Shape: (N, 2).
        trials: Shape: (N, 2).
        task: Of each row.
        domain: Of each row.
        width: Of the network.
        folds: At most one for each task.
        steps: Of Adam on all rows at once.
        weight_decay: Of AdamW.
        seed: Of weights and folds.

    Returns:
        ``model``, ``domain`` (rates of the domain's other tasks, with one success and one failure
        added) and ``all`` (those of all other tasks), log loss of a trial.
    """
    names = sorted(set(task))
    order = torch.randperm(len(names), generator=generator(seed, len(names))).tolist()
    folds = min(folds, len(names))
    fold = {name: order[i] % folds for i, name in enumerate(names)}
    where = torch.tensor([fold[name] for name in task])
    total = {"model": 0.0, "domain": 0.0, "all": 0.0}
    for number in range(folds):
        out, rest = where == number, where != number
        with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad():
            torch.manual_seed(seed + number)
            model = LiftModel(width)
            optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=weight_decay)
            x, y, n = (v[rest].clone() for v in (features, successes, trials))
            for _ in range(steps):
                optimizer.zero_grad()
                binomial_loss(model(x), y, n).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        with torch.no_grad():
            logits = {"model": model(features[out].clone())}
        mean = (successes[rest].sum(0) + 1) / (trials[rest].sum(0) + 2)
        logits["all"] = mean.logit(EPS).expand(int(out.sum()), 2)
        rows = []
        for i in out.nonzero().flatten().tolist():
            same = rest & torch.tensor([d == domain[i] for d in domain])
            rows.append((successes[same].sum(0) + 1) / (trials[same].sum(0) + 2))
        logits["domain"] = torch.stack(rows).logit(EPS)
        count = float(trials[out].sum())
        for name, values in logits.items():
            total[name] += count * float(binomial_loss(values, successes[out], trials[out]))
    return {name: value / float(trials.sum()) for name, value in total.items()}

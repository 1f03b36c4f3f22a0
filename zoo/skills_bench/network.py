"""``LiftModel``: a forecast of pass rates without and with skills, before any agent runs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.agents.skill_tasks import FEATURES
from zoo.reproducible import generator

STEPS, INNER = 120, 4  # of training at most; folds to choose their number by
LR, WEIGHT_DECAY = 3e-3, 0.1
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
    seed: int = 0,
) -> dict[str, float]:
    """Log loss on tasks that were not trained on, against rates of the domain and of all.

    Tasks are dealt to folds; all rows of a task are in one. How long to train is chosen within the
    tasks of training, by folds of their own.

    Args:
        features: Shape: (N, 15).
        successes: Shape: (N, 2).
        trials: Shape: (N, 2).
        task: Of each row.
        domain: Of each row.
        width: Of the network.
        folds: At most one for each task.
        seed: Of weights and folds.

    Returns:
        ``model``, ``domain`` (rates of the domain's other tasks, with one success and one failure
        added) and ``all`` (those of all other tasks), log loss of a trial.
    """
    where, folds = _folds(task, folds, seed)
    total = {"model": 0.0, "domain": 0.0, "all": 0.0}
    for number in range(folds):
        out, rest = where == number, where != number
        inner = [name for name, kept in zip(task, rest.tolist(), strict=True) if kept]
        rows = [v[rest] for v in (features, successes, trials)]
        parts, many = _folds(inner, INNER, seed + 1)
        curve = torch.zeros(STEPS)
        for part in range(many if many > 1 else 0):
            held = parts == part
            curve += _train(
                [v[~held] for v in rows], [v[held] for v in rows], width, STEPS, seed + part
            )[1]
        steps = int(curve.argmin()) + 1
        model = _train(rows, rows, width, steps, seed + number)[0]
        with torch.no_grad():
            logits = {"model": model(features[out].clone())}
        mean = (successes[rest].sum(0) + 1) / (trials[rest].sum(0) + 2)
        logits["all"] = mean.logit(EPS).expand(int(out.sum()), 2)
        means = []
        for i in out.nonzero().flatten().tolist():
            same = rest & torch.tensor([d == domain[i] for d in domain])
            means.append((successes[same].sum(0) + 1) / (trials[same].sum(0) + 2))
        logits["domain"] = torch.stack(means).logit(EPS)
        count = float(trials[out].sum())
        for name, values in logits.items():
            total[name] += count * float(binomial_loss(values, successes[out], trials[out]))
    return {name: value / float(trials.sum()) for name, value in total.items()}


def _folds(task: Sequence[str], folds: int, seed: int) -> tuple[Tensor, int]:
    """The fold of each row, by tasks, and how many folds there are."""
    names = sorted(set(task))
    folds = min(folds, len(names))
    order = torch.randperm(len(names), generator=generator(seed, len(names))).tolist()
    fold = {name: order[i] % folds for i, name in enumerate(names)}
    return torch.tensor([fold[name] for name in task]), folds


def _train(
    rows: Sequence[Tensor], held: Sequence[Tensor], width: int, steps: int, seed: int
) -> tuple[LiftModel, Tensor]:
    """A model of all rows at once, and the loss on held-out rows after each step, (steps,)."""
    losses = []
    with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad():
        (x, y, n), (a, b, c) = ([v.clone() for v in part] for part in (rows, held))
        torch.manual_seed(seed)
        model = LiftModel(width)
        optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=WEIGHT_DECAY)
        for _ in range(steps):
            optimizer.zero_grad()
            binomial_loss(model(x), y, n).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            with torch.no_grad():
                losses.append(binomial_loss(model(a), b, c))
    return model, torch.stack(losses)

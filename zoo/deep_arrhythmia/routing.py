"""Which segments get the expensive evidence, and what that does to the figures of a test.

The field counts beats over all patients: a confusion matrix of each segment and state is all that
is needed, since those of any choice of segments add up. Its sixth row holds detections that are no
beat, its sixth column beats that Tool 1 missed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import BinaryAUROC, BinaryCalibrationError

from zoo.ecg.beats import CLASSES

JUDGED = 4  # N, S, V and F; Q is nearly absent in DS2 and reported apart
SHARES = tuple(range(0, 101, 10))  # per cent of segments at which the curve is logged


class Rows(NamedTuple):
    """What both states say about the segments of an evaluation.

    Attributes:
        minimal: Logits. Shape: (N, n, classes).
        rich: Logits. Shape: (N, n, classes).
        label: As of the data module: class, ``classes`` for no beat, -1 for not scored here.
            Shape: (N, n).
        missed: Beats of each class that were not detected. Shape: (N, classes).
        mask: Which beats are there. Shape: (N, n).
        head: Logits of the confidence head. Shape: (N,).
    """

    minimal: Tensor
    rich: Tensor
    label: Tensor
    missed: Tensor
    mask: Tensor
    head: Tensor


class RowTable(Metric):
    """Gathers :class:`Rows` over batches and devices; ``compute`` returns all of them."""

    full_state_update = False

    def __init__(self) -> None:
        super().__init__()
        for name in Rows._fields:
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, rows: Rows) -> None:
        """Adds a batch."""
        for name, value in rows._asdict().items():
            getattr(self, name).append(value.detach())

    def compute(self) -> Rows:
        """All rows so far."""
        values = (getattr(self, name) for name in Rows._fields)
        return Rows(*(torch.cat(v) if isinstance(v, list) else v for v in values))


def confidence(head: Tensor, minimal: Tensor, mask: Tensor, temperature: Tensor | float) -> Tensor:
    """The head's probability times the mean calibrated probability of the chosen classes.

    0 for a segment without beats. Shapes: (N,), (N, n, classes), (N, n) give (N,).
    """
    chosen = (minimal.float() / temperature).softmax(dim=-1).amax(dim=-1)
    mean = (chosen * mask).sum(dim=1) / mask.sum(dim=1).clamp_min(1)
    return head.float().sigmoid() * mean


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """The temperature with the least cross-entropy on the beats with a class, by LBFGS."""
    known = (labels >= 0) & (labels < logits.shape[-1])
    logits, labels = logits[known].detach().double(), labels[known]
    if len(labels) == 0:
        return 1.0
    with torch.inference_mode(False), torch.enable_grad():
        logits, labels = logits.clone(), labels.clone()
        log_t = torch.zeros((), dtype=torch.double, device=logits.device, requires_grad=True)
        optimizer = torch.optim.LBFGS([log_t], max_iter=50, line_search_fn="strong_wolfe")

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(logits / log_t.exp(), labels) + 1e-3 * log_t**2
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        optimizer.step(closure)  # type: ignore[no-untyped-call]
    return float(log_t.detach().exp().clamp(0.05, 20))


def confusion(logits: Tensor, label: Tensor, missed: Tensor) -> Tensor:
    """One matrix a segment, truth by prediction. Shape: (N, classes + 1, classes + 1)."""
    classes = logits.shape[-1]
    scored = (label >= 0).nonzero()
    truth, found = label[label >= 0], logits.argmax(dim=-1)[label >= 0]
    size = classes + 1
    flat = (scored[:, 0] * size + truth) * size + found
    counts = torch.bincount(flat, minlength=len(logits) * size * size).view(-1, size, size)
    counts[:, :classes, classes] += missed
    return counts


def f1_of(matrix: Tensor) -> Tensor:
    """F1 of each judged class; NaN where it has no beat. Shape: (..., 6, 6) gives (..., 4)."""
    hit = matrix.diagonal(dim1=-2, dim2=-1)[..., :JUDGED].double()
    truth = matrix.sum(dim=-1)[..., :JUDGED]
    found = matrix.sum(dim=-2)[..., :JUDGED]
    return torch.where(truth > 0, 2 * hit / (truth + found).clamp_min(1), torch.nan)


def macro_f1(matrix: Tensor) -> Tensor:
    """Mean F1 over those of N, S, V and F that have a beat. Shape: (..., 6, 6) gives (...)."""
    return f1_of(matrix).nanmean(dim=-1)


def route(conf: Tensor, tau: float | Tensor) -> Tensor:
    """Which segments take the rich state: those below the threshold. Shape: (N,)."""
    return conf < tau


def curve(minimal: Tensor, rich: Tensor, order: Tensor) -> Tensor:
    """Macro-F1 with the first 0..N segments of an order in the rich state.

    Args:
        minimal: Confusion matrices. Shape: (N, 6, 6).
        rich: The same.
        order: Of the segments. Shape: (N,).

    Returns:
        Shape: (N + 1,).
    """
    steps = (rich - minimal)[order].cumsum(dim=0)
    start = minimal.sum(dim=0)
    return macro_f1(torch.cat([start[None], start + steps]))


def choose_tau(minimal: Tensor, rich: Tensor, conf: Tensor, cost: float) -> float:
    """The threshold with the greatest macro-F1 minus ``cost`` times the share in the rich state."""
    order = conf.argsort()
    scores = curve(minimal, rich, order)
    count = len(conf)
    share = torch.arange(count + 1, device=conf.device) / count
    # Equal confidences cannot be parted.
    ranked = torch.cat([conf[order], conf.new_full((1,), torch.inf)])
    parted = torch.ones(count + 1, dtype=torch.bool, device=conf.device)
    parted[1:-1] = ranked[1:-1] > ranked[:-2]
    value = (scores - cost * share).where(parted, -torch.inf)
    taken = int(value.nan_to_num(nan=-torch.inf).argmax())
    if taken == 0:
        return 0.0
    if taken == count:
        return 1.0 + 1e-6  # no confidence is above 1
    return float((ranked[taken - 1] + ranked[taken]) / 2)


def random_curve(minimal: Tensor, rich: Tensor, share: Tensor) -> Tensor:
    """Macro-F1 of random routing: of the confusion matrix that is to be expected.

    Args:
        minimal: Confusion matrices. Shape: (N, 6, 6).
        rich: The same.
        share: Of the segments in the rich state. Shape: (...).

    Returns:
        Shape: (...).
    """
    totals = minimal.sum(dim=0).double(), rich.sum(dim=0).double()
    return macro_f1(torch.lerp(*totals, share.double()[..., None, None]))


def places(count: int) -> Tensor:
    """How many of ``count`` segments each of ``SHARES`` is. Shape: (11,)."""
    return torch.tensor([round(share / 100 * count) for share in SHARES])


def calibrate(rows: Rows, cost: float) -> tuple[Tensor, float, Tensor]:
    """What validation is for.

    Args:
        rows: Of all its segments.
        cost: See :func:`choose_tau`.

    Returns:
        Temperatures of the two states, shape (2,); the threshold; and macro-F1 over ``SHARES``, by
        confidence and at random, shape (2, 11).
    """
    temperatures = [fit_temperature(x, rows.label) for x in (rows.minimal, rows.rich)]
    conf = confidence(rows.head, rows.minimal, rows.mask, temperatures[0])
    minimal, rich = (confusion(x, rows.label, rows.missed) for x in (rows.minimal, rows.rich))
    at = places(len(conf)).to(conf.device)
    by_confidence = curve(minimal, rich, conf.argsort())[at]
    at_random = random_curve(minimal, rich, at / len(conf))
    tau = choose_tau(minimal, rich, conf, cost)
    return torch.tensor(temperatures), tau, torch.stack([by_confidence, at_random])


def brier(rows: Rows, target: str) -> Tensor:
    """Mean squared error of the head's probabilities.

    Args:
        rows: Of all segments.
        target: "right": the minimal state has no error. "no_gain": the rich state has no fewer.
    """
    of_minimal, of_rich = (
        errors(confusion(x, rows.label, rows.missed)) for x in (rows.minimal, rows.rich)
    )
    true = of_minimal == 0 if target == "right" else of_rich >= of_minimal
    return (rows.head.float().sigmoid() - true.float()).square().mean()


def figures_of(rows: Rows, temperatures: Tensor, tau: float, full: bool) -> dict[str, Any]:
    """Everything an evaluation logs.

    Args:
        rows: Of all segments.
        temperatures: Of the minimal and the rich state.
        tau: Threshold of the confidence.
        full: With the curves, and what each class has.
    """
    scored = rows.label >= 0
    conf = confidence(rows.head, rows.minimal, rows.mask, temperatures[0])
    minimal = confusion(rows.minimal, rows.label, rows.missed)
    rich = confusion(rows.rich, rows.label, rows.missed)
    routed = route(conf, tau)
    chosen = torch.where(routed[:, None, None], rich, minimal)
    totals = {"minimal": minimal, "rich": rich, "route": chosen}
    found: dict[str, Any] = {
        f"macro_f1_{name}": macro_f1(matrix.sum(dim=0)) for name, matrix in totals.items()
    }
    found["macro_f1"] = found.pop("macro_f1_route")
    found["share_rich"] = routed.float().mean()
    found = {key: value.float() for key, value in found.items()}
    if not full:
        return found

    for name, matrix in totals.items():
        found |= _by_class(matrix.sum(dim=0), "" if name == "route" else f"_{name}")
    wrong_minimal, wrong_rich = (errors(m) for m in (minimal, rich))
    right = (wrong_minimal == 0)[scored.any(dim=1)]
    judged = conf[scored.any(dim=1)]
    found["rich_worse_share"] = (wrong_rich > wrong_minimal).float().mean()
    found["rich_better_share"] = (wrong_rich < wrong_minimal).float().mean()
    found["confidence_ece"] = BinaryCalibrationError(n_bins=10)(judged.cpu(), right.long().cpu())
    if 0 < right.sum() < len(right):
        found["confidence_auroc"] = BinaryAUROC()(judged.cpu(), right.long().cpu())
    by_confidence = curve(minimal, rich, conf.argsort())
    found["macro_f1_random"] = random_curve(minimal, rich, found["share_rich"]).float()
    at = places(len(conf)).to(conf.device)
    at_random = random_curve(minimal, rich, at / len(conf))
    for share, here, by_chance in zip(SHARES, by_confidence[at], at_random, strict=True):
        found[f"macro_f1_at_{share:03d}"] = here.float()
        found[f"macro_f1_random_at_{share:03d}"] = by_chance.float()
    return found


def errors(matrix: Tensor) -> Tensor:
    """Beats of a segment that are not right. Shape: (N, 6, 6) gives (N,)."""
    return matrix.sum(dim=(1, 2)) - matrix.diagonal(dim1=1, dim2=2).sum(dim=1)


def _by_class(matrix: Tensor, suffix: str) -> dict[str, Tensor]:
    """F1, sensitivity and positive predictive value of the classes that have a beat."""
    found = {}
    truth, positive = matrix.sum(dim=1), matrix.sum(dim=0)
    for i, name in enumerate(CLASSES):
        if truth[i] == 0:
            continue
        hit = matrix[i, i].float()
        found[f"f1_{name}{suffix}"] = 2 * hit / (truth[i] + positive[i])
        found[f"se_{name}{suffix}"] = hit / truth[i]
        found[f"ppv_{name}{suffix}"] = hit / positive[i].clamp_min(1)
    if not suffix:
        found["absent_classes"] = (truth[:JUDGED] == 0).sum().float()
        beats = truth[: len(CLASSES)].sum().float()
        found["beats"] = beats
        found["peak_se"] = 1 - matrix[: len(CLASSES), len(CLASSES)].sum() / beats
        found["peak_ppv"] = 1 - truth[len(CLASSES)] / matrix[:, : len(CLASSES)].sum().clamp_min(1)
    return found

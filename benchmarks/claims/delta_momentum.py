"""DeltaMomentum: DeltaAdamW against AdamW at 200 and 600 steps, DeltaSGD against SGD, and controls.

The abstract claims as good a loss in 31 % fewer steps than AdamW at 67M parameters and 19 % fewer
at 370M, and gains over SGD on CIFAR-10; what can be asked of a model of 0.3M is the direction. For
every optimiser alike the learning rate is chosen from one grid by the validation loss of the first
seed, and the best one runs with the others. The table has the loss on the test split, which chose
nothing, of the checkpoint with the best validation loss. Steps to a target are read from the
validation curves, every 25 steps, with lines between them.

Controls, so that the gain is not that of a shorter memory: other decays of AdamW, and the delta
rule with an isotropic S, which knows no directions.
"""

import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise

from benchmarks.runner import Arm, Check, Claim, Column, Figures, Tuning

RATES = Tuning("--optimizer.lr", ("1.5e-3", "3e-3", "6e-3", "1e-2", "2e-2"))
SGD_RATES = Tuning("--optimizer.lr", ("0.1", "0.3", "1.0", "3.0"))
ETAS = Tuning("--optimizer.eta", ("0.2", "0.4", "0.8", "1.2"))
WIDTHS = (64, 128, 256)
LONG = ("--trainer.max_epochs", "24")
DIGITS = "zoo/delta_momentum/digits.yaml"
BASE = ("--optimizer.eta", "0")  # AdamW and SGD to the last bit; keys are not captured

CONTROLS = {
    "AdamW, beta1 0.5": (*BASE, "--optimizer.betas", "[0.5,0.95]"),
    "AdamW, beta1 0.8": (*BASE, "--optimizer.betas", "[0.8,0.95]"),
    "AdamW, beta1 0.95": (*BASE, "--optimizer.betas", "[0.95,0.95]"),
    "isotropic S": ("--trainer.callbacks.init_args.route", "isotropic"),
}
SOAP = "SOAP (pytorch-optimizer)"
DIAGNOSED = "DeltaAdamW with diagnostics"


def steps_to(curve: Sequence[tuple[int, float]], target: float) -> float:
    """The step at which a falling curve first meets ``target``; infinity if it never does."""
    before = curve[0]
    for step, value in curve:
        if value <= target:
            share = (before[1] - target) / (before[1] - value) if before[1] > value else 1.0
            return before[0] + share * (step - before[0])
        before = (step, value)
    return float("inf")


def value_at(curve: Sequence[tuple[int, float]], step: float) -> float:
    """The value of a curve at a step between its first and last."""
    for (a, first), (b, second) in pairwise(curve):
        if a <= step <= b:
            return first + (second - first) * (step - a) / (b - a)
    return curve[-1][1]


def _pairs(figures: Figures, ours: str, theirs: str) -> list[tuple[list[tuple[int, float]], ...]]:
    a, b = figures.curves(ours), figures.curves(theirs)
    if not a.keys() & b.keys():
        raise KeyError(ours)
    return [(a[seed], b[seed]) for seed in sorted(a.keys() & b.keys())]


def _fewer_steps(steps: int) -> Callable[[Figures], tuple[bool, str]]:
    def holds(figures: Figures) -> tuple[bool, str]:
        pairs = _pairs(figures, f"DeltaAdamW, {steps} steps", f"AdamW, {steps} steps")
        gaps = [theirs[-1][1] - ours[-1][1] for ours, theirs in pairs]
        saved = [1 - steps_to(ours, theirs[-1][1]) / theirs[-1][0] for ours, theirs in pairs]
        gap, reduction = statistics.mean(gaps), statistics.mean(saved)
        detail = f"{gap:.3f} nats lower, {reduction:.1%} fewer steps, {len(pairs)} seeds"
        return gap >= 0.05 and reduction >= 0.15, detail

    return holds


def _equal_time(steps: int) -> Callable[[Figures], tuple[bool, str]]:
    def holds(figures: Figures) -> tuple[bool, str]:
        ours, theirs = f"DeltaAdamW, {steps} steps", f"AdamW, {steps} steps"
        costs = figures.cost(ours), figures.cost(theirs)
        if costs[0] is None or costs[1] is None:
            raise KeyError(ours)
        ratio = costs[0][0] / costs[1][0]
        gaps = [
            theirs[-1][1] - value_at(ours, ours[-1][0] / max(1.0, ratio))
            for ours, theirs in _pairs(figures, ours, theirs)
        ]
        gap = statistics.mean(gaps)
        return gap > 0, f"{gap:+.3f} nats, at {ratio:.2f} times the time of a step"

    return holds


def _beats(arm: str) -> Check:
    def holds(figures: Figures) -> tuple[bool, str]:
        ours, theirs = (figures.mean(a, "test") for a in ("DeltaAdamW, 200 steps", arm))
        return ours < theirs, f"{ours:.3f} against {theirs:.3f}"

    return Check(f"at 200 steps its test loss is below that of: {arm}", holds)


def _sgd(figures: Figures) -> tuple[bool, str]:
    ours, theirs = (figures.mean(a, "test") for a in ("DeltaSGD, digits", "SGD, digits"))
    pairs = _pairs(figures, "DeltaSGD, digits", "SGD, digits")
    early = [
        statistics.mean(curve[3][1] for curve in curves) for curves in zip(*pairs, strict=True)
    ]
    detail = (
        f"{ours:.4f} against {theirs:.4f}; after 4 epochs {early[0]:.3f} against {early[1]:.3f}"
    )
    return ours <= 0.9 * theirs and early[0] < early[1], detail


def _width(figures: Figures) -> tuple[bool, str]:
    chosen = [figures.chosen[f"eta at width {width}"] for width in WIDTHS]
    places = [ETAS.values.index(str(value)) for value in chosen]
    detail = ", ".join(f"{eta} at {width}" for eta, width in zip(chosen, WIDTHS, strict=True))
    return max(places) - min(places) <= 1, detail


def _diagnosis(measure: str, sign: int) -> Callable[[Figures], tuple[bool, str]]:
    def holds(figures: Figures) -> tuple[bool, str]:
        ours, theirs = (
            figures.mean(DIAGNOSED, "test", f"test_{kind}_{measure}") for kind in ("delta", "ema")
        )
        return sign * ours > sign * theirs, f"{ours:.3f} against {theirs:.3f}"

    return holds


CLAIM = Claim(
    method="delta_momentum",
    metric="test_loss",
    unit="nats",
    validation="val_loss",
    arms=(
        Arm("AdamW, 200 steps", BASE, tune=RATES),
        *(Arm(name, options, tune=RATES) for name, options in CONTROLS.items()),
        Arm(
            SOAP,
            ("--optimizer=pytorch_optimizer.SOAP", "--optimizer.betas", "[0.95,0.95]"),
            tune=RATES,
        ),
        Arm("DeltaAdamW, 200 steps", tune=RATES),
        Arm("AdamW, 600 steps", (*BASE, *LONG), tune=RATES),
        Arm("DeltaAdamW, 600 steps", LONG, tune=RATES),
        Arm("SGD, digits", BASE, tune=SGD_RATES, config=DIGITS),
        Arm("DeltaSGD, digits", tune=SGD_RATES, config=DIGITS),
        *(
            Arm(
                f"eta at width {width}",
                (
                    *("--model.width", str(width), "--model.hidden", str(8 * width // 3)),
                    *("--model.mup", "true", "--model.base_width", "64"),
                    *("--trainer.max_epochs", "4"),
                ),
                tune=ETAS,
            )
            for width in WIDTHS
        ),
        Arm(DIAGNOSED, ("--trainer.callbacks+=zoo.callbacks.DeltaDiagnostics",)),
    ),
    evaluations={"test": ()},
    columns={
        "test": Column("test"),
        "bits per byte": Column("test", ("test_bits_per_byte",)),
        "accuracy": Column("test", ("test_accuracy",)),
    },
    checks=(
        Check("200 steps: 0.05 nats lower, AdamW's loss in 15 % fewer steps", _fewer_steps(200)),
        Check("600 steps: 0.05 nats lower, AdamW's loss in 15 % fewer steps", _fewer_steps(600)),
        Check("200 steps: lower validation loss after the same time", _equal_time(200)),
        Check("600 steps: lower validation loss after the same time", _equal_time(600)),
        *(_beats(name) for name in (*CONTROLS, SOAP)),
        Check("on digits DeltaSGD's test loss is 10 % below SGD's, and sooner", _sgd),
        Check("the best eta is the same or next to it at widths 64, 128 and 256", _width),
        Check("its momentum is nearer to the gradient of a large batch", _diagnosis("cos", 1)),
        Check("it reads values by keys with a smaller error", _diagnosis("error", -1)),
    ),
)

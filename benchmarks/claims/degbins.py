"""DegBins: binned residuals against an additive one with as many parameters, and ablations.

The abstract claims better accuracy, robustness and generalisation than additive residuals, from
binning, from stages with finer bins, and from conditioning on the degradation.
"""

import statistics

from benchmarks.runner import Arm, Check, Claim, Figures

METHOD, ADDITIVE, ONE_STAGE, UNCONDITIONED = (
    "DegBins, 3 stages x 8 bins",
    "additive residual",
    "1 stage x 24 bins",
    "without degradation conditioning",
)


def _binning(figures: Figures) -> tuple[bool, str]:
    ours, theirs = (figures.by_seed(arm, "varying") for arm in (METHOD, ADDITIVE))
    wins = sum(ours[seed] < theirs[seed] for seed in ours)
    mean, other = figures.mean(METHOD, "varying"), figures.mean(ADDITIVE, "varying")
    detail = f"{mean:.3f} against {other:.3f}, better in {wins} of {len(ours)} seeds"
    return mean < other and wins >= 0.8 * len(ours), detail


def _below_bicubic(figures: Figures) -> tuple[bool, str]:
    ours, bicubic = (figures.by_seed(arm, "varying") for arm in (METHOD, "bicubic"))
    gains = [1 - ours[seed] / bicubic[seed] for seed in ours]
    return min(gains) >= 0.08, f"{min(gains):.1%} to {max(gains):.1%} below"


def _beats(arm: str) -> Check:
    def holds(figures: Figures) -> tuple[bool, str]:
        ours, theirs = (figures.by_seed(name, "varying") for name in (METHOD, arm))
        both = ours.keys() & theirs.keys()
        mean, other = (statistics.mean(x[seed] for seed in both) for x in (ours, theirs))
        return mean <= other, f"{mean:.3f} against {other:.3f}, {len(both)} seeds"

    return Check(f"on the mean, DegBins is not worse than: {arm}", holds)


def _stages(figures: Figures) -> tuple[bool, str]:
    means = [figures.mean(METHOD, "varying", f"test_rmse_stage{s}") for s in (1, 2, 3)]
    return means == sorted(means, reverse=True), " -> ".join(f"{mean:.3f}" for mean in means)


def _ranges_follow_blur(figures: Figures) -> tuple[bool, str]:
    mean = figures.mean(METHOD, "varying", "test_widening_vs_blur")
    return mean > 0.2, f"{mean:.2f}"


def _robust(figures: Figures) -> tuple[bool, str]:
    def loss(arm: str, evaluation: str) -> float:
        return figures.mean(arm, evaluation) - figures.mean(arm, "varying")

    pairs = [(loss(METHOD, e), loss(ADDITIVE, e)) for e in ("bicubic", "noisy")]
    detail = "; ".join(f"{ours:+.3f} against {theirs:+.3f}" for ours, theirs in pairs)
    return all(ours <= theirs for ours, theirs in pairs), detail


CLAIM = Claim(
    method="degbins",
    metric="test_rmse",
    unit="cm",
    arms=(
        Arm("bicubic", of=METHOD, metric="test_rmse_bicubic"),
        Arm("guided filter", of=METHOD, metric="test_rmse_guided_filter"),
        Arm(ADDITIVE, ("--model.head", "additive")),
        Arm(ONE_STAGE, ("--model.stages", "1", "--model.bins", "24")),
        Arm(UNCONDITIONED, ("--model.deg_adapt", "false")),
        Arm(METHOD),
    ),
    evaluations={
        "varying": (),
        "bicubic": ("--data.degradation", "bicubic"),
        "noisy": ("--data.degradation", "noisy"),
    },
    checks=(
        Check("binning beats the additive residual, in at least 4 of 5 seeds", _binning),
        Check("every seed is at least 8 % below bicubic", _below_bicubic),
        _beats("guided filter"),
        _beats(ONE_STAGE),
        _beats(UNCONDITIONED),
        Check("errors fall from stage to stage", _stages),
        Check("ranges widen with the blur: rank correlation > 0.2", _ranges_follow_blur),
        Check("on other degradations it loses no more accuracy than the additive", _robust),
    ),
)

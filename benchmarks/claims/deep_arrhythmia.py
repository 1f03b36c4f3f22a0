"""DeepArrhythmia: what context, routing, picture and measurements are worth.

The abstract claims that beats are classified better among their neighbours, and that expensive
evidence, given only to segments that need it, does as well as given to all. Measured on generated
patients, and for context on real excerpts of MIT-BIH too (V against the rest; two patients to train
on). Isolated beats and the plain network on each beat are compared with the minimal state, which
sees no measurements either. Boosting on Tool 2's numbers is the baseline to beat; it trains on all
patients, also on those that the network keeps for its confidence head.
"""

from benchmarks.runner import Arm, Check, Claim, Column, Figures

METHOD, ISOLATED, CNN = "DeepArrhythmia, routed", "isolated beats", "1-D CNN on each beat"
MINIMAL, RICH, RANDOM = "minimal evidence", "rich evidence", "random routing, same share"
BOOSTING, BOOSTING_ALONE = "boosting on Tool 2", "boosting on samples of each beat"
BOOSTING_BOTH = "boosting on samples and Tool 2"
NO_IMAGE, NO_SIGNAL = "without the picture", "without the signal"
REAL = "excerpts: "
BOOST = ("--trainer.callbacks+=zoo.deep_arrhythmia.BoostingBaseline",)
ALONE = ("--model.context", "false", "--model.evidence", "minimal")
PLAIN = (*ALONE, "--model.image_backbone", "none", "--model.layers", "0")
# An epoch of the excerpts is 4 steps, of the generated patients 10.
STEPS = ("--model.steps", "96", "--model.confidence_steps", "24")
EXCERPTS = ("--data.source", "mitdb_sample", *STEPS)


def _above(metric: str, ours: str, theirs: str, margin: float, text: str) -> Check:
    """Ours is at least theirs plus a margin; metrics as the table's rows have them."""

    def holds(figures: Figures) -> tuple[bool, str]:
        a, b = (_value(figures, arm, metric) for arm in (ours, theirs))
        return a >= b + margin, f"{a:.3f} against {b:.3f}"

    return Check(f"{text}: at least {margin:g} above", holds)


def _value(figures: Figures, arm: str, metric: str) -> float:
    """Mean of a metric; arms that share the method's runs have it under a name with a suffix."""
    suffixes = {name: (a.metric or "") for name, a in ARMS.items() if a.of}
    suffix = suffixes.get(arm, "").removeprefix("test_macro_f1")
    return figures.mean(arm, "test", metric + suffix)


def _routing(figures: Figures) -> tuple[bool, str]:
    routed, share = (figures.mean(METHOD, "test", m) for m in ("test_macro_f1", "test_share_rich"))
    best = max(_value(figures, arm, "test_macro_f1") for arm in (MINIMAL, RICH))
    holds = routed >= best - 0.005 and share <= 0.6
    return holds, f"{routed:.3f} against {best:.3f}, {100 * share:.0f} % rich"


def _curve(figures: Figures) -> tuple[bool, str]:
    """By confidence against at random, at shares in between."""
    pairs = []
    for share in range(10, 100, 10):
        names = (f"test_macro_f1_at_{share:03d}", f"test_macro_f1_random_at_{share:03d}")
        pairs.append((share, *(figures.mean(METHOD, "test", name) for name in names)))
    detail = ", ".join(f"{share} %: {a:.3f} against {b:.3f}" for share, a, b in pairs)
    return all(a >= b for _, a, b in pairs), detail


def _at_least(arm: str, metric: str, bound: float, text: str) -> Check:
    def holds(figures: Figures) -> tuple[bool, str]:
        value = figures.mean(arm, "test", metric)
        return value >= bound, f"{value:.3f}"

    return Check(f"{text}: at least {bound:g}", holds)


def _harm(figures: Figures) -> tuple[bool, str]:
    worse, better = (
        figures.mean(METHOD, "test", f"test_rich_{word}_share") for word in ("worse", "better")
    )
    return worse > 0, f"worse on {100 * worse:.1f} %, better on {100 * better:.1f} %"


def _deltas(figures: Figures) -> tuple[bool, str]:
    """No margin is promised: it holds if neither hurts, and says by how much."""
    full = figures.mean(METHOD, "test")
    gains = {arm: full - figures.mean(arm, "test") for arm in (NO_IMAGE, NO_SIGNAL)}
    detail = ", ".join(f"{arm} {-gain:+.3f}" for arm, gain in gains.items())
    return min(gains.values()) >= 0, detail


ARMS = {
    arm.name: arm
    for arm in (
        Arm(BOOSTING_ALONE, of=METHOD, metric="test_macro_f1_boosting_alone"),
        Arm(BOOSTING, of=METHOD, metric="test_macro_f1_boosting"),
        Arm(BOOSTING_BOTH, of=METHOD, metric="test_macro_f1_boosting_both"),
        Arm(CNN, PLAIN),
        Arm(ISOLATED, ALONE),
        Arm(NO_IMAGE, ("--model.image_backbone", "none")),
        Arm(NO_SIGNAL, ("--model.leads", "0")),
        Arm(MINIMAL, of=METHOD, metric="test_macro_f1_minimal"),
        Arm(RICH, of=METHOD, metric="test_macro_f1_rich"),
        Arm(RANDOM, of=METHOD, metric="test_macro_f1_random"),
        Arm(METHOD, BOOST),
        Arm(REAL + BOOSTING_ALONE, of=REAL + METHOD, metric="test_macro_f1_boosting_alone"),
        Arm(REAL + BOOSTING, of=REAL + METHOD, metric="test_macro_f1_boosting"),
        Arm(REAL + BOOSTING_BOTH, of=REAL + METHOD, metric="test_macro_f1_boosting_both"),
        Arm(REAL + CNN, (*PLAIN, *EXCERPTS)),
        Arm(REAL + ISOLATED, (*ALONE, *EXCERPTS)),
        Arm(REAL + MINIMAL, of=REAL + METHOD, metric="test_macro_f1_minimal"),
        Arm(REAL + RICH, of=REAL + METHOD, metric="test_macro_f1_rich"),
        Arm(REAL + METHOD, (*BOOST, *EXCERPTS)),
    )
}

CLAIM = Claim(
    method="deep_arrhythmia",
    metric="test_macro_f1",
    unit="over classes that have beats",
    arms=tuple(ARMS.values()),
    evaluations={"test": ()},
    columns={
        "macro-F1": Column("test", ("test_macro_f1",)),
        "F1 of S": Column("test", ("test_f1_S",)),
        "F1 of V": Column("test", ("test_f1_V",)),
        "F1 of F": Column("test", ("test_f1_F",)),
        "share rich": Column("test", ("test_share_rich",)),
        "AUROC of confidence": Column("test", ("test_confidence_auroc",)),
    },
    checks=(
        _above(
            "test_f1_S", MINIMAL, ISOLATED, 0.25, "C1, F1 of S with context, over isolated beats"
        ),
        _above(
            "test_macro_f1",
            MINIMAL,
            ISOLATED,
            0.08,
            "C1, macro-F1 with context, over isolated beats",
        ),
        _above(
            "test_f1_V",
            REAL + MINIMAL,
            REAL + ISOLATED,
            0.02,
            "C1, excerpts, F1 of V with context, over isolated",
        ),
        _at_least(REAL + METHOD, "test_f1_V", 0.9, "C1, excerpts, F1 of V, routed"),
        _above(
            "test_f1_V",
            REAL + METHOD,
            REAL + BOOSTING_ALONE,
            0.0,
            "Excerpts, F1 of V, over boosting",
        ),
        _above("test_macro_f1", METHOD, BOOSTING, 0.0, "Macro-F1, over boosting on Tool 2"),
        Check("C2, routing: 0.005 below the better state at most, 60 % rich at most", _routing),
        _above("test_macro_f1", METHOD, RANDOM, 0.01, "C2, over random routing of the same share"),
        Check("C2, at each share, the least confident first beats random routing", _curve),
        Check("C3, evidence makes some segments worse", _harm),
        _at_least(METHOD, "test_confidence_auroc", 0.7, "C3, AUROC of confidence"),
        Check("C4, neither picture nor signal can be left out without loss", _deltas),
    ),
)

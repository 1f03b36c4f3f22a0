"""HDR bracket: generated frames and learned weights against direct prediction and classic weights.

The abstract claims better reconstruction than generative baselines of the same capacity, from one
model for highlights and shadows and per-pixel weights of a bracket, while the input stays what it
is. Its preference study cannot be repeated here.
"""

from scipy.stats import binomtest

from benchmarks.runner import Arm, Check, Claim, Column, Figures

METHOD, DIRECT, DIRECT_COMPUTE, HIGHLIGHTS, SHADOWS, IN_FOCUS = (
    "bracket + learned weights",
    "direct log-HDR, as many steps",
    "direct log-HDR, as much compute",
    "highlights only (EV -4 to 0), half the steps",
    "shadows only (EV 0 to 4), half the steps",
    "everything in focus, from a focal stack",
)
INPUT, TRIANGLE, MEAN, DEBEVEC, MERTENS = (
    "input linearised",
    "same bracket, triangle weights",
    "same bracket, mean weights",
    "same bracket, Debevec's merge",
    "same bracket, Mertens' weights",
)
PHOTOGRAPHS = ("photo", "clean", "noisy")
VIEWS = 12  # of the test panoramas
TOLERANCE = 0.1  # dB that count as no worse
FIDELITY = 40.0  # dB


def _above_input(figures: Figures) -> tuple[bool, str]:
    ours, theirs = (figures.by_seed(arm, "photo") for arm in (METHOD, INPUT))
    wins = sum(ours[seed] > theirs[seed] for seed in ours)
    detail = f"{figures.mean(METHOD, 'photo'):.2f} against {figures.mean(INPUT, 'photo'):.2f} dB"
    return wins == len(ours), f"{detail}, better in {wins} of {len(ours)} seeds"


def _no_worse_than_direct(figures: Figures) -> tuple[bool, str]:
    ours, rivals = figures.mean(METHOD, "photo"), (DIRECT, DIRECT_COMPUTE)
    means = [figures.mean(arm, "photo") for arm in rivals]
    detail = f"{ours:.2f} against {means[0]:.2f} and, with its compute, {means[1]:.2f} dB"
    return ours >= max(means) - TOLERANCE, detail


def _more_faithful(figures: Figures) -> tuple[bool, str]:
    ours = figures.mean(METHOD, "clean", "test_reexposure")
    theirs = figures.mean(DIRECT, "clean", "test_reexposure")
    return ours >= max(theirs, FIDELITY), f"{ours:.1f} against {theirs:.1f} dB"


def _learned_weights(figures: Figures) -> tuple[bool, str]:
    names = (
        "test_log2_mae",
        *(f"test_log2_mae_{w}" for w in ("triangle", "mean", "debevec", "mertens")),
    )
    ours, *theirs = (figures.mean(METHOD, "photo", name) for name in names)
    detail = f"{ours:.3f} against {', '.join(f'{value:.3f}' for value in theirs)} stops"
    return ours <= min(theirs), detail


def _learned_weights_on_true_frames(figures: Figures) -> tuple[bool, str]:
    ours, triangle, mean = (
        figures.mean(METHOD, "photo", f"test_pu_psnr_{name}")
        for name in ("true", "true_triangle", "true_mean")
    )
    detail = f"{ours:.2f} against triangle {triangle:.2f}, mean {mean:.2f} dB"
    return ours >= max(triangle, mean) + 1.5, detail


def _no_frame_takes_all(figures: Figures) -> tuple[bool, str]:
    heaviest = figures.mean(METHOD, "photo", "test_heaviest_frame")
    return heaviest <= 0.8, f"{heaviest:.2f}"


def _one_model_for_both(figures: Figures) -> tuple[bool, str]:
    ours = [figures.mean(METHOD, "photo", f"test_log2_{s}") for s in ("clipped", "dark")]
    theirs = [
        figures.mean(HIGHLIGHTS, "photo", "test_log2_clipped"),
        figures.mean(SHADOWS, "photo", "test_log2_dark"),
    ]
    detail = f"clipped {ours[0]:.3f} against {theirs[0]:.3f}, dark {ours[1]:.3f} against "
    return sum(ours) <= sum(theirs), f"{detail}{theirs[1]:.3f} stops"


def _preferred(rival: str) -> Check:
    def holds(figures: Figures) -> tuple[bool, str]:
        shares = figures.by_seed(METHOD, "photo", f"test_preferred_to_{rival}").values()
        views = VIEWS * len(shares)
        wins = round(VIEWS * sum(shares))
        interval = binomtest(wins, views).proportion_ci(method="wilson")
        jods = [figures.mean(METHOD, "photo", f"test_jod{x}") for x in ("", f"_{rival}")]
        detail = f"{wins} of {views}, 95 % interval {interval.low:.2f} to {interval.high:.2f}; "
        return interval.low > 0.5, f"{detail}{jods[0]:.2f} against {jods[1]:.2f} JOD"

    name = {"input": "the input", "debevec": "Debevec's merge"}.get(rival, f"{rival} weights")
    return Check(f"ColorVideoVDP, a stand-in for observers, prefers it to {name}", holds)


def _blending_helps(figures: Figures) -> tuple[bool, str]:
    ours, raw = figures.mean(METHOD, "photo"), figures.mean(METHOD, "fidelity 0")
    return ours > raw, f"{ours:.2f} against {raw:.2f} dB"


def _few_steps(figures: Figures) -> tuple[bool, str]:
    ours, more = figures.mean(METHOD, "photo"), figures.mean(METHOD, "8 steps from 80")
    return ours >= more, f"{ours:.2f} against {more:.2f} dB"


def _in_focus(figures: Figures) -> tuple[bool, str]:
    names = ("test_psnr", *(f"test_psnr_{x}" for x in ("input", "mean", "contrast")))
    ours, blurred, mean, contrast = (figures.mean(IN_FOCUS, "focal stacks", n) for n in names)
    detail = (
        f"{ours:.2f} against the blurred input's {blurred:.2f}, {mean:.2f} by the mean of the "
        f"frames and {contrast:.2f} by their contrast"
    )
    return ours >= blurred + 1 and ours > mean, detail


CLAIM = Claim(
    method="hdr_bracket",
    metric="test_pu_psnr",
    unit="dB",
    options=("--model.perceptual", "[jod]"),
    arms=(
        Arm(INPUT, of=METHOD, metric="test_pu_psnr_input"),
        Arm(
            DIRECT,
            ("--model.baseline", "direct", "--model.generator_steps", "800"),
            evaluations=PHOTOGRAPHS,
        ),
        Arm(
            DIRECT_COMPUTE,
            (
                "--model.baseline",
                "direct",
                "--model.generator_steps",
                "400",
                "--data.batch_size",
                "40",
                "--data.samples_per_epoch",
                "8000",
            ),
            evaluations=("photo",),
        ),
        Arm(
            HIGHLIGHTS,
            ("--model.evs", "[-4,-2,0]", "--model.generator_steps", "200"),
            evaluations=("photo",),
        ),
        Arm(
            SHADOWS,
            ("--model.evs", "[0,2,4]", "--model.generator_steps", "200"),
            evaluations=("photo",),
        ),
        Arm(
            IN_FOCUS,
            config="zoo/hdr_bracket/all_in_focus.yaml",
            evaluations=("focal stacks",),
        ),
        Arm(MEAN, of=METHOD, metric="test_pu_psnr_mean"),
        Arm(TRIANGLE, of=METHOD, metric="test_pu_psnr_triangle"),
        Arm(DEBEVEC, of=METHOD, metric="test_pu_psnr_debevec"),
        Arm(MERTENS, of=METHOD, metric="test_pu_psnr_mertens"),
        Arm(METHOD, evaluations=(*PHOTOGRAPHS, "fidelity 0", "8 steps from 80")),
    ),
    evaluations={
        "photo": (),
        "clean": ("--data.camera", "clean"),
        "noisy": ("--data.camera", "noisy"),
        "fidelity 0": ("--model.fidelity", "0"),
        "8 steps from 80": ("--model.steps", "8", "--model.sigma_max", "80"),
        "focal stacks": (),
    },
    columns={
        "photo": Column("photo"),
        "no noise": Column("clean"),
        "noisy": Column("noisy"),
        "error where clipped (stops)": Column("photo", ("test_log2_clipped",)),
        "re-exposed (dB)": Column("clean", ("test_reexposure",)),
        "JOD": Column("photo", ("test_jod",)),
        "focal stacks, PSNR": Column("focal stacks", ("test_psnr",)),
    },
    checks=(
        Check("every seed is above the input linearised as it is", _above_input),
        Check("the bracket is no more than 0.1 dB below direct prediction", _no_worse_than_direct),
        Check(
            "re-exposed, the result gives back unclipped input at 40 dB, better than direct",
            _more_faithful,
        ),
        Check("learned weights have the lowest error on the generated frames", _learned_weights),
        Check(
            "on true frames with a generator's errors they gain 1.5 dB",
            _learned_weights_on_true_frames,
        ),
        Check("no frame has a mean weight above 0.8", _no_frame_takes_all),
        Check(
            "one model is no worse than one for each end with half the steps", _one_model_for_both
        ),
        Check("the re-exposed input, where it is known, is worth its place", _blending_helps),
        Check("2 steps of the sampler from 20 are enough", _few_steps),
        *(_preferred(rival) for rival in ("input", "triangle", "mean", "debevec", "mertens")),
        Check("in focus by 1 dB, and better than the mean of the frames", _in_focus),
    ),
)

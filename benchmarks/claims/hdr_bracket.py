"""HDR bracket: generated frames and learned weights against direct prediction and classic weights.

The abstract claims better reconstruction than generative baselines of the same capacity, from one
model for highlights and shadows and per-pixel weights of a bracket, while the input stays what it
is. Its preference study cannot be repeated here.
"""

from benchmarks.runner import Arm, Check, Claim, Figures

METHOD, DIRECT, DIRECT_COMPUTE, HIGHLIGHTS, SHADOWS, UNBLENDED, MANY_STEPS = (
    "bracket + learned weights",
    "direct log-HDR, as many steps",
    "direct log-HDR, as much compute",
    "highlights only (EV -4 to 0), half the steps",
    "shadows only (EV 0 to 4), half the steps",
    "without the re-exposed input (fidelity 0)",
    "8 steps of the sampler from 80",
)
INPUT, TRIANGLE, MEAN, DEBEVEC = (
    "input linearised",
    "same bracket, triangle weights",
    "same bracket, mean weights",
    "same bracket, Debevec's merge",
)
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
    names = ("test_log2_mae", *(f"test_log2_mae_{w}" for w in ("triangle", "mean", "debevec")))
    ours, *others = (figures.mean(METHOD, "photo", name) for name in names)
    detail = f"{ours:.3f} against {', '.join(f'{value:.3f}' for value in others)} stops"
    return ours <= min(others), detail


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


CLAIM = Claim(
    method="hdr_bracket",
    metric="test_pu_psnr",
    unit="dB",
    arms=(
        Arm(INPUT, of=METHOD, metric="test_pu_psnr_input"),
        Arm(DIRECT, ("--model.baseline", "direct", "--model.generator_steps", "480")),
        Arm(
            DIRECT_COMPUTE,
            (
                "--model.baseline",
                "direct",
                "--model.generator_steps",
                "480",
                "--data.batch_size",
                "40",
                "--data.samples_per_epoch",
                "6400",
            ),
        ),
        Arm(HIGHLIGHTS, ("--model.evs", "[-4,-2,0]", "--model.generator_steps", "160")),
        Arm(SHADOWS, ("--model.evs", "[0,2,4]", "--model.generator_steps", "160")),
        Arm(UNBLENDED, ("--model.fidelity", "0")),
        Arm(MANY_STEPS, ("--model.steps", "8", "--model.sigma_max", "80")),
        Arm(MEAN, of=METHOD, metric="test_pu_psnr_mean"),
        Arm(TRIANGLE, of=METHOD, metric="test_pu_psnr_triangle"),
        Arm(DEBEVEC, of=METHOD, metric="test_pu_psnr_debevec"),
        Arm(METHOD),
    ),
    evaluations={
        "photo": (),
        "clean": ("--data.camera", "clean"),
        "noisy": ("--data.camera", "noisy"),
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
    ),
)

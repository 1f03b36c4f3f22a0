"""Pictures: strips with classes and confidence, the network's own picture, the routing curve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from zoo.deep_arrhythmia.routing import SHARES
from zoo.ecg.beats import CLASSES, MEANING
from zoo.ecg.strip import EDGE_S, FS

if TYPE_CHECKING:
    from torch import Tensor

    from zoo.deep_arrhythmia.result import Beats

#: Colours of the classes that people with colour-vision deficiencies tell apart (Okabe and Ito).
COLOURS = dict(zip(CLASSES, ("#4d4d4d", "#0072b2", "#d55e00", "#009e73", "#cc79a7"), strict=True))
RICH = "#e69f00"
WINDOW_S = 10.0


def segment(batch: Mapping[str, Tensor], said: Mapping[str, Tensor], record: str) -> Figure:
    """One segment of an evaluation: signal with classes, and the picture that the network sees."""
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    axes = figure.subplots(2, 1, height_ratios=(1, 1.2))
    signal = batch["signal"][0].numpy()
    seconds = np.arange(len(signal)) / FS
    axes[0].plot(seconds, signal, color="black", linewidth=0.8)
    found = said["logits"].argmax(dim=-1).tolist()
    top = signal.max() + 0.12 * np.ptp(signal)
    for place in batch["mask"].nonzero()[:, 0].tolist():
        at, label = int(batch["peaks"][place]) / FS, int(batch["label"][place])
        name = CLASSES[found[place]]
        known = 0 <= label < len(CLASSES)
        note = f"{name}\n(is {CLASSES[label]})" if known and label != found[place] else name
        weight = "bold" if name != "N" or (known and label != found[place]) else "normal"
        alpha = 1.0 if label >= 0 else 0.35  # another segment classifies it
        axes[0].text(
            at, top, note, ha="center", va="bottom", weight=weight, color=COLOURS[name], alpha=alpha
        )
    state = "rich" if said["state"] else "minimal"
    axes[0].set(
        xlim=(0, len(signal) / FS),
        ylim=(signal.min() - 0.2, top + 0.25 * np.ptp(signal)),
        ylabel="normalised",
        title=f"{record}: confidence {float(said['confidence']):.2f}, {state} evidence",
    )
    axes[1].imshow(batch["image"].permute(1, 2, 0).numpy(), aspect="auto", interpolation="nearest")
    axes[1].set(xticks=[], yticks=[], title="the picture that the network sees")
    return figure


def routing_curve(curve: Tensor) -> Figure:
    """Macro-F1 on validation as more segments take the rich state."""
    figure = Figure(figsize=(5.5, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(SHARES, curve[0], marker="o", color=RICH, label="least confident first")
    axes.plot(SHARES, curve[1], linestyle="--", color="grey", label="at random")
    axes.set(
        xlabel="segments with rich evidence (%)",
        ylabel="macro-F1, validation",
        title="What evidence adds, and where",
    )
    axes.legend()
    return figure


def strip(beats: Beats, start: float) -> Figure:
    """Ten seconds of a record with its beats' classes and each segment's confidence."""
    figure = Figure(figsize=(12, 4), layout="constrained")
    axes = figure.subplots()
    signal, fs = beats.strip_signal
    start = min(max(start, 0.0), max(len(signal) / fs - WINDOW_S, 0.0))
    low, high = int(start * fs), int((start + WINDOW_S) * fs)
    shown = signal[low:high]
    axes.plot(np.arange(low, low + len(shown)) / fs, shown, color="black", linewidth=0.8)
    bottom, span = float(shown.min()), float(np.ptp(shown)) or 1.0
    top = bottom + 1.08 * span
    used: dict[str, None] = {}
    for beat in beats:
        at = beat["sample"] / beats.fs
        if start <= at < start + WINDOW_S:
            name = beat["label"]
            used[name] = None
            text: Any = {"ha": "center", "va": "bottom", "color": COLOURS[name]}
            axes.text(at, top, name, weight="bold" if name != "N" else "normal", **text)
            axes.text(at, top + 0.08 * span, f"{beat['prob']:.2f}", fontsize=7, **text)
    for note in beats.segments:
        left, right = max(note.start, start), min(note.end, start + WINDOW_S)
        if right - left > 1.5 * EDGE_S:  # room for its words
            _segment_bar(axes, note, left, right, bottom - 0.15 * span, span)
    names = ", ".join(f"{name} {MEANING[name]}" for name in CLASSES if name in used)
    axes.set(
        xlim=(start, start + WINDOW_S),
        ylim=(bottom - 0.3 * span, top + 0.2 * span),
        xlabel="s",
        ylabel="mV",
        title=f"{beats.record}, R peaks: {beats.detector}. {names}",
    )
    return figure


def _segment_bar(axes: Any, note: Any, left: float, right: float, y: float, span: float) -> None:
    """The part of a segment in view: its confidence and state, or why nothing is said."""
    colour = "lightgrey" if note.flag else RICH if note.state else "#56b4e9"
    axes.plot([left, right], [y, y], color=colour, linewidth=6, solid_capstyle="butt")
    state = "rich" if note.state else "minimal"
    text = note.flag or f"{state}, confidence {note.confidence:.2f}"
    axes.text((left + right) / 2, y - 0.03 * span, text, ha="center", va="top", fontsize=8)

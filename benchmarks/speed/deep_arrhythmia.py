"""DeepArrhythmia's default network on a record of 30 minutes, its tools, and neurokit2, in one run.

    python -m benchmarks.speed.deep_arrhythmia

Prints seconds for the record (all minimal, routed with a third of the segments rich, all rich), the
share of each tool, beats a second beside neurokit2's delineation, and the time of a picture. The
record is number 100 of MIT-BIH, which comes with the package. Weights are random, which changes no
time but for which segments are rich, so the threshold is set to the confidences' lower third. The R
peaks that were found are forgotten before each run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.speed.timing import in_turns
from zoo.datamodules.ecg_segments.sources import SAMPLES
from zoo.deep_arrhythmia import DeepArrhythmia
from zoo.ecg.peaks import RPeakTool
from zoo.ecg.records import read_record
from zoo.ecg.render import render_ecg
from zoo.ecg.strip import FS, cuts, prepare, rr_context, take

ROUNDS, PICTURES = 3, 50
SHARE = 1 / 3  # of segments that the routed run takes for doubtful
DELINEATED_S = 60  # of the record, that neurokit2 delineates


def main() -> None:
    """Times everything and prints it."""
    torch.manual_seed(0)
    model = DeepArrhythmia()
    record = read_record(SAMPLES / "100")
    source = SAMPLES / "100"

    def annotate(evidence: str) -> Callable[[], Any]:
        def call() -> Any:
            model.peak_tool = RPeakTool("xqrs")
            model.evidence = evidence
            return model.annotate(source)

        return call

    beats = annotate("minimal")()
    model.threshold.fill_(float(np.quantile([n.confidence for n in beats.segments], SHARE)))
    strip = prepare(record)
    peaks = RPeakTool("xqrs")(strip.signal[0], FS)
    rr = rr_context(peaks, FS)
    segments = [
        take(strip, peaks, rr, c, model.size) for c in cuts(strip.signal.shape[1], model.size, FS)
    ]
    arrays = [np.stack([getattr(s, k) for s in segments]) for k in ("strip", "peaks", "mask", "rr")]
    measure = model.measure_tool
    measures = measure(arrays[0][:, 0], *arrays[1:], FS)
    candidates = {
        "the record, all minimal": annotate("minimal"),
        f"the record, routed ({SHARE:.0%} rich)": annotate("route"),
        "the record, all rich": annotate("rich"),
        "filter and resampling": lambda: prepare(record),
        "Tool 1, xqrs": lambda: RPeakTool("xqrs")(strip.signal[0], FS),
        "Tool 2, all beats": lambda: measure(arrays[0][:, 0], *arrays[1:], FS),
        "Tool 3, all beats": lambda: model.report_tool(measures),
        "a picture of 10 s": lambda: [
            render_ecg(segments[i].strip[:, FS:-FS], segments[i].peaks[segments[i].mask], FS)
            for i in range(PICTURES)
        ],
    }
    seconds = in_turns(candidates, ROUNDS)
    seconds["a picture of 10 s"] /= PICTURES
    for name, value in seconds.items():
        sys.stdout.write(f"{name}: {1000 * value:.1f} ms\n")
    count = len(peaks)
    rich, routed = (seconds[k] for k in ("the record, all rich", list(candidates)[1]))
    sys.stdout.write(
        f"{count} beats in {record.signal.shape[1] / record.fs / 60:.0f} minutes: "
        f"{count / routed:.0f} beats/s routed, {count / rich:.0f} all rich; "
        f"routing saves {1 - routed / rich:.0%}; {torch.get_num_threads()} threads\n"
    )
    delineate(strip.signal[0, : DELINEATED_S * FS])
    sys.stdout.write(f"Tool 2 alone: {count / seconds['Tool 2, all beats']:.0f} beats/s\n")


def delineate(signal: np.ndarray[Any, Any]) -> None:
    """neurokit2's discrete wavelet delineation: P, QRS and T limits, but no classes."""
    try:
        import neurokit2
    except ImportError:
        sys.stdout.write('neurokit2 is not there: pip install "lightning-zoo[peers]"\n')
        return
    peaks = neurokit2.ecg_peaks(signal, sampling_rate=FS)[1]["ECG_R_Peaks"]
    start = time.perf_counter()
    neurokit2.ecg_delineate(signal, peaks, sampling_rate=FS, method="dwt")
    elapsed = time.perf_counter() - start
    sys.stdout.write(f"neurokit2 delineation: {len(peaks) / elapsed:.0f} beats/s\n")


if __name__ == "__main__":
    main()

"""Tools 2 and 3: what is measured, and what is said of it."""

import numpy as np
import pytest
import torch

from zoo.datamodules.ecg_segments.synthetic import F, V, synthetic_record
from zoo.deep_arrhythmia.measures import INDEX, MEASURES, MeasureTool
from zoo.deep_arrhythmia.report import (
    LENGTH,
    PHRASES,
    WORDS,
    ReportTool,
    from_text,
    to_ids,
    to_text,
)
from zoo.deep_arrhythmia.vlm import VlmReport
from zoo.ecg.strip import FS, cuts, prepare, rr_context, take


def measured(truth, tool=None):
    """Measures of all beats of a record, each once, with their numbers. Shapes: (n, 16), (n,)."""
    strip = prepare(truth.record)
    peaks = strip.from_original(truth.record.peaks)
    rr = rr_context(peaks, FS)
    found = [take(strip, peaks, rr, c, 2500) for c in cuts(strip.signal.shape[1], 2500, 250)]
    arrays = (np.stack([getattr(s, k) for s in found]) for k in ("strip", "peaks", "mask", "rr"))
    lead, *rest = arrays
    values = (tool or MeasureTool())(lead[:, 0], *rest, FS)
    own = np.stack([s.scored for s in found])
    return values[own], np.stack([s.index for s in found])[own]


@pytest.fixture(scope="module")
def beats():
    """Measures, true QRS widths, RR intervals and classes of 24 generated patients."""
    rows = []
    for patient in range(24):
        truth = synthetic_record(0, "test", patient, 66.0)
        values, index = measured(truth)
        rr = np.diff(truth.times, prepend=np.nan)[index]
        rows.append((values, truth.qrs_width[index], rr, truth.record.labels[index]))
    return tuple(np.concatenate(parts) for parts in zip(*rows, strict=True))


def test_c5_widths_and_intervals_are_those_of_the_generator(beats):
    values, width, rr, _ = beats
    assert np.nanmedian(np.abs(values[:, INDEX["qrs_width"]] - width)) < 0.020
    assert np.nanmedian(np.abs(values[:, INDEX["pre_rr"]] - rr)) < 0.008
    assert np.isnan(values[:, INDEX["qrs_width"]]).mean() < 0.05


def test_wide_beats_measure_wide_and_have_no_p_wave(beats):
    values, width, rr, kinds = beats
    measured_width = values[:, INDEX["qrs_width"]]
    known = np.isfinite(measured_width) & (kinds != F)  # a fusion beat's width is a matter of taste
    narrow, wide = known & (width < 0.1), known & (width > 0.14)
    assert np.median(measured_width[wide]) > np.median(measured_width[narrow]) + 0.05
    errors = np.abs(measured_width - width)[known]
    assert np.quantile(errors, 0.75) < 0.025
    p = np.abs(values[:, INDEX["p_amplitude"]])
    clear = (kinds == V) & (rr > 0.55)  # else the T wave before it stands where a P wave would
    assert clear.sum() > 20
    assert np.nanmedian(p[clear]) < 0.6 * np.nanmedian(p[kinds == 0])
    assert np.nanmedian(values[kinds == V, INDEX["t_concordance"]]) < 0
    shape = values[:, INDEX["shape"]]
    assert np.nanmedian(shape[kinds == V]) < 0.8 < 0.95 < np.nanmedian(shape[kinds == 0])


def test_rhythm_by_hand():
    """Beats at 1 s, one 30 % early with a full pause after it."""
    peaks = np.array([[250, 500, 675, 1000, 1250]])
    rr = rr_context(peaks[0], FS)[None]
    values = MeasureTool()(np.zeros((1, 3000), np.float32), peaks, np.ones((1, 5), bool), rr, FS)[0]
    early = dict(zip(MEASURES, values[2], strict=True))
    assert early["pre_rr"] == pytest.approx(0.7)
    assert early["post_rr"] == pytest.approx(1.3)
    assert early["pre_relative"] == pytest.approx(0.7)
    assert early["post_relative"] == pytest.approx(1.3)
    assert early["pre_post"] == pytest.approx(0.7 / 1.3)
    assert early["pause"] == pytest.approx(2.0 / (2 * np.median([0.7, 1.0])))
    differences = np.diff([1.0, 0.7, 1.3, 1.0])
    assert early["rmssd"] == pytest.approx(np.sqrt((differences**2).mean()))


def test_what_is_not_measurable_is_nan_and_padding_too():
    truth = synthetic_record(0, "test", 1, 12.0)
    values, _ = measured(truth)
    assert np.isnan(values[0, INDEX["pre_rr"]])
    assert np.isnan(values[-1, INDEX["post_rr"]])
    strip = np.full((1, 3000), np.nan, np.float32)
    rr = np.full((1, 2, 12), np.nan, np.float32)
    nothing = MeasureTool()(strip, np.array([[100, 0]]), np.array([[True, False]]), rr, FS)
    assert np.isnan(nothing).all()


def test_a_batch_measures_what_one_segment_does():
    truth = synthetic_record(0, "test", 2, 34.0)
    strip = prepare(truth.record)
    peaks = strip.from_original(truth.record.peaks)
    rr = rr_context(peaks, FS)
    tool = MeasureTool()
    together, _ = measured(truth, tool)
    found = cuts(strip.signal.shape[1], 2500, 250)
    assert tool.calls == len(found)
    alone = []
    for cut in found:
        s = take(strip, peaks, rr, cut, 2500)
        values = tool(s.strip[:1], s.peaks[None], s.mask[None], s.rr[None], FS)[0]
        alone.append(values[s.scored])
    assert np.array_equal(np.concatenate(alone), together, equal_nan=True)


def codes_of(**given):
    values = np.full((1, 1, len(MEASURES)), np.nan, np.float32)
    for name, value in given.items():
        values[..., INDEX[name]] = value
    return ReportTool()(values)[0, 0]


def test_report_of_an_ectopic_beat():
    codes = codes_of(
        pre_relative=0.7,
        qrs_width=0.148,
        p_amplitude=0.01,
        t_concordance=-0.3,
        shape=0.2,
        pause=1.0,
    )
    assert to_text(codes, 4) == (
        "beat 4: early by 30 percent, wide QRS 140 ms, no P wave, discordant T, "
        "pattern unlike neighbours, full compensatory pause."
    )
    normal = codes_of(pre_relative=1.0, qrs_width=0.08, p_amplitude=0.12, shape=0.99, pause=1.0)
    assert to_text(normal, 1) == (
        "beat 1: on time, narrow QRS 80 ms, P wave, T unknown, pattern like neighbours, no pause."
    )


def test_grammar_is_closed_and_reads_what_it_writes():
    assert len(WORDS) < 64
    rng = np.random.default_rng(0)
    codes = np.stack([rng.integers(0, len(p), 500) for p in PHRASES], axis=-1)
    ids = to_ids(codes)
    assert ids.shape == (500, LENGTH)
    assert ids.max() < len(WORDS)
    for code, sentence in zip(codes, ids, strict=True):
        text = to_text(code, 7)
        assert np.array_equal(from_text(text), code)
        spoken = [WORDS[i] for i in sentence if i > 0][1:]
        assert spoken == text.lower().split(": ")[1].replace(",", "").rstrip(".").split()
    assert (from_text("I cannot help with that") == [len(s) - 1 for s in PHRASES[:-1]] + [4]).all()


def test_answers_of_a_vision_language_model_are_read_and_kept(tmp_path):
    asked = []

    def ask(picture, prompt):
        asked.append((picture.size, prompt))
        return "Early by 30 percent, wide QRS 160 ms, no P wave, and a discordant T!"

    tool = VlmReport("some/model", tmp_path, ask)
    torch.manual_seed(0)
    images = torch.rand(2, 3, 32, 96)
    peaks, mask = np.array([[300, 900], [700, 0]]), np.array([[True, True], [True, False]])
    codes = tool(images, peaks, mask, 2500)
    assert codes.shape == (2, 2, 6)
    assert "early by 30 percent, wide QRS 160 ms, no P wave" in to_text(codes[0, 1], 1)
    assert "timing unknown" in to_text(codes[1, 1], 1)
    assert len(asked) == 3
    assert "wide QRS 160 ms" in asked[0][1]
    again = VlmReport("some/model", tmp_path, None)
    assert np.array_equal(again(images, peaks, mask, 2500), codes)

"""Tool 3: the shape and timing of a beat in words, one sentence from a fixed grammar.

The sentence is made of phrases, one from each slot; a phrase stands for a bin, so that no number of
the measurements passes. It is chosen by thresholds, without learned weights.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from zoo.deep_arrhythmia.measures import INDEX


class Slot(NamedTuple):
    """One place of the sentence: bin edges of a measure, and a phrase for each bin and for NaN."""

    edges: tuple[float, ...]
    phrases: tuple[str, ...]
    unknown: str


TIMING = Slot(
    (0.65, 0.75, 0.85, 0.92, 1.08, 1.2),
    (
        "early by 40 percent",
        "early by 30 percent",
        "early by 20 percent",
        "early by 10 percent",
        "on time",
        "late by 10 percent",
        "late by 30 percent",
    ),
    "timing unknown",
)
QRS = Slot(
    (0.07, 0.09, 0.11, 0.12, 0.13, 0.15, 0.17),
    (
        "narrow QRS 60 ms",
        "narrow QRS 80 ms",
        "narrow QRS 100 ms",
        "narrow QRS 115 ms",
        "wide QRS 125 ms",
        "wide QRS 140 ms",
        "wide QRS 160 ms",
        "wide QRS 180 ms",
    ),
    "QRS unknown",
)
P_WAVE = Slot(
    (-0.05, 0.05, 0.1),
    ("inverted P wave", "no P wave", "small P wave", "P wave"),
    "P wave unknown",
)
T_WAVE = Slot(
    (-0.08, 0.08),
    ("discordant T", "flat T", "concordant T"),
    "T unknown",
)
PATTERN = Slot(
    (0.7, 0.9),
    ("pattern unlike neighbours", "pattern somewhat like neighbours", "pattern like neighbours"),
    "pattern unknown",
)
PAUSE = Slot(
    (0.62, 0.93, 1.06),
    ("interpolated", "incomplete pause", "full compensatory pause", "long pause"),
    "pause unknown",
)
NO_PAUSE = "no pause"  # after a beat that was not early
SLOTS = (TIMING, QRS, P_WAVE, T_WAVE, PATTERN, PAUSE)
SOURCES = ("pre_relative", "qrs_width", "p_amplitude", "t_concordance", "shape", "pause")
EARLY = TIMING.edges.index(0.92)  # timing bins up to this one are early

#: All phrases of each slot: its bins, unknown, and for the last one no pause.
PHRASES = tuple(
    (*slot.phrases, slot.unknown, *((NO_PAUSE,) if slot is PAUSE else ())) for slot in SLOTS
)
PAD, BEGIN = "[PAD]", "[CLS]"
WORDS = (PAD, BEGIN, *sorted({w for slot in PHRASES for p in slot for w in p.lower().split()}))
WORD_ID = {word: i for i, word in enumerate(WORDS)}


def _phrase_ids(phrases: tuple[str, ...]) -> NDArray[np.int64]:
    """Word ids of each phrase, padded. Shape: (phrases, words)."""
    words = [p.lower().split() for p in phrases]
    width = max(map(len, words))
    return np.array([[WORD_ID[w] for w in x] + [0] * (width - len(x)) for x in words], np.int64)


_TABLES = tuple(_phrase_ids(phrases) for phrases in PHRASES)
LENGTH = 1 + sum(table.shape[1] for table in _TABLES)


class ReportTool:
    """Writes reports, and counts for how many segments it was asked to.

    Attributes:
        calls: Segments reported so far.
    """

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, measures: NDArray[np.float32]) -> NDArray[np.int64]:
        """Which phrase each slot takes.

        Args:
            measures: Of Tool 2. Shape: (B, n, 16).

        Returns:
            Indices into ``PHRASES``. Shape: (B, n, 6).
        """
        self.calls += len(measures)
        codes = []
        for name, slot in zip(SOURCES, SLOTS, strict=True):
            value = measures[..., INDEX[name]]
            code = np.digitize(value, slot.edges)
            codes.append(np.where(np.isnan(value), len(slot.phrases), code))
        late = (codes[0] > EARLY) & (codes[-1] < len(PAUSE.phrases) - 1)
        codes[-1] = np.where(late, len(PAUSE.phrases) + 1, codes[-1])
        return np.stack(codes, axis=-1)


def to_ids(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Word ids of the sentences for the text encoder. Shape: (..., 6) gives (..., L).

    They begin with ``[CLS]``; phrases keep their places, and padding fills them up. The beat's
    number is for people and left out.
    """
    begin = np.full((*codes.shape[:-1], 1), WORD_ID[BEGIN], np.int64)
    return np.concatenate([begin, *(t[codes[..., i]] for i, t in enumerate(_TABLES))], axis=-1)


def to_text(codes: NDArray[np.int64], number: int) -> str:
    """The sentence of one beat. Shape: (6,)."""
    return f"beat {number}: {', '.join(p[c] for p, c in zip(PHRASES, codes, strict=True))}."


def from_text(sentence: str) -> NDArray[np.int64]:
    """The nearest sentence of the grammar to what a language model wrote. Shape: (6,).

    In each slot the longest phrase that occurs, else unknown.
    """
    words = " ".join(sentence.lower().replace(",", " ").replace(".", " ").split())
    codes = []
    for slot, phrases in zip(SLOTS, PHRASES, strict=True):
        there = [i for i, p in enumerate(phrases) if f" {p.lower()} " in f" {words} "]
        codes.append(max(there, key=lambda i: len(phrases[i]), default=len(slot.phrases)))
    return np.array(codes, np.int64)

"""Lexical retrieval: BM25 over a fixed list of texts."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from zoo.errors import missing_extra

WORD = re.compile(r"[^\W_]+")


def words(text: str) -> list[str]:
    """Lower-case runs of letters and digits."""
    return WORD.findall(text.lower())


class BM25Index:
    """Okapi BM25 in Lucene's form, whose scores are at least 0 (package ``bm25s``).

    Args:
        texts: To search; may be empty, as may be each of them.
        k1: Saturation of a word's count.
        b: How much long texts are held back, from 0 to 1.
    """

    def __init__(self, texts: Sequence[str], k1: float = 1.5, b: float = 0.75) -> None:
        try:
            import bm25s
        except ImportError:
            raise missing_extra("bm25s", "agents") from None
        self.size = len(texts)
        corpus = [words(text) for text in texts]
        self._bm25 = None
        if any(corpus):
            self._bm25 = bm25s.BM25(k1=k1, b=b, method="lucene")
            self._bm25.index(corpus, show_progress=False)

    def scores(self, query: str) -> np.ndarray:
        """Of each text. Shape: (N,) float32, at least 0."""
        asked = words(query)
        if self._bm25 is None or not asked:
            return np.zeros(self.size, dtype=np.float32)
        return np.asarray(self._bm25.get_scores(asked), dtype=np.float32)

    def top(self, query: str, k: int) -> list[int]:
        """Indices of the k best texts, best first; equal scores in the order of the texts."""
        return [int(i) for i in np.argsort(-self.scores(query), kind="stable")[:k]]

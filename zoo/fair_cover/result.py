"""What a solved instance comes back as."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zoo.atomic import write_json, write_text
from zoo.cover_files import CoverInstance
from zoo.fair_cover.program import Bools, Ints


@dataclass(frozen=True)
class CoverSolution:
    """One realisation of the random choice, and how far from optimal it can be.

    Attributes:
        instance: What was solved.
        selected: Numbers of the chosen sets. Shape: (s,).
        cost: Of them.
        bound: No choice that covers this draw's hard elements and meets the groups costs less.
        ratio: Cost over bound: the certificate. Infinite where the bound is 0 and the cost is not.
        theta: Threshold of this draw; NaN if each element had its own.
        rounds: Of sampling.
        programs: Linear programs that were solved.
        completed: Whether greedy choice had to complete it.
        covered: Which elements are covered. Shape: (n,).
        group_counts: Covered members of each group. Shape: (l,).
        seconds: Wall time.
    """

    instance: CoverInstance
    selected: Ints
    cost: float
    bound: float
    ratio: float
    theta: float
    rounds: int
    programs: int
    completed: bool
    covered: Bools
    group_counts: Ints
    seconds: float

    @property
    def names(self) -> list[str]:
        """Of the chosen sets."""
        return [self.instance.set_name(int(i)) for i in self.selected]

    @property
    def slack(self) -> Ints:
        """Covered members of each group beyond its need: never negative. Shape: (l,)."""
        found: Ints = self.group_counts - self.instance.need
        return found

    def save(self, path: str | Path) -> list[Path]:
        """Writes ``<path>.csv``, ``<path>_groups.csv`` and ``<path>.json``, the certificate.

        Args:
            path: Without suffix.
        """
        path = Path(path)
        files = [path.with_name(f"{path.name}{end}") for end in (".csv", "_groups.csv", ".json")]
        rows = [(self.instance.set_name(int(i)), self.instance.cost[i]) for i in self.selected]
        write_text(files[0], _table(("id", "cost"), rows))
        sizes = np.diff(self.instance.groups.indptr)
        groups = [
            (self.instance.group_name(i), sizes[i], self.instance.need[i], self.group_counts[i])
            for i in range(len(sizes))
        ]
        write_text(files[1], _table(("group", "members", "need", "covered"), groups))
        record = {
            "instance": self.instance.name,
            "cost": self.cost,
            "bound": self.bound,
            "ratio": self.ratio,
            "theta": None if np.isnan(self.theta) else self.theta,
            "rounds": self.rounds,
            "linear_programs": self.programs,
            "covered": int(self.covered.sum()),
        }
        write_json(files[2], record)
        return files


def _table(head: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    return text.getvalue()

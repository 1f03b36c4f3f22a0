"""Covering instances: what they are, and the files that people keep them in.

Formats: our own tables (``sets.csv``, ``membership.csv``, ``groups.csv``, ``group_targets.csv``,
``elements.csv`` in one folder), OR-Library's set covering files ``scp*.txt`` and ``rail*.txt``,
transactions in FIMI's ``.dat``, and edge lists of graphs, whose sets are the closed neighbourhoods.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2
from scipy.sparse import csr_array, vstack
from scipy.sparse.linalg import svds

from zoo.errors import ZooError

SUFFIXES = (".txt", ".dat", ".edges")
LISTED = 10  # offenders that an error names
SHARE = 0.6  # of a group's coverable members that it needs, where a file says nothing
COMPONENTS = 8  # of the set system that elements without groups are clustered by


@dataclass(frozen=True)
class CoverInstance:
    """Choose sets at least cost: groups need covered members, elements a chance of being covered.

    Attributes:
        membership: A, which element is in which set. Shape: (n, M), CSR of 0 and 1.
        cost: Of each set, > 0. Shape: (M,).
        groups: G, which element is in which group; groups may overlap. Shape: (l, n), CSR.
        need: k, members of each group that must be covered. Shape: (l,).
        promise: p, the least chance of each element of being covered, 0..1. Shape: (n,).
        sets: Names.
        elements: Names.
        group_names: Names.
        name: Of the instance.
        set_places: For maps; ``None`` if there is none. Shape: (M, 2).
        element_places: Shape: (n, 2).
    """

    membership: csr_array
    cost: NDArray[np.float64]
    groups: csr_array
    need: NDArray[np.int64]
    promise: NDArray[np.float64]
    sets: Sequence[str] = field(default_factory=list)
    elements: Sequence[str] = field(default_factory=list)
    group_names: Sequence[str] = field(default_factory=list)
    name: str = "instance"
    set_places: NDArray[np.float64] | None = None
    element_places: NDArray[np.float64] | None = None

    @property
    def coverable(self) -> NDArray[np.bool_]:
        """Elements that are in any set. Shape: (n,)."""
        found: NDArray[np.bool_] = np.diff(self.membership.indptr) > 0
        return found

    def set_name(self, number: int) -> str:
        """What a set is called."""
        return self.sets[number] if len(self.sets) else str(number)

    def element_name(self, number: int) -> str:
        """What an element is called."""
        return self.elements[number] if len(self.elements) else str(number)

    def group_name(self, number: int) -> str:
        """What a group is called."""
        return self.group_names[number] if len(self.group_names) else str(number)

    def check(self) -> CoverInstance:
        """The instance itself, if it can be solved.

        Raises:
            ZooError: For a cost or chance out of range, an element that must but cannot be covered,
                or a group that needs more than can be covered.
        """
        bad = np.flatnonzero(~(self.cost > 0) | ~np.isfinite(self.cost))
        if len(bad):
            raise ZooError(
                f"{self.name}: the set '{self.set_name(bad[0])}' costs {self.cost[bad[0]]:g}: "
                "expected a finite number > 0."
            )
        bad = np.flatnonzero(~((self.promise >= 0) & (self.promise <= 1)))
        if len(bad):
            raise ZooError(
                f"{self.name}: the element '{self.element_name(bad[0])}' is promised the chance "
                f"{self.promise[bad[0]]:g}: expected 0..1."
            )
        bad = np.flatnonzero(~self.coverable & (self.promise > 0))
        if len(bad):
            names = ", ".join(self.element_name(i) for i in bad[:LISTED])
            more = f" and {len(bad) - LISTED} more" if len(bad) > LISTED else ""
            raise ZooError(f"{self.name}: no set holds what is promised cover: {names}{more}.")
        can = self.groups @ self.coverable.astype(np.int64)
        sizes = np.diff(self.groups.indptr)
        for number in np.flatnonzero((self.need > can) | (self.need < 0)).tolist():
            label = f"{self.name}: the group '{self.group_name(number)}'"
            if not sizes[number]:
                raise ZooError(f"{label} is empty but needs {self.need[number]} covered members.")
            raise ZooError(
                f"{label} needs {self.need[number]} covered members: expected 0 to {can[number]}, "
                f"as many of its {sizes[number]} as any set holds."
            )
        return self

    def with_intersections(self, min_size: int = 1, share: float = SHARE) -> CoverInstance:
        """With all pairwise intersections of its groups as groups of their own.

        Args:
            min_size: Members that an intersection has at least.
            share: Of its coverable members that it needs, at most what it has.
        """
        rows, names, seen = [], [], set()
        members = [frozenset(_row(self.groups, i).tolist()) for i in range(self.groups.shape[0])]
        known = set(members)
        for i in range(len(members)):
            for j in range(i + 1, len(members)):
                both = members[i] & members[j]
                if len(both) < max(1, min_size) or both in known or both in seen:
                    continue
                seen.add(both)
                rows.append(sorted(both))
                names.append(f"{self.group_name(i)} & {self.group_name(j)}")
        if not rows:
            return self
        added = _lists(rows, self.groups.shape[1])
        need = np.floor(share * (added @ self.coverable.astype(np.int64))).astype(np.int64)
        return replace(
            self,
            groups=csr_array(vstack([self.groups, added], format="csr")),
            need=np.concatenate([self.need, need]),
            group_names=[*(self.group_name(i) for i in range(len(members))), *names],
        ).check()

    @classmethod
    def from_csv(
        cls,
        membership: str | Path,
        sets: str | Path,
        groups: str | Path | None = None,
        elements: str | Path | None = None,
        group_targets: str | Path | None = None,
        name: str | None = None,
    ) -> CoverInstance:
        """Reads tables with a header.

        Args:
            membership: Columns ``set``, ``element``.
            sets: Columns ``id``, ``cost``; optionally ``x``, ``y``.
            groups: Columns ``group``, ``element``; ``None`` makes one group of everybody.
            elements: Columns ``element``, ``p``; optionally ``x``, ``y``. ``None``, or an element
                that is missing there, means a chance of 0.
            group_targets: Columns ``group`` and ``k``, a count, or ``fraction``, which is rounded
                up. A group that is not there, or ``None``, needs 60 % of what can be covered.
            name: Of the instance; ``None`` for that of the folder.

        Raises:
            ZooError: For an unknown name or a bad number; it names file and line.
        """
        cost: dict[str, float] = {}
        set_places: dict[str, tuple[float, float]] = {}
        for where, row in _rows(sets, ("id", "cost")):
            if row["id"] in cost:
                raise ZooError(f"{where} has the set '{row['id']}' a second time.")
            cost[row["id"]] = _number(row["cost"], where)
            _place(row, where, row["id"], set_places)
        promise: dict[str, float] = {}
        places: dict[str, tuple[float, float]] = {}
        if elements is not None:
            for where, row in _rows(elements, ("element", "p")):
                promise[row["element"]] = _number(row["p"], where)
                _place(row, where, row["element"], places)
        set_number = {key: i for i, key in enumerate(cost)}
        number: dict[str, int] = {key: i for i, key in enumerate(promise)}
        pairs: list[tuple[int, int]] = []
        for where, row in _rows(membership, ("set", "element")):
            if row["set"] not in set_number:
                raise ZooError(f"{where} names the set '{row['set']}', which {sets} lacks.")
            element = number.setdefault(row["element"], len(number))
            pairs.append((element, set_number[row["set"]]))
        group_pairs: list[tuple[int, int]] = []
        group_number: dict[str, int] = {}
        if groups is not None:
            for where, row in _rows(groups, ("group", "element")):
                if row["element"] not in number:
                    raise ZooError(
                        f"{where} names the element '{row['element']}', which neither {membership} "
                        "nor the table of elements has."
                    )
                group = group_number.setdefault(row["group"], len(group_number))
                group_pairs.append((group, number[row["element"]]))
        else:
            group_number = {"everybody": 0}
            group_pairs = [(0, i) for i in range(len(number))]
        targets: dict[str, Callable[[int], int]] = {}
        if group_targets is not None:
            for where, row in _rows(group_targets, ("group",)):
                group_number.setdefault(row["group"], len(group_number))
                targets[row["group"]] = _target(row, where)
        shape = len(number), len(cost)
        a = _pairs(pairs, shape)
        g = _pairs(group_pairs, (len(group_number), len(number)))
        can = g @ (np.diff(a.indptr) > 0).astype(np.int64)
        need = [
            targets[key](int(can[i])) if key in targets else math.floor(SHARE * can[i])
            for key, i in group_number.items()
        ]
        return cls(
            a,
            np.array(list(cost.values())),
            g,
            np.array(need, dtype=np.int64),
            np.array([promise.get(key, 0.0) for key in number]),
            list(cost),
            list(number),
            list(group_number),
            name or Path(membership).resolve().parent.name,
            _places(set_places, cost),
            _places(places, number),
        ).check()


def read_instance(path: str | Path, groups: int = 4, seed: int = 0) -> CoverInstance:
    """Reads an instance of any of the formats.

    Files of the literature know no groups: elements are then clustered by the sets that they are
    in, and each of these groups, and everybody, needs 60 % of its coverable members.

    Args:
        path: A folder with our tables, ``scp*.txt``, ``rail*.txt``, ``.dat``, or an edge list.
        groups: Number of clusters; 0 leaves everybody alone.
        seed: Of the clustering.

    Raises:
        ZooError: If the file is missing, broken, or of no known format.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        for name in ("membership", "sets"):
            if not (path / f"{name}.csv").is_file():
                raise ZooError(f"{path} has no {name}.csv: expected sets.csv and membership.csv.")
        tables = [path / f"{name}.csv" for name in ("groups", "elements", "group_targets")]
        groups_csv, elements, targets = (t if t.is_file() else None for t in tables)
        return CoverInstance.from_csv(
            path / "membership.csv", path / "sets.csv", groups_csv, elements, targets
        )
    if not path.is_file():
        raise ZooError(f"{path} is neither a folder of tables nor a file.")
    if path.suffix == ".dat":
        a, cost = _read_fimi(path)
    elif path.name.startswith("scp"):
        a, cost = _read_scp(path)
    elif path.name.startswith("rail"):
        a, cost = _read_rail(path)
    elif path.suffix in (".txt", ".edges"):
        a, cost = _read_edges(path)
    else:
        raise ZooError(
            f"{path} is of no known format: expected scp*.txt, rail*.txt, *.dat, or an edge list "
            "in *.txt or *.edges."
        )
    return with_derived_groups(a, cost, groups, seed, path.stem)


def with_derived_groups(
    membership: csr_array, cost: NDArray[np.float64], groups: int, seed: int, name: str
) -> CoverInstance:
    """An instance of a set system without groups: everybody, and clusters of similar elements.

    Args:
        membership: Shape: (n, M).
        cost: Shape: (M,).
        groups: Number of clusters.
        seed: Of the clustering.
        name: Of the instance.
    """
    count = membership.shape[0]
    rows = [list(range(count))]
    if groups > 0:
        size = min(COMPONENTS, min(membership.shape) - 1)
        scaled = membership.astype(np.float64)
        if size >= 1:
            start = np.random.default_rng(seed).random(min(membership.shape))
            left, values, _ = svds(scaled, k=size, v0=start)
            features = left * values
        else:
            features = scaled.toarray()
        _, label = kmeans2(features, min(groups, count), minit="++", seed=seed)
        rows += [np.flatnonzero(label == i).tolist() for i in range(groups) if (label == i).any()]
    g = _lists(rows, count)
    coverable = (np.diff(membership.indptr) > 0).astype(np.int64)
    need = np.floor(SHARE * (g @ coverable)).astype(np.int64)
    names = ["everybody", *(f"cluster {i}" for i in range(1, len(rows)))]
    return CoverInstance(
        membership, cost, g, need, np.zeros(count), group_names=names, name=name
    ).check()


def neighbourhoods(edges: NDArray[np.int64], nodes: int) -> csr_array:
    """Each node's set: itself and its neighbours. Shape: (E, 2) to (nodes, nodes)."""
    both = np.concatenate([edges, edges[:, ::-1], np.stack([np.arange(nodes)] * 2, axis=1)])
    return _pairs([(int(u), int(v)) for u, v in both], (nodes, nodes))


def _read_scp(path: Path) -> tuple[csr_array, NDArray[np.float64]]:
    numbers = _numbers(path)
    rows, columns = _take(numbers, 2, path)
    cost = np.array(_take(numbers, columns, path), dtype=np.float64)
    pairs = []
    for row in range(rows):
        (count,) = _take(numbers, 1, path)
        pairs += [(row, column - 1) for column in _take(numbers, count, path)]
    return _checked(pairs, (rows, columns), path), cost


def _read_rail(path: Path) -> tuple[csr_array, NDArray[np.float64]]:
    numbers = _numbers(path)
    rows, columns = _take(numbers, 2, path)
    cost, pairs = np.zeros(columns), []
    for column in range(columns):
        cost[column], count = _take(numbers, 2, path)
        pairs += [(row - 1, column) for row in _take(numbers, count, path)]
    return _checked(pairs, (rows, columns), path), cost


def _read_fimi(path: Path) -> tuple[csr_array, NDArray[np.float64]]:
    """A transaction is a set of items."""
    number: dict[str, int] = {}
    pairs, count = [], 0
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip():
            pairs += [(number.setdefault(x, len(number)), count) for x in line.split()]
            count += 1
    if not pairs:
        raise ZooError(f"{path} has no transactions.")
    return _pairs(pairs, (len(number), count)), np.ones(count)


def _read_edges(path: Path) -> tuple[csr_array, NDArray[np.float64]]:
    number: dict[str, int] = {}
    edges = []
    for line_number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        words = line.split()
        if not words or words[0][0] in "#%":
            continue
        if len(words) < 2:
            raise ZooError(f"{path}, line {line_number}: expected two nodes, found '{line}'.")
        edges.append([number.setdefault(w, len(number)) for w in words[:2]])
    if not edges:
        raise ZooError(f"{path} has no edges.")
    return neighbourhoods(np.array(edges), len(number)), np.ones(len(number))


def _numbers(path: Path) -> Iterator[int]:
    try:
        return iter([int(float(word)) for word in path.read_text(encoding="utf-8").split()])
    except ValueError as error:
        raise ZooError(f"{path} holds something other than numbers: {error}.") from error


def _take(numbers: Iterator[int], count: int, path: Path) -> list[int]:
    found = [x for _, x in zip(range(count), numbers, strict=False)]
    if len(found) < count:
        raise ZooError(f"{path} ends early: {count - len(found)} numbers are missing.")
    return found


def _checked(pairs: list[tuple[int, int]], shape: tuple[int, int], path: Path) -> csr_array:
    for pair in pairs:
        if not (0 <= pair[0] < shape[0] and 0 <= pair[1] < shape[1]):
            raise ZooError(
                f"{path} has row {pair[0] + 1} and column {pair[1] + 1}: expected at most "
                f"{shape[0]} and {shape[1]}."
            )
    return _pairs(pairs, shape)


def _rows(path: str | Path, columns: Sequence[str]) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Rows of a table with the place of each, for errors."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ZooError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ZooError(f"{path} is no UTF-8 text: {error.reason}.") from error
    reader = csv.DictReader(lines)
    found = reader.fieldnames or []
    missing = [c for c in columns if c not in found]
    if missing:
        raise ZooError(
            f"{path} has no column '{missing[0]}': expected {', '.join(columns)}, found "
            f"{', '.join(found) or 'nothing'}."
        )
    for line, row in enumerate(reader, start=2):
        if any(row[c] is None for c in columns):
            raise ZooError(f"{path}, line {line}: a column is missing.")
        yield f"{path}, line {line}", row


def _number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ZooError(f"{where}: '{text}' is no number.") from None


def _target(row: Mapping[str, str], where: str) -> Callable[[int], int]:
    if row.get("k"):
        count = _number(row["k"], where)
        return lambda can: int(count)
    if row.get("fraction"):
        share = _number(row["fraction"], where)
        return lambda can: math.ceil(share * can - 1e-9)
    raise ZooError(f"{where}: expected a count 'k' or a 'fraction'.")


def _place(
    row: Mapping[str, str], where: str, key: str, into: dict[str, tuple[float, float]]
) -> None:
    if row.get("x") and row.get("y"):
        into[key] = _number(row["x"], where), _number(row["y"], where)


def _places(
    found: Mapping[str, tuple[float, float]], names: Mapping[str, object]
) -> NDArray[np.float64] | None:
    if len(found) < len(names):
        return None
    return np.array([found[name] for name in names])


def _pairs(pairs: list[tuple[int, int]], shape: tuple[int, int]) -> csr_array:
    index = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    index = np.unique(index, axis=0)
    return csr_array((np.ones(len(index), np.int32), (index[:, 0], index[:, 1])), shape=shape)


def _lists(rows: Sequence[Sequence[int]], columns: int) -> csr_array:
    return _pairs([(i, j) for i, row in enumerate(rows) for j in row], (len(rows), columns))


def _row(matrix: csr_array, number: int) -> NDArray[np.int32]:
    found: NDArray[np.int32] = matrix.indices[matrix.indptr[number] : matrix.indptr[number + 1]]
    return found

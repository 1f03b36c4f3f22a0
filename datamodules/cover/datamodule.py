"""Covering instances as batches: generated, real graphs, or files of the literature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from zoo.cover_files import SUFFIXES, CoverInstance, read_instance
from zoo.errors import ZooError, check_choice

from ..base import ZooDataModule
from .generators import GRAPHS, district, graph, outbreak

KINDS = ("district", "outbreak", "graphs")
FIRST = {"train": 0, "val": 100_000, "test": 200_000}  # seeds, so that splits share no instance
Sample = dict[str, Any]


class Instances(Dataset[Sample]):
    """Instances that are made, or read, when they are asked for.

    Args:
        make: One function an instance.
        first: Number of the first one.
    """

    def __init__(self, make: Sequence[Callable[[], CoverInstance]], first: int) -> None:
        self.make, self.first = make, first

    def __len__(self) -> int:
        return len(self.make)

    def __getitem__(self, index: int) -> Sample:
        return sample(self.make[index](), self.first + index)


class CoverInstancesDataModule(ZooDataModule):
    """Data for fair covering.

    A batch has its instances side by side, with numbers that go on from one to the next:

    - ``edges``: element and set of each membership. Shape: (2, E), long.
    - ``cost``: of the sets, float64. Shape: (M,). ``least``: what elements are promised, 0..1,
      float64. Shape: (n,).
    - ``group_edges``: group and element of each membership. Shape: (2, F), long. ``need``: members
      of each group that must be covered. Shape: (l,), long.
    - ``set_places``, ``element_places``: for maps. Shape: (M or 0, 2) and (n or 0, 2).
    - ``lengths``: n, M, l, E, F, and the two numbers of places of each instance. Shape: (B, 7).
    - ``index``: seeds of what is drawn for each. Shape: (B,). ``name``: list of str.

    Args:
        kind: "district" (sites in a square), "outbreak" (locations in a contact network), or
            "graphs" (four real social networks; thresholds and needs differ by seed).
        sizes: People, sites and groups of generated instances, each as often as the others.
        n_train: Instances of training.
        n_val: Of validation.
        n_test: Of the test.
        root: Folder of instances: sub-folders of tables, OR-Library's ``scp*.txt`` and
            ``rail*.txt``, FIMI's ``*.dat``, or edge lists (``*.txt``, ``*.edges``). Of every ten,
            the eighth is validation, the last two are the test.
        groups: Clusters that stand for the groups which such files lack.
        base: ``batch_size``, ``eval_batch_size``, ``num_workers``, ``seed`` and ``inputs``: see
            `ZooDataModule`.

    Raises:
        ZooError: For an option out of range, or a file that is broken.
    """

    def __init__(
        self,
        kind: str = "district",
        sizes: Sequence[Sequence[int]] = ((300, 100, 6), (1000, 300, 10)),
        n_train: int = 200,
        n_val: int = 10,
        n_test: int = 10,
        root: str | None = None,
        groups: int = 4,
        **base: Any,
    ) -> None:
        super().__init__(root=root, **base)
        check_choice("kind", kind, KINDS)
        for size in sizes:
            if len(size) != 3 or min(size) < 1 or size[1] < 6:
                raise ZooError(
                    f"sizes has {list(size)}: expected people, sites (6 or more) and groups."
                )
        if min(n_train, n_val, n_test) < 1 or groups < 0 or not sizes:
            raise ZooError("n_train, n_val, n_test must be at least 1, groups not negative.")
        self.kind, self.sizes, self.groups = kind, [tuple(s) for s in sizes], groups
        self.counts = {"train": n_train, "val": n_val, "test": n_test}

    def describe(self) -> dict[str, Any]:
        """Kind and sizes, beside what the base class tells."""
        return {**super().describe(), "kind": self.kind, "sizes": [list(s) for s in self.sizes]}

    def build(self, split: str) -> Dataset[Any]:
        """Returns the instances of ``split``, after a look at all files or the first of its own.

        Raises:
            ZooError: If a file is missing or broken, or an instance cannot be solved.
        """
        if split == "predict":
            paths = self.input_files(SUFFIXES, ("sets.csv",))
        elif self.root is not None:
            paths = [p for i, p in enumerate(self._files()) if _split_of(i) == split]
        else:
            count, first = self.counts[split], FIRST[split]
            made = Instances([self._maker(first + i) for i in range(count)], first)
            made[0]
            return made
        read = [read_instance(path, self.groups, self.seed) for path in paths]
        return Instances([lambda x=x: x for x in read], FIRST.get(split, 300_000))  # type: ignore[misc]

    def _maker(self, number: int) -> Callable[[], CoverInstance]:
        seed = self.seed * 1_000_003 + number
        if self.kind == "graphs":
            return lambda: graph(GRAPHS[number % len(GRAPHS)], seed)
        make = district if self.kind == "district" else outbreak
        people, sites, groups = self.sizes[number % len(self.sizes)]
        return lambda: make(people, sites, groups, seed)

    def _files(self) -> list[Path]:
        assert self.root is not None
        if not self.root.is_dir():
            raise ZooError(f"{self.root} is no folder: expected one with instances.")
        found = sorted(p for p in self.root.iterdir() if p.is_dir() or p.suffix in SUFFIXES)
        if not found:
            raise ZooError(f"{self.root} has no instances: expected folders of tables, or files.")
        return found

    def _loader(self, split: str, batch_size: int | None = None) -> DataLoader[Any]:
        loader = super()._loader(split, batch_size)
        loader.collate_fn = side_by_side
        return loader


def _split_of(number: int) -> str:
    return {7: "val", 8: "test", 9: "test"}.get(number % 10, "train")


def sample(instance: CoverInstance, index: int) -> Sample:
    """The tensors of one instance; see :class:`CoverInstancesDataModule`."""
    a, g = instance.membership.tocoo(), instance.groups.tocoo()
    places = [
        torch.zeros(0, 2, dtype=torch.float64) if x is None else torch.from_numpy(x).double()
        for x in (instance.set_places, instance.element_places)
    ]
    lengths = [
        *(len(instance.promise), len(instance.cost), len(instance.need)),
        *(a.nnz, g.nnz, len(places[0]), len(places[1])),
    ]
    return {
        "edges": torch.from_numpy(np.stack([a.row, a.col])).long(),
        "cost": torch.from_numpy(instance.cost).double(),
        "least": torch.from_numpy(instance.promise).double(),
        "group_edges": torch.from_numpy(np.stack([g.row, g.col])).long(),
        "need": torch.from_numpy(instance.need).long(),
        "set_places": places[0],
        "element_places": places[1],
        "lengths": torch.tensor(lengths),
        "index": torch.tensor(index),
        "name": instance.name,
    }


def side_by_side(samples: Sequence[Sample]) -> dict[str, Any]:
    """A batch of instances, with numbers that go on from one to the next."""
    lengths = torch.stack([s["lengths"] for s in samples])
    before = torch.cat([torch.zeros(1, 7, dtype=torch.long), lengths.cumsum(0)[:-1]])
    shifted: dict[str, list[Tensor]] = {"edges": [], "group_edges": []}
    for item, (n, m, groups, *_) in zip(samples, before.tolist(), strict=True):
        shifted["edges"].append(item["edges"] + torch.tensor([[n], [m]]))
        shifted["group_edges"].append(item["group_edges"] + torch.tensor([[groups], [n]]))
    joined = ("cost", "least", "need", "set_places", "element_places")
    return {
        **{key: torch.cat(values, dim=1) for key, values in shifted.items()},
        **{key: torch.cat([s[key] for s in samples]) for key in joined},
        "lengths": lengths,
        "index": torch.stack([s["index"] for s in samples]),
        "name": [s["name"] for s in samples],
    }

"""Before/after pairs for editing by example: the datasets of each split and their data module."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from zoo.errors import ZooError, did_you_mean
from zoo.hdr_files import PHOTO_SUFFIXES, read_photo
from zoo.reproducible import generator

from ..base import ZooDataModule
from . import photos, shapes
from .layouts import LAYOUTS, Pair, assign, check_size, open_layout

EMBEDDED: dict[str, ModuleType] = {"shapes_world": shapes, "photo_edits": photos}
GROUPS = ("seen", "unseen", "combination")
# Of every sample, whatever the part: those of shapes_world, then the style of photo_edits.
ATTRIBUTES = (*shapes.ATTRIBUTES.values(), photos.STYLES)
SEEDS = {"train": 1, "val": 2, "test": 3}  # no scene of one split is in another

Sample: TypeAlias = dict[str, Any]
World: TypeAlias = shapes.ShapesWorld | photos.PhotoEdits


class TrainingPairs(Dataset[Sample]):
    """Pairs of single edits, a whole batch at once.

    Args:
        part: Of the embedded data.
        count: Number of pairs; the trained edits are equally frequent.
        seed: Of the scenes.
        others: Also give another pair of the same edit, ``before`` and ``after``.
    """

    def __init__(self, part: str, count: int, seed: int, others: bool) -> None:
        source = EMBEDDED[part]
        rng = generator(seed, SEEDS["train"])
        tasks = [i for i, name in enumerate(source.TASKS) if name not in source.HELD_OUT]
        edits = torch.full((count, 2), -1)
        # As many of each, but in no order that a user of every second pair could meet.
        edits[:, 0] = torch.tensor(tasks)[torch.randperm(count, generator=rng) % len(tasks)]
        self.world = make_world(part, "train", edits, rng)
        self.others = others
        # Pairs sorted by edit: where those of each begin, how many there are, where each pair is.
        self.sorted = edits[:, 0].argsort()
        self.place = self.sorted.argsort()
        self.number = torch.bincount(edits[:, 0], minlength=len(source.TASKS))
        self.begin = self.number.cumsum(0) - self.number

    def __len__(self) -> int:
        return len(self.world)

    def __getitem__(self, index: int) -> Sample:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[Sample]:
        where = torch.tensor(indices)
        (source, seen), (target, wanted) = self.world.before(where), self.world.after(where)
        columns: dict[str, Any] = {
            "source": source,
            "target": target,
            "source_attributes": all_attributes(seen),
            "target_attributes": all_attributes(wanted),
            "task": self.world.edits[where, 0],
        }
        if self.others:
            number, begin = (x[columns["task"]] for x in (self.number, self.begin))
            step = 1 + (torch.rand(len(where)) * (number - 1)).long()  # below number
            other = self.sorted[begin + (self.place[where] - begin + step) % number]
            columns["before"], columns["after"] = (
                side(other)[0] for side in (self.world.before, self.world.after)
            )
        return [
            {**{key: value[i] for key, value in columns.items()}, "index": index}
            for i, index in enumerate(indices)
        ]


class Transfers(Dataset[Sample]):
    """An exemplar pair, and a query with the truth of the same edit; they share no scene.

    Args:
        part: Of the embedded data.
        split: "val", with seen edits only, or "test", with all groups.
        items: Number of transfers in each group.
        seed: Of the scenes.
    """

    def __init__(self, part: str, split: str, items: int, seed: int) -> None:
        source = EMBEDDED[part]
        seen = [(i, -1) for i, name in enumerate(source.TASKS) if name not in source.HELD_OUT]
        unseen = [(i, -1) for i, name in enumerate(source.TASKS) if name in source.HELD_OUT]
        groups = [seen, unseen, source.combinations()][: 1 if split == "val" else None]
        rng = generator(seed, SEEDS[split])
        orders = [torch.randperm(len(edits), generator=rng).tolist() for edits in groups]
        # Groups alternate, so that every batch has all of them.
        self.groups = torch.arange(len(groups)).repeat(items)
        chosen = [
            edits[order[i % len(edits)]]
            for i in range(items)
            for edits, order in zip(groups, orders, strict=True)
        ]
        edits = torch.tensor(chosen)
        self.names = source.TASKS
        self.exemplars = make_world(part, split, edits, rng)
        self.queries = make_world(part, split, edits, rng)

    def __len__(self) -> int:
        return len(self.queries)

    def __getitem__(self, index: int) -> Sample:
        where = torch.tensor([index])
        truth, wanted = self.queries.after(where)
        first, second = self.queries.edits[index].tolist()
        names = [self.names[i] for i in (first, second) if i >= 0]
        return {
            "before": self.exemplars.before(where)[0][0],
            "after": self.exemplars.after(where)[0][0],
            "query": self.queries.before(where)[0][0],
            "truth": truth[0],
            "attributes": all_attributes(wanted)[0],
            "task": first if second < 0 else -1,
            "group": int(self.groups[index]),
            "name": " + ".join(names),
            "index": index,
        }


class FilePairs(Dataset[Sample]):
    """Training pairs of a published data set.

    Args:
        pairs: Of the training split.
        size: Side in pixels of the middle square.
        others: Also give another pair of the same task; a task's only pair stands for itself.
    """

    def __init__(self, pairs: list[Pair], size: int, others: bool) -> None:
        self.pairs, self.size, self.others = pairs, size, others
        self.numbers = {name: i for i, name in enumerate(sorted({p.task for p in pairs}))}
        self.of_task: dict[str, list[int]] = {}
        for index, pair in enumerate(pairs):
            self.of_task.setdefault(pair.task, []).append(index)

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> Sample:
        pair = self.pairs[index]
        source, target = (square(image, self.size) for image in pair.read())
        sample = {"source": source, "target": target, "task": self.numbers[pair.task]}
        if self.others:
            same = [i for i in self.of_task[pair.task] if i != index] or [index]
            other = self.pairs[same[int(torch.randint(len(same), ()))]]
            sample["before"], sample["after"] = (square(x, self.size) for x in other.read())
        return sample | {"index": index}


class FileTransfers(Dataset[Sample]):
    """Exemplars and queries of a published data set: each pair's exemplar is its task's next one.

    Args:
        groups: Pairs by group, of :data:`GROUPS`.
        size: Side in pixels of the middle square.

    Raises:
        ZooError: If no task has two pairs.
    """

    def __init__(self, groups: dict[str, list[Pair]], size: int) -> None:
        self.items: list[tuple[Pair, Pair, int]] = []
        self.size = size
        for name, pairs in groups.items():
            tasks: dict[str, list[Pair]] = {}
            for pair in pairs:
                tasks.setdefault(pair.task, []).append(pair)
            for same in tasks.values():
                for i, pair in enumerate(same if len(same) > 1 else []):
                    self.items.append((same[(i + 1) % len(same)], pair, GROUPS.index(name)))
        if not self.items:
            raise ZooError(
                "No task has two pairs, so no edit can be transferred: evaluate on a data set with "
                "tasks (eval_dataset relation252k, or a pairs.jsonl)."
            )

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Sample:
        exemplar, pair, group = self.items[index]
        before, after = (square(x, self.size) for x in exemplar.read())
        query, truth = (square(x, self.size) for x in pair.read())
        return {
            "before": before,
            "after": after,
            "query": query,
            "truth": truth,
            "attributes": torch.full((len(ATTRIBUTES),), -1),
            "task": -1,
            "group": group,
            "name": pair.task,
            "index": index,
        }


class Queries(Dataset[Sample]):
    """A user's photographs, with the exemplar pair that all of them are edited by."""

    def __init__(self, files: list[Path], before: str, after: str) -> None:
        self.files = files
        pair = Pair(Path(before), Path(after), "", "", "", "the exemplar")
        self.before, self.after = (_tensor(image) for image in pair.read())

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Sample:
        path = self.files[index]
        query = _tensor(check_size(read_photo(path), str(path)))
        sample = {"query": query, "before": self.before, "after": self.after}
        return sample | {"name": path.stem, "index": index}


def make_world(part: str, split: str, edits: Tensor, rng: torch.Generator) -> World:
    """Scenes or crops of a part of the embedded data, for the edits asked for."""
    if part == "shapes_world":
        return shapes.ShapesWorld(edits, rng)
    return photos.PhotoEdits(split, edits, rng)


def all_attributes(own: Tensor) -> Tensor:
    """A part's attributes among :data:`ATTRIBUTES`; -1 for those of the other part."""
    if own.shape[1] == 1:
        return F.pad(own, (len(ATTRIBUTES) - 1, 0), value=-1)
    return F.pad(own, (0, len(ATTRIBUTES) - own.shape[1]), value=-1)


def square(image: Any, size: int) -> Tensor:
    """The middle square of (H, W, 3), resized. Shape: (3, size, size)."""
    picture = _tensor(image)
    side = min(picture.shape[-2:])
    top, left = ((s - side) // 2 for s in picture.shape[-2:])
    cut = picture[:, top : top + side, left : left + side]
    if side == size:
        return cut.contiguous()
    resized = F.interpolate(cut[None], (size, size), mode="bicubic", antialias=True)[0]
    return resized.clamp(0, 1)


def _tensor(image: Any) -> Tensor:
    return torch.from_numpy(image.copy()).permute(2, 0, 1).contiguous()


class EditPairsDataModule(ZooDataModule):
    """Pairs of pictures before and after an edit.

    A training sample is a dict of ``source`` and ``target``, float32 in 0..1 of (3, H, W), ``task``
    (number of the edit) and ``index``; embedded ones have ``source_attributes`` and
    ``target_attributes``, long of (9,), with -1 for "none"; with ``others`` there are ``before``
    and ``after``. A validation or test sample has ``before`` and ``after`` (the exemplar),
    ``query``, ``truth``, ``attributes`` (of the truth), ``task`` (-1 for none of the trained
    vocabulary), ``group`` (0 seen, 1 unseen, 2 combination), ``name`` and ``index``; one to predict
    has ``query``, ``before``, ``after``, ``name`` and ``index``.

    Args:
        dataset: "shapes_world" or "photo_edits", which come with the package; or a data set in
            ``root``: "magicbrush", "omniedit", "ultraedit", "instructpix2pix", "relation252k", or
            "pairs" for a ``pairs.jsonl``.
        root: Folder of the data set.
        eval_dataset: Another one for validation and test; ``None`` for the same.
        eval_root: Its folder.
        unseen_tasks: Tasks to hold out, where the data set does not say.
        size: Side of training and test squares of files, in pixels.
        pairs: Number of embedded training pairs.
        items: Embedded transfers of each group in the test, and of seen edits in validation.
        others: Also give another pair of the same task with each training pair.
        before: Of the exemplar for ``predict``: a file.
        after: The same, edited.
        base: ``batch_size``, ``eval_batch_size``, ``num_workers``, ``seed`` and ``inputs``: see
            `ZooDataModule`.

    Raises:
        ZooError: For an option that is unknown or does not go with the others.
    """

    def __init__(
        self,
        dataset: str = "shapes_world",
        root: str | None = None,
        eval_dataset: str | None = None,
        eval_root: str | None = None,
        unseen_tasks: list[str] | None = None,
        size: int = 512,
        pairs: int = 20_000,
        items: int = 48,
        others: bool = False,
        before: str | None = None,
        after: str | None = None,
        **base: Any,
    ) -> None:
        super().__init__(root=root, **base)
        for name, folder in ((dataset, root), (eval_dataset or dataset, eval_root or root)):
            known = (*EMBEDDED, *LAYOUTS)
            if name not in known:
                raise ZooError(
                    f"dataset={name!r} is unknown: expected one of {', '.join(known)}."
                    f"{did_you_mean(name, known)}"
                )
            if (name in EMBEDDED) != (folder is None):
                raise ZooError(
                    f"dataset={name!r} "
                    + ("comes with the package and takes no root." if folder else "needs a root.")
                )
        if min(size, pairs, items) < 1 or size < 16:
            raise ZooError("pairs and items must be at least 1, size at least 16.")
        self.dataset, self.size, self.pairs, self.items = dataset, size, pairs, items
        self.eval_dataset = eval_dataset or dataset
        self.eval_root = Path(eval_root).expanduser() if eval_root else self.root
        self.unseen_tasks, self.others = list(unseen_tasks or []), others
        self.before, self.after = before, after

    def describe(self) -> dict[str, Any]:
        """Data sets and numbers, beside what the base class tells."""
        return {
            **super().describe(),
            "dataset": self.dataset,
            "eval_dataset": self.eval_dataset,
            "pairs": self.pairs if self.root is None else None,
            "items": self.items if self.eval_root is None else None,
        }

    def predict_dataloader(self) -> DataLoader[Any]:
        """One photograph at a time: they may differ in size."""
        return self._loader("predict", batch_size=1)

    def build(self, split: str) -> Dataset[Any]:
        """Returns the dataset of ``split``, after a look at its first sample.

        Raises:
            ZooError: If a file is missing, or the first pair is not what it should be.
        """
        if split == "predict":
            if self.before is None or self.after is None:
                raise ZooError("An edit needs its exemplar: set --data.before and --data.after.")
            queries = Queries(self.input_files(PHOTO_SUFFIXES), self.before, self.after)
            for index in range(len(queries)):  # a bad one stops before the first is computed
                queries[index]
            return queries
        dataset: Dataset[Any]
        if split == "train":
            if self.root is None:
                return TrainingPairs(self.dataset, self.pairs, self.seed, self.others)
            found = assign(open_layout(self.dataset, self.root), self.unseen_tasks, "train")
            dataset = FilePairs(found, self.size, self.others)
            if not found:
                return dataset
        elif self.eval_root is None:
            return Transfers(self.eval_dataset, split, self.items, self.seed)
        else:
            known = open_layout(self.eval_dataset, self.eval_root)
            names = {"seen": split} | ({"unseen": "unseen"} if split == "test" else {})
            held_out = self.unseen_tasks if self.eval_dataset == self.dataset else []
            groups = {group: assign(known, held_out, name) for group, name in names.items()}
            dataset = FileTransfers(groups, self.size)
        dataset[0]
        return dataset

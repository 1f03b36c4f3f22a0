"""Data sets of before/after pairs as they are published: where each pair is, and of which task.

Names of columns and folders are written from the data sets' descriptions; a ``pairs.jsonl`` in the
root takes the place of any layout.
"""

from __future__ import annotations

import io
import json
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from zoo.errors import ZooError, missing_extra
from zoo.hdr_files import PHOTO_SUFFIXES, read_photo

LEAST = 16  # pixels of the shorter side
SPLITS = ("train", "val", "test", "unseen")  # test: seen tasks, other images; unseen: other tasks
INDEX = "pairs.jsonl"


@dataclass(frozen=True)
class Pair:
    """One before/after pair.

    Attributes:
        source: File, or (parquet file, column, row).
        target: The same.
        task: Name of the edit; pairs of one task show the same change.
        split: One of :data:`SPLITS`, or "" for "decide by image and task".
        image: What a split by image must not tear apart.
        where: For errors: the file, with the line or row.
    """

    source: Any
    target: Any
    task: str
    split: str
    image: str
    where: str

    def read(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Both pictures, display-encoded RGB in 0..1. Shape: (H, W, 3).

        Raises:
            ZooError: If one is missing, unreadable or too small, or their sizes differ.
        """
        source, target = (self._picture(place) for place in (self.source, self.target))
        if source.shape != target.shape:
            sizes = " and ".join(f"{x.shape[1]}x{x.shape[0]}" for x in (source, target))
            raise ZooError(
                f"{self.where}: source and target are {sizes} pixels: expected one size."
            )
        return source, target

    def _picture(self, place: Any) -> NDArray[np.float32]:
        if isinstance(place, Path):
            if not place.is_file():
                raise ZooError(f"{self.where} names {place}, which does not exist.")
            return check_size(read_photo(place), str(place))
        file, column, row = place
        value = _row(file, column, row)
        content = value.get("bytes") if isinstance(value, dict) else value
        if not isinstance(content, bytes):
            raise ZooError(f"{self.where}: '{column}' holds no encoded picture.")
        try:
            picture = Image.open(io.BytesIO(content))
            picture.load()
        except (OSError, SyntaxError) as error:
            raise ZooError(f"{self.where}: '{column}' cannot be read: {error}.") from error
        return check_size(read_photo(picture, f"{self.where}, '{column}',"), self.where)


def check_size(image: NDArray[np.float32], where: str) -> NDArray[np.float32]:
    """Raises a ZooError if the picture is less than 16 pixels wide or high."""
    if min(image.shape[:2]) < LEAST:
        size = f"{image.shape[1]}x{image.shape[0]}"
        raise ZooError(f"{where} has {size} pixels: expected at least {LEAST} along each side.")
    return image


def open_layout(dataset: str, root: Path) -> list[Pair]:
    """All pairs of a data set, in an order that does not depend on the file system.

    Args:
        dataset: One of :data:`LAYOUTS`.
        root: Its folder.

    Raises:
        ZooError: If the folder is missing or not as expected, or a task is in both seen and unseen
            splits.
    """
    if not root.is_dir():
        raise ZooError(f"{root} does not exist or is not a folder.")
    pairs = list(_jsonl(root) if (root / INDEX).is_file() else LAYOUTS[dataset](root))
    if not pairs:
        raise ZooError(f"{root} has no pair: expected {EXPECTED[dataset]}, or a {INDEX}.")
    seen = {pair.task for pair in pairs if pair.split in ("train", "val", "test")}
    for pair in pairs:
        if pair.split == "unseen" and pair.task in seen:
            raise ZooError(
                f"{pair.where}: the task '{pair.task}' is in the unseen split and in a seen one."
            )
    return pairs


def assign(pairs: list[Pair], unseen_tasks: list[str], split: str) -> list[Pair]:
    """The pairs of a split: as the data set says, else by task (unseen) and by image.

    Args:
        pairs: Of :func:`open_layout`.
        unseen_tasks: Tasks to hold out where the data set does not say.
        split: One of :data:`SPLITS`.

    Raises:
        ZooError: If a held-out task does not exist.
    """
    tasks = {pair.task for pair in pairs}
    for name in unseen_tasks:
        if name not in tasks:
            raise ZooError(f"unseen_tasks names '{name}', of which there is no pair.")
    return [p for p in pairs if (p.split or _by_content(p, unseen_tasks)) == split]


def _by_content(pair: Pair, unseen_tasks: list[str]) -> str:
    if pair.task in unseen_tasks:
        return "unseen"
    tenth = zlib.crc32(pair.image.encode()) % 20
    return {0: "val", 1: "test"}.get(tenth, "train")


# -- readers of each layout ----------------------------------------------------------------------


def _jsonl(root: Path) -> Iterator[Pair]:
    lines = (root / INDEX).read_text(encoding="utf-8").splitlines()
    for number, text in enumerate(lines, start=1):
        where = f"{root / INDEX}, line {number}"
        if not text.strip():
            continue
        try:
            line = json.loads(text)
        except ValueError as error:
            raise ZooError(f"{where} is no JSON: {error}.") from error
        for key in ("source", "target", "task"):
            if not isinstance(line, dict) or not isinstance(line.get(key), str):
                raise ZooError(f"{where} has no '{key}': expected source, target, task and split.")
        split = line.get("split") or ""
        if split and split not in SPLITS:
            raise ZooError(f"{where} has the split {split!r}: expected {', '.join(SPLITS)}.")
        source, target = (root / line[key] for key in ("source", "target"))
        for path in (source, target):
            if not path.is_file():
                raise ZooError(f"{where} names {path}, which does not exist.")
        image = str(line.get("photo", line["source"]))
        yield Pair(source, target, line["task"], split, image, where)


def _parquet(
    pattern: str,
    source: str,
    target: str,
    task: str | None,
    image: str | None,
    splits: Mapping[str, str],
) -> Callable[[Path], Iterator[Pair]]:
    """A reader of parquet shards.

    Args:
        pattern: Of the shards' names; they lie in the root or in ``data``.
        source: Column of the picture before.
        target: Column of the picture after.
        task: Column of the task's name; ``None``: each pair is a task of its own.
        image: Column that tells images apart; ``None``: each row is another image.
        splits: By the beginning of a shard's name; "" for "decide by image and task".
    """

    def read(root: Path) -> Iterator[Pair]:
        for path in sorted([*root.glob(pattern), *root.glob(f"data/{pattern}")]):
            begins = [name for name in splits if path.name.startswith(name)]
            named = splits[begins[0]] if begins else ""
            file = _open(path)
            columns = [name for name in (source, target, task, image) if name]
            known = file.schema_arrow.names
            for name in columns:
                if name not in known:
                    raise ZooError(f"{path} has the columns {', '.join(known)}: expected '{name}'.")
            small = [name for name in (task, image) if name]
            table = file.read(columns=small).to_pydict() if small else {}
            for row in range(file.metadata.num_rows):
                key = f"{path.name}:{row}"
                yield Pair(
                    (path, source, row),
                    (path, target, row),
                    str(table[task][row]) if task else key,
                    named,
                    str(table[image][row]) if image else key,
                    f"{path}, row {row}",
                )

    return read


def _prompt_folders(root: Path) -> Iterator[Pair]:
    """InstructPix2Pix: ``<shard>/<prompt>/<seed>_0.jpg`` and ``<seed>_1.jpg``."""
    for source in sorted(root.glob("**/*_0.jpg")):
        target = source.with_name(source.name.replace("_0.jpg", "_1.jpg"))
        folder = source.parent.relative_to(root).as_posix()
        yield Pair(source, target, folder, "", folder, str(source))


def _task_folders(root: Path) -> Iterator[Pair]:
    """Relation252K: a folder for each task, in it ``<pair>_source`` and ``<pair>_target`` files."""
    files = [p for p in root.glob("*/*_source.*") if p.suffix.lower() in PHOTO_SUFFIXES]
    for source in sorted(files):
        target = source.with_name(source.name.replace("_source.", "_target."))
        name = f"{source.parent.name}/{source.name}"
        yield Pair(source, target, source.parent.name, "", name, str(source))


LAYOUTS: Mapping[str, Callable[[Path], Iterator[Pair]]] = {
    "pairs": _jsonl,
    "magicbrush": _parquet(
        "*.parquet", "source_img", "target_img", None, "img_id", {"train": "train", "dev": "val"}
    ),
    "omniedit": _parquet(
        "*.parquet", "src_img", "edited_img", "task", None, {"train": "", "dev": "test"}
    ),
    "ultraedit": _parquet("*.parquet", "source_image", "edited_image", None, None, {}),
    "instructpix2pix": _prompt_folders,
    "relation252k": _task_folders,
}
EXPECTED = {
    "pairs": f"{INDEX} with lines of source, target, task and split",
    "magicbrush": "train-*.parquet and dev-*.parquet",
    "omniedit": "train-*.parquet and dev-*.parquet",
    "ultraedit": "*.parquet",
    "instructpix2pix": "<shard>/<prompt>/<seed>_0.jpg and <seed>_1.jpg",
    "relation252k": "<task>/<pair>_source.jpg and <pair>_target.jpg",
}


def _open(path: Path) -> Any:
    try:
        from pyarrow import ArrowInvalid
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise missing_extra("pyarrow", "edit") from error
    try:
        return ParquetFile(path)
    except (ArrowInvalid, OSError) as error:
        raise ZooError(f"{path} is no readable parquet file: {error}.") from error


_last: dict[tuple[Path, int, str], list[Any]] = {}  # the row group read last, of each column


@cache
def _group_starts(path: Path) -> tuple[int, ...]:
    """First row of each row group: known, a cell of the group read last costs no look at a file."""
    metadata = _open(path).metadata
    sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    return (0, *accumulate(sizes[:-1]))


def _row(path: Path, column: str, row: int) -> Any:
    """One cell; its row group is kept until another one is asked for."""
    starts = _group_starts(path)
    group = bisect_right(starts, row) - 1
    key = (path, group, column)
    if key not in _last:
        for old in [k for k in _last if k[2] == column]:
            del _last[old]
        file = _open(path)
        _last[key] = file.read_row_group(group, columns=[column]).column(column).to_pylist()
    return _last[key][row - starts[group]]

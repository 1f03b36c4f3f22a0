"""Public HDR data sets as they are published, and a table of one's own.

The folder names of the published sets are written from their descriptions. If a copy differs, a
file ``pairs.csv`` in the root, with the columns ldr, hdr and split, always works.
"""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from zoo.errors import ZooError
from zoo.hdr_files import HDR_SUFFIXES, PHOTO_SUFFIXES

from .scenes import Files, Panoramas, Scenes

SPLIT_NAMES = {"train": ("train", "training"), "val": ("val", "validation"), "test": ("test",)}
FILE_SUFFIXES = tuple(s for s in HDR_SUFFIXES if s != ".npy")


@dataclass(frozen=True)
class Layout:
    """Where a data set keeps its files.

    Attributes:
        tree: For a message.
        hdr: Folders of radiance, the first that exists is taken.
        photos: Folders of photographs with the same stems; none if the camera is simulated.
        panoramas: Whether the images are panoramas.
        test_only: Whether the set is too small to train on.
    """

    tree: str
    hdr: tuple[str, ...]
    photos: tuple[str, ...] = ()
    panoramas: bool = False
    test_only: bool = False


LAYOUTS = {
    # SingleHDR: https://arxiv.org/abs/2004.01179
    "hdr_real": Layout("HDR_gt/*.hdr, LDR_in/*.jpg", ("HDR_gt",), ("LDR_in",)),
    "hdr_synth": Layout("HDR_gt/*.hdr, LDR_in/*.jpg", ("HDR_gt",), ("LDR_in",)),
    "hdr_eye": Layout(
        "HDR/*.hdr, LDR/*.jpg", ("HDR",), ("LDR", "Bracketed_images"), test_only=True
    ),
    # Hanji et al. 2022, inputs with 5 % (or 3 %) of the pixels clipped
    "si_hdr": Layout(
        "reference/*.exr, clip_95/*.png", ("reference",), ("clip_95",), test_only=True
    ),
    "si_hdr_97": Layout(
        "reference/*.exr, clip_97/*.png", ("reference",), ("clip_97",), test_only=True
    ),
    "fairchild": Layout("*.exr, or EXR/*.exr", ("EXR", "."), test_only=True),
    "aim2025": Layout("HDR/*.hdr, LDR/*.png", ("HDR", "gt"), ("LDR", "input")),
    "poly_haven": Layout("*.exr or *.hdr, panoramas", (".",), panoramas=True),
    "hdr_images": Layout("*.exr or *.hdr", (".",)),
}


def open_layout(name: str, root: Path, split: str, views: int, repair: bool) -> Scenes:
    """The scenes of a split.

    A set with folders for its splits is read from these; another one is split by sorted scenes: of
    ten, the ninth validates and the tenth tests.

    Raises:
        ZooError: If folders are missing, stems occur twice, or a photograph has no radiance.
    """
    layout = LAYOUTS[name]
    if not root.is_dir():
        raise ZooError(f"{root} is no folder: expected {name} as published ({layout.tree}).")
    if (root / "pairs.csv").is_file():
        return _from_table(root / "pairs.csv", split, repair)
    base = next((root / n for n in SPLIT_NAMES[split] if (root / n).is_dir()), None)
    folder = base or root
    hdr = _listing(folder, layout.hdr, FILE_SUFFIXES, name, layout)
    photos = (
        _listing(folder, layout.photos, PHOTO_SUFFIXES, name, layout) if layout.photos else None
    )
    if photos is not None:
        missing = sorted(set(photos) ^ set(hdr))
        if missing:
            kind, other = (
                ("radiance", "photograph") if missing[0] in photos else ("photograph", "radiance")
            )
            raise ZooError(f"{folder}: {missing[0]} has a {other}, but no {kind}.")
    stems = sorted(hdr)
    if base is None and not layout.test_only:
        stems = [s for i, s in enumerate(stems) if _split_of(i) == split]
    elif base is None and split != "test":
        raise ZooError(f"{name} is for testing: it has no {split} split. Train on another set.")
    if not stems:
        raise ZooError(f"{folder} has no HDR image for the {split} split: expected {layout.tree}.")
    files = [hdr[stem] for stem in stems]
    if layout.panoramas:
        return Panoramas(files, views, repair)
    return Files(files, [photos[stem] for stem in stems] if photos is not None else None, repair)


def _split_of(number: int) -> str:
    return {8: "val", 9: "test"}.get(number % 10, "train")


def _listing(
    root: Path, names: tuple[str, ...], suffixes: tuple[str, ...], name: str, layout: Layout
) -> dict[str, Path]:
    folder = next((root / n for n in names if (root / n).is_dir()), None)
    if folder is None:
        raise ZooError(f"{root} has no folder {' or '.join(names)}: {name} has {layout.tree}.")
    files = sorted(p for p in folder.iterdir() if p.suffix.lower() in suffixes)
    twice = [stem for stem, count in Counter(p.stem for p in files).items() if count > 1]
    if twice:
        raise ZooError(f"{folder} has several files named {twice[0]}: expected one of each stem.")
    return {p.stem: p for p in files}


def _from_table(path: Path, split: str, repair: bool) -> Scenes:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows or not {"ldr", "hdr", "split"} <= set(rows[0]):
        raise ZooError(f"{path} has no rows with the columns ldr, hdr and split.")
    splits = {row["split"] for row in rows}
    if not splits <= set(SPLIT_NAMES):
        raise ZooError(f"{path} names the splits {sorted(splits)}: expected train, val, test.")
    wanted = [row for row in rows if row["split"] == split]
    if not wanted:
        raise ZooError(f"{path} has no row of the split {split}.")
    for row in wanted:
        for key in ("hdr", "ldr"):
            if row[key] and not (path.parent / row[key]).is_file():
                raise ZooError(f"{path} names {row[key]}, which is not there.")
    stems = Counter(Path(row["hdr"]).stem for row in wanted)
    twice = [stem for stem, count in stems.items() if count > 1]
    if twice:
        raise ZooError(f"{path} has several scenes named {twice[0]}: expected each once.")
    with_photo = [bool(row["ldr"]) for row in wanted]
    if any(with_photo) != all(with_photo):
        raise ZooError(f"{path}: either all rows of the split {split} name a photograph or none.")
    photos = [path.parent / row["ldr"] for row in wanted] if all(with_photo) else None
    return Files([path.parent / row["hdr"] for row in wanted], photos, repair)

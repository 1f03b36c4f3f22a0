"""One aligned pair of depth and guide, and the scenes and file pairs it is read from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from zoo.depth_files import Array, read_depth, read_image, read_pixels
from zoo.errors import ZooError

SAMPLES = Path(__file__).parent.parent / "samples" / "guided_depth"
SPLITS = {
    "train": ("Art", "Books", "Cones", "Dolls", "Teddy"),
    "val": ("Laundry",),
    "test": ("Motorcycle",),
}

# Middlebury 2005 and 2006 (full size): focal length in pixels times baseline in millimetres.
MIDDLEBURY_FB = 3740 * 160
# Cones and Teddy (2003) have no calibration: this offset in pixels stands in for theirs.
MIDDLEBURY_DMIN = 200.0
# Motorcycle (2014, a quarter of the size), from scikit-image's documentation.
MOTORCYCLE_FB, MOTORCYCLE_DOFFS = 994.978 * 193.001, 31.086


@dataclass(frozen=True)
class Frame:
    """A guide with the depth that belongs to it.

    Attributes:
        name: Unique within the split.
        guide: RGB in 0..1. Shape: (H, W, 3).
        depth: True depth, 0 where unknown. Shape: (H, W).
        lr: What the low-resolution sensor saw, if the benchmark has one; any size. Shape: (h, w).
        metric: Whether depth is in metres; else it is in grey levels.
    """

    name: str
    guide: Array
    depth: Array
    lr: Array | None = None
    metric: bool = True


class Frames(Protocol):
    """A sized collection of frames, each read when it is asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Frame: ...


@dataclass(frozen=True)
class Files:
    """The files of one frame."""

    name: str
    guide: Path
    depth: Path
    lr: Path | None = None


class FileFrames:
    """Frames from files, each checked when it is read.

    Args:
        files: The files of each frame; all must exist.
        metric: Depth files hold millimetres; else grey levels, read as they are.
        depth_range: Nearest and farthest depth in metres that counts as known.

    Raises:
        ZooError: If a file is missing: the first one is named.
    """

    def __init__(
        self,
        files: Sequence[Files],
        metric: bool = True,
        depth_range: tuple[float, float] = (0.0, float("inf")),
    ) -> None:
        for entry in files:
            for path in (entry.guide, entry.depth, entry.lr):
                if path is not None and not path.is_file():
                    raise ZooError(f"{path} is missing: {entry.name} needs it to make a pair.")
        self.files = list(files)
        self.metric = metric
        self.depth_range = depth_range

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int, /) -> Frame:
        entry = self.files[index]
        depth = read_depth(entry.depth) if self.metric else read_grey(entry.depth)
        nearest, farthest = self.depth_range
        depth[(depth < nearest) | (depth > farthest)] = 0
        guide = read_image(entry.guide)
        check_aligned(depth, guide, str(entry.depth))
        lr = read_depth(entry.lr) if entry.lr is not None else None
        return Frame(entry.name, guide, depth, lr, self.metric)


class SceneFrames:
    """Frames from Middlebury's scene folders as they are published, in metres."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = list(folders)
        for folder in self.folders:
            scene_files(folder)

    def __len__(self) -> int:
        return len(self.folders)

    def __getitem__(self, index: int, /) -> Frame:
        return read_scene(self.folders[index])


def read_grey(path: Path) -> Array:
    """Reads a map of grey levels as they are stored, 0 where unknown. Shape: (h, w)."""
    pixels = read_pixels(path)
    if pixels.ndim != 2:
        raise ZooError(f"{path} has the shape {pixels.shape}: expected one channel of grey levels.")
    grey = pixels.astype(np.float32)
    if not (grey > 0).any():
        raise ZooError(f"{path} has no known pixel: expected some grey level above 0.")
    return grey


def scene_files(folder: Path) -> tuple[Path, Path]:
    """Returns the left view and its disparity in a Middlebury scene folder.

    Raises:
        ZooError: If either is missing.
    """
    views = [folder / name for name in ("view1.png", "im2.png") if (folder / name).is_file()]
    if not views:
        raise ZooError(f"{folder} has no view1.png (2005, 2006) and no im2.png (2003).")
    disparity = folder / ("disp1.png" if views[0].name == "view1.png" else "disp2.png")
    if not disparity.is_file():
        raise ZooError(f"{disparity} is missing: {views[0]} needs it to make a pair.")
    return views[0], disparity


def read_scene(folder: Path) -> Frame:
    """Reads a scene folder of Middlebury 2003, 2005 or 2006; grey disparity becomes metres.

    Without a ``dmin.txt`` (2003) a stand-in makes depth right up to an unknown scale.
    """
    view, disparity = scene_files(folder)
    grey = read_grey(disparity)
    dmin = MIDDLEBURY_DMIN
    if (folder / "dmin.txt").is_file():
        text = (folder / "dmin.txt").read_text(encoding="utf-8").strip()
        try:
            dmin = float(text)
        except ValueError:
            raise ZooError(f"{folder / 'dmin.txt'} holds {text!r}: expected one number.") from None
    depth = disparity_to_depth(grey, grey > 0, MIDDLEBURY_FB, dmin)
    guide = read_image(view)
    check_aligned(depth, guide, str(disparity))
    return Frame(folder.name, guide, depth)


def read_motorcycle() -> Frame:
    """Reads Middlebury 2014's Motorcycle, which is part of scikit-image's wheel."""
    from skimage.data import stereo_motorcycle  # scikit-image takes a while to import

    guide, _, disparity = stereo_motorcycle()  # type: ignore[no-untyped-call]
    known = np.isfinite(disparity)  # unknown is infinite, not NaN as its documentation has it
    depth = disparity_to_depth(disparity, known, MOTORCYCLE_FB, MOTORCYCLE_DOFFS)
    return Frame("Motorcycle", read_image(guide), depth)


def read_embedded(split: str) -> list[Frame]:
    """Reads the scenes of ``split`` that come with the package; no scene is in two splits."""
    if split == "test":
        return [read_motorcycle()]
    return [read_scene(SAMPLES / name) for name in SPLITS[split]]


def disparity_to_depth(
    disparity: NDArray[Any], known: NDArray[np.bool_], focal_baseline: float, offset: float
) -> Array:
    """Depth in metres of a rectified stereo pair: Z = f B / (d + offset).

    Args:
        disparity: Pixels. Shape: (H, W).
        known: Where it is known; depth is 0 elsewhere. Shape: (H, W).
        focal_baseline: Focal length in pixels times baseline in millimetres.
        offset: Disparity in pixels of a point at infinity, negated.
    """
    total = np.where(known, disparity, 1.0).astype(np.float32) + np.float32(offset)
    depth: Array = np.where(known, np.float32(focal_baseline / 1000) / total, np.float32(0))
    return depth


def check_aligned(depth: Array, guide: Array, where: str) -> None:
    """Raises a ZooError unless true depth and guide have the same height and width."""
    if depth.shape != guide.shape[:2]:
        raise ZooError(
            f"{where} is {depth.shape[0]}x{depth.shape[1]} (height x width), its guide "
            f"{guide.shape[0]}x{guide.shape[1]}: expected true depth of the guide's size."
        )

"""The public benchmarks in the folders and files in which they are published."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.depth_files import check_depth, check_guide
from zoo.errors import ZooError, missing_extra

from .pairing import pair_key
from .readers import FileFrames, Files, Frame, Frames, SceneFrames, check_aligned

HELD_OUT = 20  # one training image in so many, the last ones, validates instead
NYU_TRAIN, NYU_IMAGES = 1000, 1449
TOFDSR_RANGE = (0.1, 5.0)  # metres; the benchmark counts truth only within it


@dataclass(frozen=True)
class Layout:
    """How a benchmark lies on disk.

    Attributes:
        read: From root, split and whether the sensor's own map is wanted, to the frames.
        tree: What is expected below root, for people.
        splits: The splits that the benchmark has.
        sensor: Whether it has low-resolution maps of a real sensor.
    """

    read: Callable[[Path, str, bool], Frames]
    tree: str
    splits: tuple[str, ...] = ("train", "val", "test")
    sensor: bool = False


def open_benchmark(dataset: str, root: Path | None, split: str, with_lr: bool) -> Frames:
    """Opens one split of a benchmark; all its files are there, their values are not read yet.

    The benchmarks have no validation split, and papers choose their checkpoint by the test set. We
    hold out the last 5 % of the training images instead.

    Args:
        dataset: A key of `LAYOUTS`.
        root: The benchmark's folder.
        split: "train", "val" or "test".
        with_lr: Whether the sensor's own low-resolution map is wanted too.

    Raises:
        ZooError: If ``root`` is not the benchmark's folder, a file is missing, or ``dataset`` has
            no such split.
    """
    layout = LAYOUTS[dataset]
    if split not in layout.splits:
        raise ZooError(
            f"dataset={dataset!r} is for testing only and has no {split} split: "
            "train on another dataset, then run `zoo test` on this one."
        )
    if root is None:
        raise ZooError(f"dataset={dataset!r} needs root, a folder with\n{layout.tree}")
    if not root.is_dir():
        raise ZooError(f"root={root} is not a folder: {dataset!r} expects there\n{layout.tree}")
    return layout.read(root, split, with_lr)


def hold_out(count: int, split: str) -> range:
    """Indices of the "train" or "val" part of ``count`` training images; all of them for "test"."""
    if split == "test":
        return range(count)
    # The last ones, not every n-th: neighbours in a list often show the same room.
    first_held = count - max(1, count // HELD_OUT)
    return range(first_held) if split == "train" else range(first_held, count)


class ArrayFrames:
    """Frames from two arrays, of which only the asked-for part is read."""

    def __init__(
        self,
        name: str,
        indices: range,
        read: Callable[[int], tuple[NDArray[Any], NDArray[Any]]],
    ) -> None:
        self.name = name
        self.indices = indices
        self.read = read

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, position: int, /) -> Frame:
        index = self.indices[position]
        image, depth = self.read(index)
        name = f"{self.name}_{index:04d}"
        if image.dtype == np.uint8:
            image = image.astype(np.float32) / 255
        guide = image.astype(np.float32)
        depth = np.nan_to_num(depth.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)
        check_depth(depth, name)
        check_guide(guide, name)
        check_aligned(depth, guide, name)
        return Frame(name, guide, depth)


def read_nyu(root: Path, split: str, with_lr: bool) -> Frames:
    """NYUv2 from its labelled .mat file, or from the arrays that the community shares."""
    del with_lr  # NYUv2 has no second sensor
    mat = root / "nyu_depth_v2_labeled.mat"
    if mat.is_file():
        return _nyu_mat(mat, split)
    part = "test" if split == "test" else "train"
    images_name = "test_images_v2.npy" if part == "test" else "train_images_split.npy"
    depths_name = "test_depth.npy" if part == "test" else "train_depth_split.npy"
    for name in (images_name, depths_name):
        if not (root / name).is_file():
            raise _wrong_tree("nyu", root, f"neither {mat.name} nor {name} is there")
    images, depths = _map_array(root / images_name), _map_array(root / depths_name)
    if images.ndim != 4 or images.shape[3] != 3 or depths.ndim not in (3, 4):
        raise ZooError(
            f"{root / images_name} {images.shape} and {depths_name} {depths.shape} do not match: "
            "expected (N, 480, 640, 3) and (N, 480, 640)."
        )
    if len(images) != len(depths):
        raise ZooError(
            f"{root / images_name} has {len(images)} images but {depths_name} {len(depths)} maps."
        )

    if part == "test" and depths[0].max() <= 1:
        low, high = _nyu_minmax(root, len(depths))
    else:
        low, high = np.zeros(len(depths)), np.ones(len(depths))

    def read(index: int) -> tuple[NDArray[Any], NDArray[Any]]:
        depth = depths[index].reshape(depths.shape[1:3])
        return images[index], low[index] + depth * (high[index] - low[index])

    return ArrayFrames(f"nyu_{part}", hold_out(len(images), split), read)


def _nyu_minmax(root: Path, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Least and largest depth of each test map in metres, to undo a normalisation to 0..1."""
    path = root / "test_minmax.npy"
    if not path.is_file():
        raise ZooError(
            f"{root / 'test_depth.npy'} holds depth normalised to 0..1: expected {path}."
        )
    minmax = _map_array(path)
    if minmax.shape == (count, 2):
        minmax = minmax.T
    if minmax.shape != (2, count):
        raise ZooError(f"{path} has the shape {minmax.shape}: expected (2, {count}).")
    low, high = np.sort(minmax.astype(np.float64), axis=0)
    unit = 0.01 if high.max() > 20 else 1.0  # no room is 20 m deep: these are centimetres
    return unit * low, unit * high


def _nyu_mat(path: Path, split: str) -> Frames:
    try:
        import h5py
    except ImportError:
        raise missing_extra("h5py", "depth") from None
    if not h5py.is_hdf5(path):
        raise ZooError(
            f"{path} is not a MAT file of version 7.3 (HDF5): it is truncated, or was saved again "
            "by an older MATLAB; expected the published nyu_depth_v2_labeled.mat (2.8 GB)."
        )
    try:
        with h5py.File(path, "r") as file:
            shapes = {name: file[name].shape for name in ("images", "depths")}
    except (OSError, KeyError) as error:
        raise ZooError(f"{path} has no readable 'images' and 'depths': {error}.") from error
    count = shapes["images"][0]
    if shapes["images"] != (count, 3, *shapes["depths"][1:]) or shapes["depths"][0] != count:
        raise ZooError(
            f"{path} holds images {shapes['images']} and depths {shapes['depths']}: "
            "expected (1449, 3, 640, 480) and (1449, 640, 480)."
        )
    # A shorter file (an excerpt) is split in the published proportion.
    train = count * NYU_TRAIN // NYU_IMAGES

    def read(index: int) -> tuple[NDArray[Any], NDArray[Any]]:
        with h5py.File(path, "r") as file:  # opened anew: an open file does not survive a fork
            # MATLAB stores columns first: both come transposed.
            return file["images"][index].transpose(2, 1, 0), file["depths"][index].T

    indices = range(train, count) if split == "test" else hold_out(train, split)
    return ArrayFrames("nyu", indices, read)


def read_middlebury(root: Path, split: str, with_lr: bool) -> Frames:
    """``RGB`` and ``Depth`` folders in grey levels, or scene folders as published, in metres."""
    del split, with_lr  # test only, no second sensor
    if not (root / "RGB").is_dir() or not (root / "Depth").is_dir():
        scenes = sorted(
            folder
            for folder in root.iterdir()
            if any((folder / view).is_file() for view in ("view1.png", "im2.png"))
        )
        if not scenes:
            raise _wrong_tree("middlebury", root, "it has no such folders")
        return SceneFrames(scenes)
    return _rgb_and_depth("middlebury", root)


def read_lu(root: Path, split: str, with_lr: bool) -> Frames:
    """Lu's six pairs: ``RGB`` and ``Depth`` folders in grey levels."""
    del split, with_lr  # test only, no second sensor
    return _rgb_and_depth("lu", root)


def _rgb_and_depth(dataset: str, root: Path) -> Frames:
    guides, depths = sorted(root.glob("RGB/*.png")), sorted(root.glob("Depth/*.png"))
    if not guides or not depths:
        raise _wrong_tree(dataset, root, "RGB/*.png or Depth/*.png is not there")
    maps = {pair_key(path): path for path in depths}
    images = {pair_key(path): path for path in guides}
    alone = sorted(maps[key] for key in maps.keys() - images.keys())
    alone += sorted(images[key] for key in images.keys() - maps.keys())
    if alone:
        raise ZooError(
            f"{alone[0]} has no partner of its name: expected one in RGB and Depth each."
        )
    files = [Files(key, images[key], maps[key]) for key in sorted(maps)]
    return FileFrames(files, metric=False)


def read_rgbdd(root: Path, split: str, with_lr: bool) -> Frames:
    """RGB-D-D: a folder for each id, 16-bit millimetres, phone time-of-flight as LR."""
    part = "test" if split == "test" else "train"
    files: list[Files] = []
    for kind in ("models", "plants", "portraits"):
        parent = root / kind / f"{kind}_{part}"
        if not parent.is_dir():
            raise _wrong_tree("rgbdd", root, f"{parent} is not there")
        folders = sorted(folder for folder in parent.iterdir() if folder.is_dir())
        for index in hold_out(len(folders), split):
            stem = folders[index] / folders[index].name
            files.append(
                Files(
                    folders[index].name,
                    Path(f"{stem}_RGB.jpg"),
                    Path(f"{stem}_HR_gt.png"),
                    Path(f"{stem}_LR_fill_depth.png") if with_lr else None,
                )
            )
    return FileFrames(files)


def read_tofdsr(root: Path, split: str, with_lr: bool) -> Frames:
    """TOFDSR: a list file with relative paths for each part, 16-bit millimetres."""
    part = "test" if split == "test" else "train"
    lists = sorted(
        path
        for path in root.iterdir()
        if path.suffix.lower() in (".txt", ".csv") and part in path.stem.lower()
    )
    if len(lists) != 1:
        raise _wrong_tree("tofdsr", root, f"{len(lists)} files are lists of the {part} part")
    files: list[Files] = []
    for number, line in enumerate(lists[0].read_text(encoding="utf-8").splitlines(), start=1):
        columns = [column.strip() for column in line.split(",")]
        if columns in ([""], ["rgb", "gt", "lr"]):
            continue  # an empty line, or a heading
        if len(columns) != 3 or not all(columns):
            raise ZooError(
                f"{lists[0]}, line {number}: expected three paths (rgb,gt,lr), found {line!r}."
            )
        guide, depth, lr = (root / column for column in columns)
        files.append(Files(depth.stem, guide, depth, lr if with_lr else None))
    kept = [files[index] for index in hold_out(len(files), split)]
    return FileFrames(kept, depth_range=TOFDSR_RANGE)


def _map_array(path: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise ZooError(f"{path} cannot be read, it may be truncated: {error}.") from error
    return array


def _wrong_tree(dataset: str, root: Path, problem: str) -> ZooError:
    return ZooError(f"{root} is not {dataset!r} ({problem}): expected\n{LAYOUTS[dataset].tree}")


LAYOUTS = {
    "nyu": Layout(
        read_nyu,
        "  nyu_depth_v2_labeled.mat\n"
        "or\n"
        "  train_images_split.npy  train_depth_split.npy\n"
        "  test_images_v2.npy      test_depth.npy",
    ),
    "middlebury": Layout(
        read_middlebury,
        "  RGB/*.png  Depth/*.png                       (grey levels)\n"
        "or\n"
        "  <scene>/view1.png  disp1.png  dmin.txt       (2005, 2006)\n"
        "  <scene>/im2.png    disp2.png                 (2001, 2003)",
        splits=("test",),
    ),
    "lu": Layout(read_lu, "  RGB/*.png  Depth/*.png", splits=("test",)),
    "rgbdd": Layout(
        read_rgbdd,
        "  {models,plants,portraits}/{type}_{train,test}/<id>/"
        "<id>_{RGB.jpg,HR_gt.png,LR_fill_depth.png}",
        sensor=True,
    ),
    "tofdsr": Layout(
        read_tofdsr,
        "  one list with 'train' and one with 'test' in its name (.txt or .csv), lines rgb,gt,lr\n"
        "  TOFDC_split/{Train,Test}/{RGB,GT,LR_Filled}/*.png",
        sensor=True,
    ),
}

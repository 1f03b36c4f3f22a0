"""The public benchmarks in the folders and files in which they are published."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from zoo.errors import ZooError

from .nyu import ArrayFrames, MatFrames, array_files
from .pairing import pair_files
from .readers import FileFrames, Files, Frames, SceneFrames

HELD_OUT = 20  # one training image in so many, the last ones, validates instead
NYU_TRAIN, NYU_IMAGES = 1000, 1449  # the first 1000 train, the others test
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


def read_nyu(root: Path, split: str, _with_lr: bool) -> Frames:
    """NYUv2 from its labelled .mat file, or from the arrays that the community shares."""
    mat = root / "nyu_depth_v2_labeled.mat"
    if mat.is_file():
        # A shorter file (an excerpt) is split in the published proportion.
        count = MatFrames.count(mat)
        train = count * NYU_TRAIN // NYU_IMAGES
        return MatFrames(mat, range(train, count) if split == "test" else hold_out(train, split))
    images, depths = array_files(root, split)
    for path in (images, depths):
        if not path.is_file():
            raise _wrong_tree("nyu", root, f"neither {mat.name} nor {path.name} is there")
    return ArrayFrames(images, depths, hold_out(ArrayFrames.count(images, depths), split))


def read_middlebury(root: Path, _split: str, _with_lr: bool) -> Frames:
    """``RGB`` and ``Depth`` folders in grey levels, or scene folders as published, in metres."""
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


def read_lu(root: Path, _split: str, _with_lr: bool) -> Frames:
    """Lu's six pairs: ``RGB`` and ``Depth`` folders in grey levels."""
    return _rgb_and_depth("lu", root)


def _rgb_and_depth(dataset: str, root: Path) -> Frames:
    guides, depths = sorted(root.glob("RGB/*.png")), sorted(root.glob("Depth/*.png"))
    if not guides or not depths:
        raise _wrong_tree(dataset, root, "RGB/*.png or Depth/*.png is not there")
    return FileFrames(pair_files([*depths, *guides]), metric=False)


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
        "  <scene>/im2.png    disp2.png                 (2003)",
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

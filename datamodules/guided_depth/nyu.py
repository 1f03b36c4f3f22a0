"""NYUv2 from its labelled .mat file, or from the NumPy arrays that the community shares.

Files are opened anew at each read: an open HDF5 file does not survive a fork, and an open array
would be copied to each spawned worker.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.depth_files import read_depth, read_image
from zoo.errors import ZooError, missing_extra

from .readers import Frame, check_aligned

DEEPEST = 20.0  # metres; no room of NYUv2 is as deep, so larger numbers are centimetres


class MatFrames:
    """Frames of ``nyu_depth_v2_labeled.mat``, a MAT file of version 7.3 (HDF5).

    Args:
        path: The file.
        indices: The images that belong to the split.
    """

    def __init__(self, path: Path, indices: range) -> None:
        self.path = path
        self.indices = indices

    @staticmethod
    def count(path: Path) -> int:
        """Number of images in the file.

        Raises:
            ZooError: If h5py is absent, or the file is not what it should be.
        """
        h5py = _h5py()
        if not h5py.is_hdf5(path):
            raise ZooError(
                f"{path} is not a MAT file of version 7.3 (HDF5): it is truncated, or was saved "
                "again by an older MATLAB; expected the published file (2.8 GB)."
            )
        try:
            with h5py.File(path, "r") as file:
                images, depths = file["images"].shape, file["depths"].shape
        except (OSError, KeyError) as error:
            raise ZooError(f"{path} has no readable 'images' and 'depths': {error}.") from error
        if len(images) != 4 or images != (depths[0], 3, *depths[1:]):
            raise ZooError(
                f"{path} holds images {images} and depths {depths}: "
                "expected (1449, 3, 640, 480) and (1449, 640, 480)."
            )
        return int(images[0])

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, position: int, /) -> Frame:
        index = self.indices[position]
        with _h5py().File(self.path, "r") as file:
            image, depth = file["images"][index], file["depths"][index]
        # MATLAB stores columns first: both come transposed.
        return _frame(image.transpose(2, 1, 0), depth.T, "nyu", index, self.path)


class ArrayFrames:
    """Frames of one pair of ``.npy`` files: images (N, H, W, 3), and depth in metres (N, H, W).

    Some copies hold test depth normalised to 0..1 with the range of each map in ``test_minmax.npy``
    beside them (from memory of public training code, not from a document): that is undone.

    Args:
        images: File of the images.
        depths: File of the depth maps.
        indices: The images that belong to the split.
    """

    def __init__(self, images: Path, depths: Path, indices: range) -> None:
        self.images = images
        self.depths = depths
        self.indices = indices
        test = depths.name.startswith("test")
        self.prefix = "nyu_test" if test else "nyu_train"
        stored = _open(depths)
        self.minmax: NDArray[np.float64] | None = None
        if test and len(stored) and stored[0].max() <= 1:
            self.minmax = _minmax(depths, len(stored))

    @staticmethod
    def count(images: Path, depths: Path) -> int:
        """Number of images in the files.

        Raises:
            ZooError: If the two do not match.
        """
        guide, depth = _open(images).shape, _open(depths).shape
        if len(guide) != 4 or guide[3] != 3 or depth not in (guide[:3], (*guide[:3], 1)):
            raise ZooError(
                f"{images} {guide} and {depths.name} {depth} do not match: "
                "expected (N, 480, 640, 3) and (N, 480, 640)."
            )
        return int(guide[0])

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, position: int, /) -> Frame:
        index = self.indices[position]
        depth = _open(self.depths)[index]
        if self.minmax is not None:
            low, high = self.minmax[:, index]
            depth = low + depth * (high - low)
        return _frame(_open(self.images)[index], depth, self.prefix, index, self.depths)


def array_files(root: Path, split: str) -> tuple[Path, Path]:
    """Where the images and the depth maps of ``split`` are in the community's copy."""
    if split == "test":
        return root / "test_images_v2.npy", root / "test_depth.npy"
    return root / "train_images_split.npy", root / "train_depth_split.npy"


def _frame(image: NDArray[Any], depth: NDArray[Any], prefix: str, index: int, path: Path) -> Frame:
    where = f"{path}, image {index}"
    guide, truth = read_image(image, where), read_depth(depth, where=where)
    check_aligned(truth, guide, where)
    return Frame(f"{prefix}_{index:04d}", guide, truth)


def _minmax(depths: Path, count: int) -> NDArray[np.float64]:
    """Least and largest depth of each test map in metres. Shape: (2, count)."""
    path = depths.with_name("test_minmax.npy")
    if not path.is_file():
        raise ZooError(f"{depths} holds depth normalised to 0..1: expected {path.name} beside it.")
    stored = _open(path)
    minmax = np.sort(stored if stored.shape == (2, count) else stored.T, axis=0)
    if minmax.shape != (2, count):
        raise ZooError(f"{path} has the shape {stored.shape}: expected (2, {count}).")
    return minmax.astype(np.float64) * (0.01 if minmax.max() > DEEPEST else 1.0)


def _open(path: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise ZooError(f"{path} cannot be read, it may be truncated: {error}.") from error
    return array


def _h5py() -> Any:
    try:
        import h5py
    except ImportError:
        raise missing_extra("h5py", "depth") from None
    return h5py

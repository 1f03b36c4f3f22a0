"""Miniatures of the public benchmarks of guided depth: the published layout, a few small images.

Each writer takes an empty folder and returns it. Depth is a tilted wall with a box before it, so it
differs in every row, column and image; a corner is unknown.
"""

from pathlib import Path

import numpy as np
from PIL import Image

HEIGHT, WIDTH = 48, 64
TRAIN, TEST = 3, 2  # images of each part


def depth_m(index: int, height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """Depth of image ``index`` in metres, 1 to 4.5, with an unknown corner; float32 (H, W)."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    depth = 2.5 + 1.5 * y / height + 0.3 * x / width + 0.05 * index
    depth[height // 4 : height // 2, width // 4 : width // 2] = 1.0 + 0.05 * index
    depth[: height // 8, : width // 8] = 0
    return depth.astype(np.float32)


def guide_u8(index: int, height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """The image of `depth_m`: RGB uint8 (H, W, 3)."""
    depth = depth_m(index, height, width)
    grey = (40 * depth).astype(np.uint8)
    return np.stack([grey, 255 - grey, np.full_like(grey, 15 * index)], axis=2)


def millimetres(depth: np.ndarray) -> Image.Image:
    return Image.fromarray(np.round(1000 * depth).astype(np.uint16))


def save(image: np.ndarray | Image.Image, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not isinstance(image, Image.Image):
        image = Image.fromarray(image)
    image.save(path)


def write_nyu_mat(root: Path, count: int = 6) -> Path:
    """The labelled .mat (HDF5), columns first as MATLAB stores them."""
    import h5py

    with h5py.File(root / "nyu_depth_v2_labeled.mat", "w") as file:
        file["images"] = np.stack([guide_u8(i).transpose(2, 1, 0) for i in range(count)])
        file["depths"] = np.stack([depth_m(i).T for i in range(count)])
    return root


def write_nyu_npy(root: Path) -> Path:
    """The community's four arrays; the last part of the index tells the two parts apart."""
    for names, indices in (
        (("train_images_split", "train_depth_split"), range(TRAIN)),
        (("test_images_v2", "test_depth"), range(TRAIN, TRAIN + TEST)),
    ):
        np.save(root / f"{names[0]}.npy", np.stack([guide_u8(i) for i in indices]))
        np.save(root / f"{names[1]}.npy", np.stack([depth_m(i) for i in indices]))
    return root


def write_nyu_minmax(root: Path) -> Path:
    """`write_nyu_npy` with test depth normalised to 0..1, and the range beside it in cm."""
    write_nyu_npy(root)
    depth = np.load(root / "test_depth.npy")
    low, high = depth.min(axis=(1, 2)), depth.max(axis=(1, 2))
    np.save(root / "test_depth.npy", (depth - low[:, None, None]) / (high - low)[:, None, None])
    np.save(root / "test_minmax.npy", 100 * np.stack([high, low]))
    return root


def write_grey_pairs(root: Path, count: int = TEST) -> Path:
    """Middlebury and Lu: RGB and Depth folders, 8-bit grey levels."""
    for i in range(count):
        save(guide_u8(i), root / "RGB" / f"{i + 1:02d}_color.png")
        save((50 * depth_m(i)).astype(np.uint8), root / "Depth" / f"{i + 1:02d}_depth.png")
    return root


def write_middlebury_scenes(root: Path) -> Path:
    """A 2005 scene folder with its offset, and a 2003 one without."""
    save(guide_u8(0), root / "Moebius" / "view1.png")
    save((50 * depth_m(0)).astype(np.uint8), root / "Moebius" / "disp1.png")
    (root / "Moebius" / "dmin.txt").write_text("230\n")
    save(guide_u8(1), root / "Venus" / "im2.png")
    save((50 * depth_m(1)).astype(np.uint8), root / "Venus" / "disp2.png")
    return root


def write_rgbdd(root: Path) -> Path:
    """RGB-D-D: three kinds, a folder for each id, LR of three eighths of the size."""
    index = 0
    for kind in ("models", "plants", "portraits"):
        for part, count in (("train", TRAIN), ("test", TEST)):
            for _ in range(count):
                name = f"2020{index:04d}"
                folder = root / kind / f"{kind}_{part}" / name
                save(guide_u8(index), folder / f"{name}_RGB.jpg")
                save(millimetres(depth_m(index)), folder / f"{name}_HR_gt.png")
                lr = depth_m(index, HEIGHT * 3 // 8, WIDTH * 3 // 8)
                save(millimetres(lr), folder / f"{name}_LR_fill_depth.png")
                index += 1
    return root


def write_tofdsr(root: Path) -> Path:
    """TOFDSR: list files with rgb,gt,lr; some truth lies beyond the 5 m that count."""
    for part, count in (("Train", TRAIN), ("Test", TEST)):
        lines = []
        for i in range(count):
            paths = [
                f"TOFDC_split/{part}/{kind}/{i:04d}.png" for kind in ("RGB", "GT", "LR_Filled")
            ]
            depth = depth_m(i)
            save(guide_u8(i), root / paths[0])
            save(millimetres(np.where(depth == depth.max(), 5.2, depth)), root / paths[1])
            save(millimetres(np.where(depth == 0, 2.0, depth)), root / paths[2])
            lines.append(",".join(paths))
        (root / f"TOFDSR_{part}.txt").write_text("\n".join(lines) + "\n")
    return root

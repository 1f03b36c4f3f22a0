"""Scenes with a focal stack: rendered from the Middlebury samples, or from files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from zoo.display import decode, encode
from zoo.errors import ZooError
from zoo.hdr_files import PHOTO_SUFFIXES, read_photo

from ..guided_depth.degradation import fill_unknown
from ..guided_depth.readers import read_embedded
from .lens import MAX_RADIUS, render

SPLIT_FOLDERS = {"train": "train_c", "val": "val_c", "test": "test_c"}


@dataclass(frozen=True)
class Stack:
    """A scene.

    Attributes:
        name: Unique within the split.
        sharp: Display-encoded. Shape: (3, H, W).
        frames: Near to far focus, display-encoded. Shape: (N, 3, H, W).
        blurred: The input, if it is none of the frames, display-encoded. Shape: (3, H, W).
    """

    name: str
    sharp: Tensor
    frames: Tensor | None
    blurred: Tensor | None = None


@cache
def embedded_stacks(split: str, count: int) -> list[Stack]:
    """Middlebury scenes through a thin lens, focused at quantiles of their disparity.

    Args:
        split: No scene is in two splits.
        count: Frames.
    """
    stacks = []
    for frame in read_embedded(split):
        depth = fill_unknown(torch.from_numpy(frame.depth))
        inverse = 1 / depth.clamp_min(1e-3)
        low, high = torch.quantile(inverse[::2, ::2].flatten(), torch.tensor([0.01, 0.99]))
        disparity = ((inverse - low) / (high - low)).clamp(0, 1)
        sharp = torch.from_numpy(frame.guide).permute(2, 0, 1).contiguous()
        at = torch.linspace(0.95, 0.05, count)  # near to far
        focus = torch.quantile(disparity[::2, ::2].flatten(), at)
        frames = encode(render(decode(sharp), disparity, focus, MAX_RADIUS))
        stacks.append(Stack(frame.name, sharp, (frames * 255).round() / 255))
    return stacks


class StackFolders:
    """Stacks of photographs, ``stack/<id>/<k>.jpg``, near to far; three of four ids train.

    Truth is not photographed: it is the stack merged by local contrast, as the data's users do.

    Args:
        root: Folder that holds ``stack``.
        split: "train", "val" or "test".
        count: Frames taken of each stack, evenly spread.
    """

    def __init__(self, root: Path, split: str, count: int) -> None:
        folder = root / "stack"
        if not folder.is_dir():
            raise ZooError(f"{folder} is no folder: expected stack/<id>/<k>.jpg, near to far.")
        ids = sorted(p for p in folder.iterdir() if p.is_dir())
        wanted = {"train": (0, 1, 2, 3, 4, 5), "val": (6,), "test": (7,)}[split]
        self.folders = [p for i, p in enumerate(ids) if i % 8 in wanted]
        self.count = count
        if not self.folders:
            raise ZooError(f"{folder} has {len(ids)} stacks, none for the {split} split.")
        for path in self.folders:
            if len(_pictures(path)) < count:
                raise ZooError(f"{path} has fewer than {count} pictures (focus_frames).")

    def __len__(self) -> int:
        return len(self.folders)

    def __getitem__(self, index: int) -> Stack:
        files = _pictures(self.folders[index])
        chosen = [
            files[round(i * (len(files) - 1) / max(self.count - 1, 1))] for i in range(self.count)
        ]
        frames = [_read(path) for path in chosen]
        if any(f.shape != frames[0].shape for f in frames):
            raise ZooError(f"{self.folders[index]} has pictures of different sizes.")
        stacked = torch.stack(frames)
        return Stack(self.folders[index].name, merge_by_contrast(stacked), stacked)


class BlurredPairs:
    """Pairs of a defocused and a sharp photograph, for testing.

    Args:
        folder: Holds ``source`` (defocused) and ``target`` (sharp), of the same file names.
    """

    def __init__(self, folder: Path) -> None:
        for name in ("source", "target"):
            if not (folder / name).is_dir():
                raise ZooError(
                    f"{folder / name} is no folder: expected source/*.png, target/*.png."
                )
        source, target = (_pictures(folder / name) for name in ("source", "target"))
        names = {p.stem for p in source} ^ {p.stem for p in target}
        if names:
            raise ZooError(f"{folder}: {min(names)} is in only one of source and target.")
        self.files = list(zip(source, target, strict=True))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Stack:
        blurred, sharp = (_read(path) for path in self.files[index])
        if blurred.shape != sharp.shape:
            raise ZooError(f"{self.files[index][0]} and its target differ in size.")
        return Stack(self.files[index][0].stem, sharp, None, blurred)


def merge_by_contrast(frames: Tensor, sharpness: float = 8.0) -> Tensor:
    """The sharpest of the frames at each pixel, softly: weights grow with local contrast.

    Args:
        frames: Display-encoded. Shape: (N, 3, H, W).
        sharpness: Power of the contrast.

    Returns:
        Shape: (3, H, W).
    """
    grey = frames.mean(dim=1, keepdim=True)
    kernel = torch.tensor([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]]).view(1, 1, 3, 3)
    padded = torch.nn.functional.pad(grey, (1, 1, 1, 1), mode="replicate")
    contrast = torch.nn.functional.conv2d(padded, kernel).abs()
    contrast = torch.nn.functional.avg_pool2d(contrast, 9, stride=1, padding=4) + 1e-4
    weights = (contrast / contrast.amax(dim=0)) ** sharpness  # (N, 1, H, W)
    return (frames * weights).sum(dim=0) / weights.sum(dim=0)


def open_stacks(dataset: str, root: Path, split: str, count: int) -> Sequence[Stack]:
    """The scenes of a data set in ``root``.

    Raises:
        ZooError: If folders or files are missing.
    """
    if dataset == "stacks":
        return StackFolders(root, split, count)  # type: ignore[return-value]
    folder = root / SPLIT_FOLDERS[split] if dataset == "dpdd" else root
    if split == "train":
        raise ZooError(f"{dataset} has no focal stacks to train on: train on 'stacks' or embedded.")
    return BlurredPairs(folder)  # type: ignore[return-value]


def _pictures(folder: Path) -> list[Path]:
    files = [p for p in folder.iterdir() if p.suffix.lower() in PHOTO_SUFFIXES]
    return sorted(files, key=lambda p: (int(p.stem) if p.stem.isdigit() else -1, p.name))


def _read(path: Path) -> Tensor:
    return torch.from_numpy(read_photo(path).copy()).permute(2, 0, 1).contiguous()

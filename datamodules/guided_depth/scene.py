"""One pair as tensors: filled, cut to a multiple of the scale, and degraded window by window."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from zoo.errors import ZooError

from . import degradation
from .degradation import Window
from .readers import Frame, Frames

CM_PER_M = 100.0
FULL_SCALE_M, FULL_SCALE_GREY = 5.0, 255.0  # what the noise of "noisy" refers to


@dataclass(frozen=True)
class Scene:
    """An aligned pair, ready to be cropped and degraded.

    Attributes:
        name: The frame's.
        guide: RGB in 0..1. Shape: (3, H, W).
        depth: Metres or grey levels, unknown pixels filled. Shape: (H, W).
        mask: Where the truth is known. Shape: (H, W).
        lr: The sensor's own map at the guide's size, 0 where unknown. Shape: (H, W).
        levels: The whole depth blurred with each of `degradation.SIGMAS`, if it is kept in memory.
            Shape: (3, H, W).
        metric: Whether depth is in metres; else it is in grey levels.
    """

    name: str
    guide: Tensor
    depth: Tensor
    mask: Tensor
    lr: Tensor | None
    levels: Tensor | None
    metric: bool

    @classmethod
    def from_frame(cls, frame: Frame, scale: int, keep_levels: bool = False) -> "Scene":
        """Fills the unknown pixels; cuts bottom and right to a multiple of ``scale``."""
        height, width = (size - size % scale for size in frame.depth.shape)
        known = torch.from_numpy(frame.depth[:height, :width].copy())
        if not bool(known.any()):
            raise ZooError(
                f"{frame.name} ({frame.depth.shape[0]}x{frame.depth.shape[1]}) has no known depth "
                f"in what is left after cutting it to a multiple of scale={scale}."
            )
        depth = degradation.fill_unknown(known) if frame.metric else _fill_grey(known)
        guide = torch.from_numpy(frame.guide[:height, :width].transpose(2, 0, 1).copy())
        lr = None
        if frame.lr is not None:
            lr = _enlarge_sensor(torch.from_numpy(frame.lr), (height, width))
        whole = (slice(0, height), slice(0, width))
        levels = degradation.blur_levels(depth, whole) if keep_levels else None
        return cls(frame.name, guide, depth, known > 0, lr, levels, frame.metric)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return self.depth.shape[0], self.depth.shape[1]

    @property
    def report_scale(self) -> float:
        """One unit of depth in the unit of reported errors: cm, or grey levels."""
        return CM_PER_M if self.metric else 1.0

    def degrade(
        self, window: Window, kind: str, scale: int, rng: Generator
    ) -> tuple[Tensor, Tensor | None]:
        """Makes the low-resolution depth of a window.

        Args:
            window: Rows and columns, a multiple of ``scale`` high and wide.
            kind: One of `degradation.DEGRADATIONS`.
            scale: Factor between the window and the result.
            rng: Source of everything random.

        Returns:
            Depth, shape (h / scale, w / scale); and if ``kind`` is "spatially_varying" the position
            of the local blur among `degradation.SIGMAS`, in 0..1, shape (h, w).
        """
        if kind == "spatially_varying":
            levels = (
                degradation.blur_levels(self.depth, window)
                if self.levels is None
                else self.levels[:, window[0], window[1]]
            )
            blur = degradation.smooth_map(self.size, window, rng)
            noise = degradation.smooth_map(self.size, window, rng)
            lr = degradation.spatially_varying(levels, blur, noise, scale, rng)
            return lr, blur
        if self.lr is not None:
            lr = self.lr[window]
        else:
            lr = degradation.bicubic_depth(self.depth[window], scale)
        if kind == "noisy":
            full_scale = FULL_SCALE_M if self.metric else FULL_SCALE_GREY
            lr = degradation.noisy(lr, scale, full_scale, rng)
        return lr, None


class Scenes:
    """The frames of a split as scenes: read anew each time, or all kept in memory.

    Args:
        frames: The frames; a list of them (the embedded scenes) is prepared once and kept.
        scale: Sizes are cut to a multiple of it.
    """

    def __init__(self, frames: Frames, scale: int) -> None:
        self.frames = frames
        self.scale = scale
        self.kept: Sequence[Scene] | None = None
        if isinstance(frames, list):
            self.kept = [Scene.from_frame(frame, scale, keep_levels=True) for frame in frames]

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: int) -> Scene:
        if self.kept is not None:
            return self.kept[index]
        return Scene.from_frame(self.frames[index], self.scale)


def _fill_grey(grey: Tensor) -> Tensor:
    # Grey levels are disparities, bright is near: turn them round so that larger is farther.
    top = grey.max() + 1
    return top - degradation.fill_unknown(torch.where(grey > 0, top - grey, 0))


def _enlarge_sensor(lr: Tensor, size: tuple[int, int]) -> Tensor:
    # The benchmarks' protocol; holes stay holes instead of bleeding into their neighbours.
    if lr.shape == size:
        return lr
    enlarged = degradation.bicubic(degradation.fill_unknown(lr), size)
    known = F.interpolate((lr > 0).float()[None, None], size=size, mode="nearest-exact")[0, 0]
    return torch.where(known > 0, enlarged.clamp_(min=degradation.MIN_DEPTH), 0)

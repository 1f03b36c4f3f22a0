"""All-in-focus recovery: the datasets of each split and their data module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch.utils.data import Dataset

from zoo.display import decode
from zoo.errors import ZooError, did_you_mean
from zoo.hdr_files import PHOTO_SUFFIXES
from zoo.reproducible import generator

from ..base import ZooDataModule
from ..hdr.datamodule import Photographs
from .scenes import Stack, embedded_stacks, open_stacks

EMBEDDED = "middlebury_lens"
DATASETS = ("stacks", "dpdd", "realdof")
EMBEDDED_CROPS = 1024  # random crops an epoch from the five embedded training scenes

Sample: TypeAlias = dict[str, Any]


class StackCrops(Dataset[Sample]):
    """Random crops of focal stacks; the input is one of the frames, drawn anew each time."""

    def __init__(self, stacks: Sequence[Stack], crop: int, count: int) -> None:
        self.stacks, self.crop, self.count = stacks, crop, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Sample:
        rng = generator(int(torch.randint(2**31, ())), index)
        stack = self.stacks[index % len(self.stacks)]
        assert stack.frames is not None  # only pairs have none, and they are not trained on
        height, width = stack.sharp.shape[1:]
        if self.crop > min(height, width):
            raise ZooError(f"crop={self.crop} does not fit into {stack.name}, {height}x{width}.")
        top, left = (
            int(torch.randint(size - self.crop + 1, (), generator=rng)) for size in (height, width)
        )
        focus = int(torch.randint(len(stack.frames), (), generator=rng))
        sample = _sample(stack, focus, slice(top, top + self.crop), slice(left, left + self.crop))
        if bool(torch.rand((), generator=rng) < 0.5):
            for key in ("image", "target", "frames"):
                sample[key] = sample[key].flip(-1).contiguous()
        return sample | {"index": index}


class FixedStacks(Dataset[Sample]):
    """One input of each frame of each stack, cut to their middle; pairs as they are."""

    def __init__(self, stacks: Sequence[Stack], frames: int, view: int) -> None:
        self.stacks, self.frames, self.view = stacks, frames, view
        self.pairs = stacks[0].frames is None

    def __len__(self) -> int:
        return len(self.stacks) * (1 if self.pairs else self.frames)

    def __getitem__(self, index: int) -> Sample:
        scene, focus = (index, 0) if self.pairs else divmod(index, self.frames)
        stack = self.stacks[scene]
        spans = []
        for size in stack.sharp.shape[1:]:
            start = max(0, (size - self.view) // 2)
            spans.append(slice(start, start + self.view))
        return _sample(stack, focus, *spans) | {"index": index}


def _sample(stack: Stack, focus: int, rows: slice, columns: slice) -> Sample:
    part = (..., rows, columns)
    target = decode(stack.sharp[part])
    if stack.frames is None:
        assert stack.blurred is not None
        return {
            "image": stack.blurred[part].clone(),
            "target": target,
            "focus": -1,
            "name": stack.name,
        }
    return {
        "image": stack.frames[focus][part].clone(),
        "frames": stack.frames[part].clone(),
        "target": target,
        "focus": focus,
        "name": f"{stack.name}_{focus}",
    }


class FocalStackDataModule(ZooDataModule):
    """Data for a picture with everything in focus from one defocused picture.

    A sample is a dict:

    - ``image``: the input, display-encoded, float32 in 0..1. Shape: (3, H, W).
    - ``target``: everything in focus, linear, float32 in 0..1. Shape: (3, H, W). Not in
      ``predict``.
    - ``frames``: the focal stack, near to far, display-encoded. Shape: (N, 3, H, W). Not in
      ``predict``, and not of pairs.
    - ``focus``: which frame the input is; -1 if none. ``name``: str; ``index``: int.

    Args:
        dataset: "middlebury_lens", the Middlebury scenes of the package through a simulated thin
            lens; or a data set in ``root``: "stacks" (``stack/<id>/<k>.jpg``), "dpdd"
            (``{val,test}_c/{source,target}/*.png``), "realdof" (``{source,target}/*.png``), the
            last two for testing only.
        root: Folder of the data set.
        focus_frames: N.
        crop: Side of a training crop in pixels.
        view: Side of a validation or test picture, cut from the middle.
        samples_per_epoch: Random crops that make a training epoch; ``None``: one of each scene, or
            1024 of the embedded ones.
        base: ``batch_size``, ``eval_batch_size`` (1: pictures differ in size), ``num_workers``,
            ``seed`` and ``inputs``: see `ZooDataModule`.

    Raises:
        ZooError: For an option that is unknown or does not go with the others.
    """

    def __init__(
        self,
        dataset: str = EMBEDDED,
        root: str | None = None,
        focus_frames: int = 5,
        crop: int = 48,
        view: int = 160,
        samples_per_epoch: int | None = None,
        **base: Any,
    ) -> None:
        super().__init__(root=root, **base)
        known = (EMBEDDED, *DATASETS)
        if dataset not in known:
            raise ZooError(
                f"dataset={dataset!r} is unknown: expected one of {', '.join(known)}."
                f"{did_you_mean(dataset, known)}"
            )
        if (dataset == EMBEDDED) != (root is None):
            raise ZooError(
                f"dataset={dataset!r} "
                + ("comes with the package and takes no root." if root else "needs a root.")
            )
        if focus_frames < 2:
            raise ZooError(f"focus_frames={focus_frames} must be at least 2.")
        if crop < 16 or crop % 16:
            raise ZooError(f"crop={crop} must be a multiple of 16.")
        if min(view, samples_per_epoch or 1) < 1:
            raise ZooError("view and samples_per_epoch must be at least 1.")
        self.dataset, self.focus_frames, self.crop = dataset, focus_frames, crop
        self.view, self.samples_per_epoch = view, samples_per_epoch

    def describe(self) -> dict[str, Any]:
        """Data set and frames, beside what the base class tells."""
        return {
            **super().describe(),
            "dataset": self.dataset,
            "focus_frames": self.focus_frames,
            "view": self.view,
        }

    def build(self, split: str) -> Dataset[Any]:
        """Returns the dataset of ``split``, after a look at its first scene.

        Raises:
            ZooError: If a file is missing, or the first scene is not what it should be.
        """
        if split == "predict":
            photographs = Photographs(self.input_files(PHOTO_SUFFIXES))
            for index in range(len(photographs)):
                photographs[index]
            return photographs
        if self.root is None:
            stacks: Sequence[Stack] = embedded_stacks(split, self.focus_frames)
        else:
            stacks = open_stacks(self.dataset, self.root, split, self.focus_frames)
        dataset: Dataset[Any]
        if split == "train":
            count = EMBEDDED_CROPS if self.root is None else len(stacks)
            dataset = StackCrops(stacks, self.crop, self.samples_per_epoch or count)
        else:
            dataset = FixedStacks(stacks, self.focus_frames, self.view)
        dataset[0]
        return dataset

"""Single-shot HDR: the datasets of each split and their data module."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset

from zoo.errors import ZooError, did_you_mean
from zoo.hdr_files import PHOTO_SUFFIXES, read_photo
from zoo.reproducible import generator

from ..base import ZooDataModule
from .camera import CAMERAS, Camera, expose_scene, photograph
from .layouts import LAYOUTS, open_layout
from .scenes import EmbeddedPanoramas, Scenes, View

EMBEDDED = "panoramas_mini"
PANORAMAS = (EMBEDDED, "poly_haven")  # data sets that a camera can look around in
EMBEDDED_CROPS = 1024  # random crops an epoch from the thirteen embedded training panoramas

Sample: TypeAlias = dict[str, Any]


class TrainingCrops(Dataset[Sample]):
    """Random crops of photographs, taken anew each time, a whole batch at once.

    The camera meters a whole view, as the user's does, and the crop is cut from it: light in a crop
    that was metered by itself would clip far less deeply. Of four places the crop takes that with
    the most clipped pixels: the others have little to teach.

    All randomness comes from torch's global generator, mixed with the index (see
    `guided_depth.datamodule.TrainingCrops`).

    Args:
        scenes: What to crop from; sample i comes from scene i modulo their number.
        camera: What photographs them, unless they have photographs.
        crop: Side in pixels.
        metered: Side of what the camera meters, at least ``crop``.
        count: Samples in an epoch.
    """

    def __init__(self, scenes: Scenes, camera: Camera, crop: int, metered: int, count: int) -> None:
        self.scenes, self.camera, self.count = scenes, camera, count
        self.crop, self.metered = crop, metered

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Sample:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[Sample]:
        rng = generator(int(torch.randint(2**31, ())), *indices)
        views = [self.scenes.crop(i % len(self.scenes), self.metered, rng) for i in indices]
        samples = take(views, self.camera, rng, self.crop)
        mirrored = torch.rand(len(indices), generator=rng) < 0.5
        for sample, index, flip in zip(samples, indices, mirrored.tolist(), strict=True):
            sample["index"] = index
            if flip:
                for key in ("image", "target"):
                    sample[key] = sample[key].flip(-1).contiguous()
        return samples


class FixedViews(Dataset[Sample]):
    """The same views with the same camera every time.

    Args:
        scenes: What to look at.
        camera: What photographs them, unless they have photographs.
        side: Of a view in pixels, where scenes have views.
        seed: Of the camera's noise, with the index.
    """

    def __init__(self, scenes: Scenes, camera: Camera, side: int, seed: int) -> None:
        self.scenes, self.camera, self.side, self.seed = scenes, camera, side, seed

    def __len__(self) -> int:
        return len(self.scenes) * self.scenes.views()

    def __getitem__(self, index: int) -> Sample:
        scene, number = divmod(index, self.scenes.views())
        view = self.scenes.view(scene, number, self.side)
        (sample,) = take([view], self.camera, generator(self.seed, index))
        return sample | {"index": index}


class Photographs(Dataset[Sample]):
    """A user's own photographs, without truth."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Sample:
        image = torch.from_numpy(read_photo(self.files[index]).copy()).permute(2, 0, 1)
        return {"image": image.contiguous(), "name": self.files[index].stem, "index": index}


def take(
    views: list[View], camera: Camera, rng: torch.Generator, crop: int | None = None
) -> list[Sample]:
    """Samples of views: photographed all at once, or with the photographs that they have.

    Args:
        views: Of one size.
        camera: What photographs them.
        rng: Source of everything random.
        crop: Side of the part of each photograph that is kept; ``None`` for all of it.
    """
    if views[0].image is not None:
        return [{"image": v.image, "target": v.radiance, "name": v.name} for v in views]
    target = expose_scene(torch.stack([v.radiance for v in views]), rng)
    if crop is not None and crop < target.shape[-1]:
        target = cut_clipped(target, crop, rng)
    images, targets = photograph(target, camera, rng)
    return [
        {"image": image, "target": truth, "name": view.name}
        for view, image, truth in zip(views, images, targets, strict=True)
    ]


def cut_clipped(target: Tensor, side: int, rng: torch.Generator) -> Tensor:
    """Cuts, of four random squares of each scene, that in which the most is beyond the white.

    Args:
        target: Radiance relative to the photograph's white. Shape: (B, 3, H, W).
        side: S, in pixels.
        rng: Draws the squares.

    Returns:
        Shape: (B, 3, S, S).
    """
    clipped = (target >= 1).any(dim=1, keepdim=True).float()
    # Of the square that begins at a pixel: along columns, then rows, which is 20 times as fast.
    share = F.avg_pool2d(F.avg_pool2d(clipped, (side, 1), stride=1), (1, side), stride=1)[:, 0]
    tries = torch.stack(
        [torch.randint(size, (len(target), 4), generator=rng) for size in share.shape[1:]]
    )
    rows = torch.arange(len(target))
    best = share[rows[:, None], tries[0], tries[1]].argmax(dim=1)
    corners = tries[:, rows, best].T.tolist()
    squares = zip(target, corners, strict=True)
    return torch.stack([x[:, top : top + side, left : left + side] for x, (top, left) in squares])


class HDRDataModule(ZooDataModule):
    """Data for HDR from one photograph.

    A sample is a dict:

    - ``image``: the photograph, display-encoded, float32 in 0..1. Shape: (3, H, W).
    - ``target``: radiance relative to the photograph's white, linear Rec.709, float32. Shape:
      (3, H, W). Not in ``predict``.
    - ``name``: str; ``index``: int.

    Args:
        dataset: "panoramas_mini", 18 panoramas that come with the package, split by panorama; or a
            data set in ``root``: "hdr_real", "hdr_synth", "aim2025" (pairs), "hdr_eye", "si_hdr",
            "si_hdr_97", "fairchild" (for testing), "poly_haven" (panoramas), "hdr_images" (any
            HDR files, whose camera is simulated).
        root: Folder of the data set. A ``pairs.csv`` in it (ldr, hdr, split) replaces its layout.
        crop: Side of a training crop in pixels, a multiple of 16.
        view: Side of a validation or test view of a panorama in pixels.
        views: Such views of each panorama.
        camera: What photographs scenes without a photograph: "photo", with noise, 8 bits and in
            half of the cases JPEG; "noisy", as at night; "clean", without noise and JPEG;
            "any_curve", as "photo" with a display curve other than sRGB's in three of ten cases.
        samples_per_epoch: Random crops that make a training epoch; ``None``: one of each scene, or
            1024 of the embedded panoramas.
        repair: Put 0 and the largest finite value for NaN and infinity in HDR files.
        base: ``batch_size``, ``eval_batch_size`` (1: images may differ in size), ``num_workers``,
            ``seed`` and ``inputs``: see `ZooDataModule`.

    Raises:
        ZooError: For an option that is unknown or does not go with the others.
    """

    def __init__(
        self,
        dataset: str = EMBEDDED,
        root: str | None = None,
        crop: int = 48,
        view: int = 128,
        views: int = 4,
        camera: str = "photo",
        samples_per_epoch: int | None = None,
        repair: bool = False,
        **base: Any,
    ) -> None:
        super().__init__(root=root, **base)
        for option, name, known in (
            ("dataset", dataset, (EMBEDDED, *LAYOUTS)),
            ("camera", camera, tuple(CAMERAS)),
        ):
            if name not in known:
                raise ZooError(
                    f"{option}={name!r} is unknown: expected one of {', '.join(known)}."
                    f"{did_you_mean(name, known)}"
                )
        if (dataset == EMBEDDED) != (root is None):
            raise ZooError(
                f"dataset={dataset!r} "
                + ("comes with the package and takes no root." if root else "needs a root.")
            )
        if crop < 16 or crop % 16:
            raise ZooError(f"crop={crop} must be a multiple of 16.")
        if min(view, views, samples_per_epoch or 1) < 1:
            raise ZooError("view, views and samples_per_epoch must be at least 1.")
        self.dataset, self.crop, self.view, self.views = dataset, crop, view, views
        self.camera, self.samples_per_epoch, self.repair = camera, samples_per_epoch, repair

    def describe(self) -> dict[str, Any]:
        """Data set, views and camera, beside what the base class tells."""
        return {
            **super().describe(),
            "dataset": self.dataset,
            "camera": self.camera,
            "view": self.view,
            "views": self.views,
        }

    def build(self, split: str) -> Dataset[Any]:
        """Returns the dataset of ``split``, after a look at its first image.

        Raises:
            ZooError: If a file is missing, or the first image is not what it should be.
        """
        if split == "predict":
            photographs = Photographs(self.input_files(PHOTO_SUFFIXES))
            for index in range(len(photographs)):  # a bad one stops before the first is computed
                photographs[index]
            return photographs
        scenes: Scenes
        if self.root is None:
            scenes = EmbeddedPanoramas(split, self.views)
        else:
            scenes = open_layout(self.dataset, self.root, split, self.views, self.repair)
        camera = CAMERAS[self.camera]
        if split != "train":
            fixed = FixedViews(scenes, camera, self.view, self.seed)
            fixed[0]
            return fixed
        count = EMBEDDED_CROPS if self.root is None else len(scenes)
        trained = replace(camera, white_balance=True)
        metered = max(self.crop, self.view) if self.dataset in PANORAMAS else self.crop
        crops = TrainingCrops(scenes, trained, self.crop, metered, self.samples_per_epoch or count)
        scenes.crop(0, metered, generator(self.seed))
        return crops

"""Guided depth super-resolution: the datasets of each split and their data module."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Generator, Tensor
from torch.utils.data import Dataset

from zoo.depth_files import (
    SUFFIXES,
    channels_and_size,
    check_pair,
    check_sizes,
    check_unit,
    read_depth,
    read_image,
)
from zoo.errors import ZooError, did_you_mean

from ..base import ZooDataModule
from . import degradation
from .layouts import LAYOUTS, open_benchmark
from .pairing import pair_files
from .readers import Files, Frames, read_embedded
from .scene import CM_PER_M, Scene, Scenes

EMBEDDED = "middlebury_mini"
EMBEDDED_CROPS = 1024  # random crops an epoch from the five embedded training scenes
JITTER = 0.1  # brightness, contrast and saturation change by at most this fraction
LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601

Sample: TypeAlias = dict[str, Any]


class TrainingCrops(Dataset[Sample]):
    """Random square crops, degraded and augmented anew each time they are asked for.

    All randomness comes from torch's global generator, which `seed_everything` seeds and which
    Lightning seeds differently in each worker and rank. The index is mixed in, so that ranks whose
    generators are in the same state do not draw the same crop.

    Args:
        scenes: What to crop from; sample i comes from scene i modulo their number.
        kind: One of `degradation.DEGRADATIONS`.
        scale: Factor between the crop and its low-resolution depth.
        crop: Side of a crop in pixels of the guide.
        count: Samples in an epoch.
    """

    def __init__(self, scenes: Scenes, kind: str, scale: int, crop: int, count: int) -> None:
        self.scenes = scenes
        self.kind = kind
        self.scale = scale
        self.crop = crop
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Sample:
        rng = degradation.generator(int(torch.randint(2**31, ())), index)
        scene = self.scenes[index % len(self.scenes)]
        check_crop(scene, self.crop)
        top, left = (
            int(torch.randint(size - self.crop + 1, (), generator=rng)) for size in scene.size
        )
        window = (slice(top, top + self.crop), slice(left, left + self.crop))
        lr, _ = scene.degrade(window, self.kind, self.scale, rng)
        sample = _with_truth(scene, window, lr, index)
        # A real sensor's errors have a direction: occlusion shadows lie left or right.
        turned = turn(sample, rng, quarter_turns=scene.lr is None)
        return turned | {"guide": jitter(turned["guide"], rng)}


class WholeImages(Dataset[Sample]):
    """Whole images for validation and test, each degraded the same way every time.

    Args:
        scenes: The images.
        kind: One of `degradation.DEGRADATIONS`.
        scale: Factor between the image and its low-resolution depth.
        repeats: Degradations of each image, drawn by (seed, index).
        seed: See ``repeats``.
    """

    def __init__(self, scenes: Scenes, kind: str, scale: int, repeats: int, seed: int) -> None:
        self.scenes = scenes
        self.kind = kind
        self.scale = scale
        self.repeats = repeats if kind in degradation.RANDOM else 1
        self.seed = seed

    def __len__(self) -> int:
        return len(self.scenes) * self.repeats

    def __getitem__(self, index: int) -> Sample:
        scene = self.scenes[index // self.repeats]
        window = (slice(0, scene.size[0]), slice(0, scene.size[1]))
        rng = degradation.generator(self.seed, index)
        lr, blur = scene.degrade(window, self.kind, self.scale, rng)
        sample = _with_truth(scene, window, lr, index)
        return sample if blur is None else sample | {"blur": degradation.local_sigma(blur)[None]}


class UserPairs(Dataset[Sample]):
    """A user's own low-resolution depth maps with their guides, without truth.

    Args:
        files: The pairs.
        scale: Factor between a depth map and its guide.
        unit: Of integer depth files: "mm" or "m".
    """

    def __init__(self, files: Sequence[Files], scale: int, unit: str) -> None:
        self.files = files
        self.scale = scale
        self.unit = unit
        for entry in files:  # sizes from the headers: cheap, and all are known before the first run
            depth, guide = channels_and_size(entry.depth)[1], channels_and_size(entry.guide)[1]
            check_sizes(depth, guide, scale, str(entry.depth))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Sample:
        entry = self.files[index]
        depth, guide = read_depth(entry.depth, self.unit), read_image(entry.guide)
        check_pair(depth, guide, self.scale, str(entry.depth))
        return {
            "lr_depth": torch.from_numpy(depth)[None],
            "guide": torch.from_numpy(guide.transpose(2, 0, 1).copy()),
            "name": entry.name,
            "index": index,
            "report_scale": torch.tensor(CM_PER_M),
        }


class GuidedDepthDataModule(ZooDataModule):
    """Data for RGB-guided depth super-resolution.

    A sample is a dict:

    - ``lr_depth``: float32, 0 where unknown. Shape: (1, h, w).
    - ``guide``: RGB, float32 in 0..1. Shape: (3, H, W) with H = scale h and W = scale w.
    - ``depth``: truth, float32, unknown pixels filled. Shape: (1, H, W). Not in ``predict``.
    - ``mask``: where the truth is known, bool. Shape: (1, H, W). Not in ``predict``.
    - ``blur``: standard deviation of the local blur in pixels, float32. Shape: (1, H, W). Only in
      validation and test of "spatially_varying".
    - ``name``: str; ``index``: int.
    - ``report_scale``: float32 scalar, how much one unit of depth is in the unit of the reported
      errors: 100 for metres (cm), 1 for grey levels.

    Depth is in metres, but for "middlebury" and "lu" in ``RGB`` and ``Depth`` folders: those are
    grey levels.

    Args:
        dataset: "middlebury_mini", six Middlebury scenes that come with the package and Motorcycle
            of scikit-image for the test; or a benchmark in ``root``: "nyu", "middlebury", "lu",
            "rgbdd", "tofdsr". "middlebury" and "lu" are for testing only.
        root: Folder of the benchmark as it is published; a wrong one prints the expected tree.
        scale: Factor between the sides of the guide and of the low-resolution depth. 1 is for
            sensors whose map is enlarged to the guide's size ("rgbdd", "tofdsr").
        degradation: How the low-resolution depth comes about. "spatially_varying": blur and noise
            that change over the image. "bicubic": what the NYU, Middlebury and Lu tables use.
            "real": the sensor's own map. "noisy": DORNet's blur and noise on top of "real" at scale
            1, of "bicubic" at other scales.
        crop: Side of a training crop in pixels of the guide, a multiple of ``scale``.
        samples_per_epoch: Random crops that make a training epoch; ``None``: one of each image, or
            1024 of the embedded scenes.
        eval_repeats: Seeded degradations of each validation and test image, where they are random.
        depth_unit: Unit of integer depth files in ``inputs``: "mm" or "m". Floats are metres.
        base: ``batch_size``, ``eval_batch_size`` (1: images differ in size), ``num_workers``,
            ``seed`` and ``inputs``: see `ZooDataModule`.

    Raises:
        ZooError: For an option that is unknown or does not go with the others.
    """

    def __init__(
        self,
        dataset: str = EMBEDDED,
        root: str | None = None,
        scale: int = 8,
        degradation: str = "spatially_varying",
        crop: int = 64,
        samples_per_epoch: int | None = None,
        eval_repeats: int = 3,
        depth_unit: str = "mm",
        **base: Any,
    ) -> None:
        super().__init__(root=root, **base)
        _check_options(dataset, root, scale, degradation)
        check_unit(depth_unit)
        if crop < scale or crop % scale:
            raise ZooError(f"crop={crop} must be a multiple of scale={scale}.")
        for name, value in (
            ("samples_per_epoch", samples_per_epoch),
            ("eval_repeats", eval_repeats),
        ):
            if value is not None and value < 1:
                raise ZooError(f"{name}={value} must be at least 1.")
        self.dataset = dataset
        self.scale = scale
        self.degradation = degradation
        self.crop = crop
        self.samples_per_epoch = samples_per_epoch
        self.eval_repeats = eval_repeats
        self.depth_unit = depth_unit

    def describe(self) -> dict[str, Any]:
        """Data set, scale and degradation, beside what the base class tells."""
        return {
            **super().describe(),
            "dataset": self.dataset,
            "scale": self.scale,
            "degradation": self.degradation,
        }

    def build(self, split: str) -> Dataset[Any]:
        """Returns the dataset of ``split``, after a look at the values of its first image.

        Raises:
            ZooError: If a file is missing, or the first image is not what it should be. The other
                images of a benchmark are checked when they are read.
        """
        if split == "predict":
            pairs = UserPairs(pair_files(self.input_files(SUFFIXES)), self.scale, self.depth_unit)
            pairs[0]
            return pairs
        frames = self._frames(split)
        scenes = Scenes(frames, self.scale)
        if len(scenes) == 0:
            raise ZooError(f"The {split} split of {self.dataset!r} in {self.root} has no image.")
        first = scenes[0]
        if split != "train":
            return WholeImages(scenes, self.degradation, self.scale, self.eval_repeats, self.seed)
        check_crop(first, self.crop)
        count = EMBEDDED_CROPS if self.dataset == EMBEDDED else len(scenes)
        count = self.samples_per_epoch or count
        return TrainingCrops(scenes, self.degradation, self.scale, self.crop, count)

    def _frames(self, split: str) -> Frames:
        if self.dataset == EMBEDDED:
            return read_embedded(split)
        with_lr = self.scale == 1  # only a sensor's own map has the guide's size
        return open_benchmark(self.dataset, self.root, split, with_lr)


def turn(sample: Sample, rng: Generator, quarter_turns: bool) -> Sample:
    """Mirrors left and right by chance, and turns by a random number of quarters, all maps alike.

    Args:
        sample: Square maps among other things.
        rng: Source of both draws.
        quarter_turns: Whether to turn at all.
    """
    mirrored = bool(torch.randint(2, (), generator=rng))
    quarters = int(torch.randint(4, (), generator=rng)) if quarter_turns else 0

    def apply(image: Tensor) -> Tensor:
        return torch.rot90(image.flip(-1) if mirrored else image, quarters, (-2, -1)).contiguous()

    return sample | {key: apply(sample[key]) for key in ("lr_depth", "guide", "depth", "mask")}


def jitter(guide: Tensor, rng: Generator) -> Tensor:
    """Changes brightness, contrast and saturation, in this order, by at most `JITTER` each.

    Args:
        guide: RGB in 0..1. Shape: (3, H, W).
        rng: Source of the three factors.
    """
    factors = 1 + JITTER * (2 * torch.rand(3, generator=rng) - 1)
    brightness, contrast, saturation = factors.tolist()
    grey = torch.tensordot(guide.new_tensor(LUMA), guide, dims=1)  # (H, W)
    # With m the mean grey: x -> brightness x, then m + contrast (x - m), then from grey to colour.
    # All three are linear, so they are one scaling of the colour, one of the grey and an offset.
    gain = brightness * contrast
    offset = brightness * (1 - contrast) * grey.mean() + gain * (1 - saturation) * grey
    return torch.add(offset, guide, alpha=gain * saturation).clamp_(0, 1)


def check_crop(scene: Scene, crop: int) -> None:
    """Raises a ZooError if a square of ``crop`` pixels does not fit into ``scene``."""
    if crop > min(scene.size):
        height, width = scene.size
        raise ZooError(f"crop={crop} does not fit into {scene.name}, which is {height}x{width}.")


def _with_truth(scene: Scene, window: degradation.Window, lr: Tensor, index: int) -> Sample:
    return {
        "lr_depth": lr[None],
        "guide": scene.guide[:, window[0], window[1]],
        "depth": scene.depth[window][None],
        "mask": scene.mask[window][None],
        "name": scene.name,
        "index": index,
        "report_scale": torch.tensor(scene.report_scale),
    }


def _check_options(dataset: str, root: str | None, scale: int, kind: str) -> None:
    datasets = (EMBEDDED, *LAYOUTS)
    for option, name, known in (
        ("dataset", dataset, datasets),
        ("degradation", kind, degradation.DEGRADATIONS),
    ):
        if name not in known:
            raise ZooError(
                f"{option}={name!r} is unknown: expected one of {', '.join(known)}."
                f"{did_you_mean(name, known)}"
            )
    if dataset == EMBEDDED and root is not None:
        raise ZooError(
            f"dataset={dataset!r} comes with the package and takes no root: for {root} say which "
            f"benchmark it is ({', '.join(LAYOUTS)})."
        )
    if scale < 1:
        raise ZooError(f"scale={scale} must be at least 1.")
    sensor = dataset in LAYOUTS and LAYOUTS[dataset].sensor
    if kind == "real" and not sensor:
        raise ZooError(f"degradation='real' needs a sensor's own map, which {dataset!r} lacks.")
    if kind == "real" and scale != 1:
        raise ZooError(
            f"degradation='real' has a map of the guide's size: scale={scale} must be 1."
        )
    if scale == 1 and not (kind == "real" or (kind == "noisy" and sensor)):
        raise ZooError(f"degradation={kind!r} of {dataset!r} has nothing to restore at scale=1.")

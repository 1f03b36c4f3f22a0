"""What every data module shares: the same constructor words, one loader, checks at the door."""

from abc import abstractmethod
from collections.abc import Iterator, Sized
from glob import glob
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from lightning import LightningDataModule
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from zoo.errors import ZooError
from zoo.reproducible import global_seed

SPLITS = {"fit": ("train", "val"), "validate": ("val",), "test": ("test",), "predict": ("predict",)}


class ShardSampler(DistributedSampler[Any]):
    """Deals the samples to the ranks without repeating any, so that metrics are exact.

    PyTorch's own sampler pads the last round with repeated samples, which then count twice. Fewer
    samples than ranks are not dealt: each rank takes all of them, which leaves means as they are,
    since Lightning skips the evaluation of a rank that has none while the others wait for it.
    """

    def __iter__(self) -> Iterator[int]:
        return iter(self._share())

    def __len__(self) -> int:
        return len(self._share())

    def _share(self) -> range:
        samples = len(cast(Sized, self.dataset))
        if samples < self.num_replicas:
            return range(samples)
        return range(self.rank, samples, self.num_replicas)


class EpochLoader(DataLoader[Any]):
    """Seeds its workers by seed and epoch, so that a resumed run draws what an unbroken one does.

    Its sampler is a :class:`~torch.utils.data.DistributedSampler`, on one device too, whose order
    depends on seed and epoch alone.
    """

    def __iter__(self) -> Any:
        sampler = cast("DistributedSampler[Any]", self.sampler)
        cast("torch.Generator", self.generator).manual_seed(sampler.seed + sampler.epoch)
        return super().__iter__()


class ZooDataModule(LightningDataModule):
    """Base of the zoo's data modules.

    A subclass implements :meth:`build`, which returns the dataset of one split. It reads the
    benchmark's own layout below ``root``, or the data that come with the package if ``root`` is
    ``None``. Whatever it finds wrong there it raises as a :class:`~zoo.errors.ZooError` that names
    the file, what was expected and what was found: that happens in ``setup``, before any training.

    Args:
        root: Folder of the benchmark as it is published; ``None`` for the embedded default.
        batch_size: Samples a step and device in training.
        eval_batch_size: The same for validation, test and prediction.
        num_workers: Worker processes of each loader.
        seed: Seed of everything random in the data themselves (degradations, splits, generators).
            What training draws anew each epoch follows ``seed_everything`` instead.
        inputs: Files, folders or glob patterns for ``predict``.
    """

    def __init__(
        self,
        root: str | None = None,
        batch_size: int = 8,
        eval_batch_size: int = 1,
        num_workers: int = 0,
        seed: int = 0,
        inputs: list[str] | str | None = None,
    ) -> None:
        super().__init__()
        self.root = Path(root).expanduser() if root is not None else None
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size
        self.num_workers = num_workers
        self.seed = seed
        self.inputs = [inputs] if isinstance(inputs, str) else list(inputs or [])
        self.datasets: dict[str, Dataset[Any]] = {}

    @abstractmethod
    def build(self, split: str) -> Dataset[Any]:
        """Returns the dataset of ``split``: "train", "val", "test" or "predict"."""

    def train_sampler(
        self, dataset: Dataset[Any], world: int, rank: int, seed: int
    ) -> DistributedSampler[Any]:
        """The order of training: shuffled by seed and epoch, a share of it for each rank."""
        return DistributedSampler(dataset, world, rank, seed=seed)

    def describe(self) -> dict[str, Any]:
        """What was measured on, for ``metrics.json`` and the card: names and settings, no paths."""
        return {"class": type(self).__name__, "embedded": self.root is None, "seed": self.seed}

    def setup(self, stage: str) -> None:
        """Builds the datasets of ``stage``; may be called twice."""
        for split in SPLITS[stage]:
            if split not in self.datasets:
                dataset = self.build(split)
                if isinstance(dataset, Sized) and len(dataset) == 0:
                    where = self.root or "the embedded data"
                    raise ZooError(f"The {split} split of {where} is empty: nothing to read there.")
                self.datasets[split] = dataset

    def train_dataloader(self) -> DataLoader[Any]:
        """Shuffled, and without the last incomplete batch."""
        return self._loader("train")

    def val_dataloader(self) -> DataLoader[Any]:
        """In order, each sample once, on however many devices."""
        return self._loader("val")

    def test_dataloader(self) -> DataLoader[Any]:
        """In order, each sample once, on however many devices."""
        return self._loader("test")

    def predict_dataloader(self) -> DataLoader[Any]:
        """The files of ``inputs``, in order."""
        return self._loader("predict")

    def input_files(self, suffixes: tuple[str, ...], whole: tuple[str, ...] = ()) -> list[Path]:
        """The files that ``inputs`` name, sorted, each once.

        Args:
            suffixes: Of the files that count, in lower case.
            whole: A folder that holds a file of any of these names counts as one input itself.

        Raises:
            ZooError: If nothing was asked for, or a pattern matches no file with such a suffix.
        """
        if not self.inputs:
            raise ZooError("Nothing to predict: name files with --data.inputs 'folder/*.png'.")
        found: dict[Path, None] = {}
        for pattern in self.inputs:
            path = Path(pattern).expanduser()
            if any((path / name).is_file() for name in whole):
                found[path] = None
                continue
            names = path.iterdir() if path.is_dir() else glob(str(path), recursive=True)
            matches = sorted(p for p in map(Path, names) if p.suffix.lower() in suffixes)
            if not matches:
                kinds = ", ".join(suffixes)
                raise ZooError(f"--data.inputs {pattern!r} matches no file ({kinds}).")
            found.update(dict.fromkeys(matches))
        return list(found)

    def _loader(self, split: str, batch_size: int | None = None) -> DataLoader[Any]:
        dataset = self.datasets[split]
        distributed = dist.is_available() and dist.is_initialized()
        world = dist.get_world_size() if distributed else 1
        rank = dist.get_rank() if distributed else 0
        if split != "train":
            return DataLoader(
                dataset,
                batch_size=batch_size or self.eval_batch_size,
                sampler=ShardSampler(dataset, world, rank),
                num_workers=self.num_workers,
            )
        sampler = self.train_sampler(dataset, world, rank, global_seed() or 0)
        if self.trainer is not None:
            # A resumed run fetches its first samples before Lightning tells the sampler the epoch.
            sampler.set_epoch(self.trainer.current_epoch)
        return EpochLoader(
            dataset,
            batch_size=self.batch_size,
            sampler=sampler,
            drop_last=len(sampler) >= self.batch_size,
            num_workers=self.num_workers,
            generator=torch.Generator(),
        )

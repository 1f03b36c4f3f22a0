"""Protocols of multimodal face anti-spoofing, over rendered faces or the MMDG benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import Dataset, DistributedSampler

from zoo.errors import ZooError, did_you_mean
from zoo.face_files import MODALITIES, SUFFIXES

from ..base import ZooDataModule
from .corruptions import corrupt
from .inputs import UserCaptures
from .mmdg import check_leak, read_index
from .sources import DOMAIN_NAMES, IndexedFaces, RenderedFaces, Sample, Source

P_KEYS = {"rgb": "rgb", "depth": "depth", "ir": "ir"}
LIMITED = {"PS": "CW", "SP": "CW", "CW": "PS", "WC": "PS"}  # source domains by target domains
#: Which sensors a test leaves, in the order of `MODALITIES`, by protocol.
CONDITIONS = {
    "complete": [[True, True, True]],
    "missing": [
        [True, True, True],
        [True, False, True],
        [True, True, False],
        [True, False, False],
    ],
    "limited_source": [[True, True, True]],
}


class TrainingFaces(Dataset[Sample]):
    """Captures mirrored by chance, all sensors alike; torch's global generator decides."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Sample:
        sample = self.source[index]
        if bool(torch.rand(()) < 0.5):
            sample |= {m: sample[m].flip(-1) for m in MODALITIES}
        return sample


class ShuffledFaces(Dataset[Sample]):
    """Mixed once, so that a limited number of batches holds all domains and both classes."""

    def __init__(self, source: Source, seed: int) -> None:
        self.source = source
        rng = torch.Generator().manual_seed(seed)
        self.order = torch.randperm(len(source), generator=rng).tolist()

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: int) -> Sample:
        return self.source[self.order[index]]


class HeldOutFaces(Dataset[Sample]):
    """Captures with the conditions to test them under, and with corrupted copies.

    Args:
        source: The captures.
        conditions: Sensors that are left, one row a condition. Shape: (M, 3).
        corruptions: Whether to add ``corrupted``.
    """

    def __init__(self, source: Source, conditions: list[list[bool]], corruptions: bool) -> None:
        self.source = source
        self.conditions = torch.tensor(conditions)
        self.corruptions = corruptions

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Sample:
        sample = self.source[index] | {"conditions": self.conditions}
        if self.corruptions:
            other = self.source[(index + 1) % len(self.source)]
            sample["corrupted"] = corrupt(sample, other)
        return sample


class BalancedSampler(DistributedSampler[Any]):
    """Draws with replacement so that each domain and, within it, each class comes equally often.

    The order depends on seed and epoch alone, and each rank takes every ``num_replicas``-th draw.

    Args:
        dataset: What to draw from.
        groups: A number for each combination of domain and class. Shape: (N,).
        num_replicas: Ranks.
        rank: This one.
        seed: Of the draws.
    """

    def __init__(
        self, dataset: Dataset[Any], groups: torch.Tensor, num_replicas: int, rank: int, seed: int
    ) -> None:
        super().__init__(dataset, num_replicas, rank, seed=seed)
        _, inverse, counts = torch.unique(groups, return_inverse=True, return_counts=True)
        self.weights = 1.0 / counts[inverse].double()

    def __iter__(self) -> Iterator[int]:
        rng = torch.Generator().manual_seed(self.seed + self.epoch)
        drawn = torch.multinomial(self.weights, self.total_size, replacement=True, generator=rng)
        return iter(drawn[self.rank :: self.num_replicas].tolist())


class MultimodalFASDataModule(ZooDataModule):
    """Colour, depth and infrared captures of faces: live, or an attack on a face recogniser.

    A sample is a dict:

    - ``rgb`` (3, H, W), ``depth`` and ``ir`` (1, H, W): float32 in 0..1.
    - ``mask``: which sensors are there, bool. Shape: (3,).
    - ``label``: 1 live, 0 attack. ``kind``: index into :data:`zoo.face_files.KINDS`. ``domain``:
      position in "CPSW". ``name``: str. In ``predict`` only the last.
    - ``conditions``: sensors to test with, one row a condition, bool. Shape: (M, 3). Only in test.
    - ``corrupted``: by modality, the faults of :data:`zoo.face_files.CORRUPTIONS`. Shape of each:
      (5, C, H, W). Only in test.

    Args:
        root: Folder of the MMDG benchmark; ``None`` for procedural faces of four domains that
            stand for its data sets.
        protocol: "complete": train on three domains, test on the fourth. "missing": the same, and
            tested also without depth, without infrared, and without both. "limited_source": train
            on two domains, test on the other two (CW to PS, PS to CW).
        target: Letters of the domains to test on: one, or "PS" or "CW" for limited sources.
        sources: Letters to train and validate on; ``None`` for the protocol's.
        size: Side in pixels.
        live_label: Label of live faces in the lists of ``root``.
        p_keys: Names of the arrays in the ``.npz`` files of domain P, by modality.
        per_domain: Rendered captures of each source domain for training, of each source domain for
            validation, and of each target domain.
        corruptions: Test also on corrupted copies.
        balanced: Draw each domain and class equally often in training.
        batch_size: Samples a step and device in training.
        eval_batch_size: The same for validation, test and prediction.
        base: ``num_workers``, ``seed`` and ``inputs``: see `ZooDataModule`.

    Raises:
        ZooError: For an option that is unknown or does not go with the others.

    Source of the protocols and lists: MMDG, arXiv 2402.19298.
    """

    def __init__(
        self,
        root: str | None = None,
        protocol: str = "missing",
        target: str = "W",
        sources: str | None = None,
        size: int = 48,
        live_label: int = 1,
        p_keys: dict[str, str] | None = None,
        per_domain: list[int] | None = None,
        corruptions: bool = True,
        balanced: bool = False,
        batch_size: int = 64,
        eval_batch_size: int = 64,
        **base: Any,
    ) -> None:
        super().__init__(root=root, batch_size=batch_size, eval_batch_size=eval_batch_size, **base)
        if protocol not in CONDITIONS:
            raise ZooError(
                f"protocol={protocol!r} is unknown: expected one of {', '.join(CONDITIONS)}."
                f"{did_you_mean(protocol, CONDITIONS)}"
            )
        self.protocol = protocol
        self.target = _letters("target", target)
        self.sources = _sources(protocol, self.target, sources)
        if size < 16:
            raise ZooError(f"size={size} must be at least 16 pixels.")
        if live_label not in (0, 1):
            raise ZooError(f"live_label={live_label} must be 0 or 1.")
        self.size = size
        self.live_label = live_label
        self.p_keys = _check_keys(p_keys)
        counts = per_domain or [280, 120, 400]
        if len(counts) != 3 or min(counts) < 2:
            raise ZooError(
                f"per_domain={counts}: expected three numbers of at least 2 (train, val, test)."
            )
        self.per_domain = dict(zip(("train", "val", "test"), counts, strict=True))
        self.corruptions = corruptions
        self.balanced = balanced

    def describe(self) -> dict[str, Any]:
        """Protocol and domains, beside what the base class tells."""
        return {
            **super().describe(),
            "protocol": self.protocol,
            "sources": self.sources,
            "target": self.target,
        }

    def build(self, split: str) -> Dataset[Any]:
        """Returns the dataset of ``split``.

        Raises:
            ZooError: If a list or a file is missing or wrong, or validation has but one class.
        """
        if split == "predict":
            return UserCaptures(self.input_files(SUFFIXES), self.size)
        source = self._source(split)
        source[0]  # the first capture is read at the door
        if split == "train":
            return TrainingFaces(source)
        if split == "val":
            if bool((source.labels == source.labels[0]).all()):
                only = "live faces" if bool(source.labels[0]) else "attacks"
                raise ZooError(
                    f"The validation split of {self.sources} holds {only} only: "
                    "an equal error rate needs both classes."
                )
            return ShuffledFaces(source, self.seed)
        return HeldOutFaces(source, CONDITIONS[self.protocol], self.corruptions)

    def train_sampler(
        self, dataset: Dataset[Any], world: int, rank: int, seed: int
    ) -> DistributedSampler[Any]:
        """Balanced over domains and classes if asked for."""
        if not self.balanced or not isinstance(dataset, TrainingFaces):
            return super().train_sampler(dataset, world, rank, seed)
        groups = 2 * dataset.source.domains + dataset.source.labels
        return BalancedSampler(dataset, groups, world, rank, seed)

    def _source(self, split: str) -> Source:
        domains = self.target if split == "test" else self.sources
        if self.root is None:
            return RenderedFaces(domains, split, self.per_domain[split], self.size, self.seed)
        root, live = self.root, self.live_label
        entries = [entry for d in domains for entry in read_index(root, d, split, live)]
        if split == "val":
            training = [e for d in domains for e in read_index(root, d, "train", live)]
            check_leak(training, entries, split)
        return IndexedFaces(entries, self.size, self.p_keys)


def _letters(name: str, value: str) -> str:
    unknown = [letter for letter in value if letter not in DOMAIN_NAMES]
    if unknown or not value or len(set(value)) < len(value):
        raise ZooError(
            f"{name}={value!r}: expected different letters of {DOMAIN_NAMES} "
            "(CeFA, PADISI, SURF, WMCA)."
        )
    return value


def _sources(protocol: str, target: str, given: str | None) -> str:
    limited = protocol == "limited_source"
    if limited and target not in LIMITED:
        raise ZooError(f"protocol='limited_source' tests on 'PS' or 'CW', not on {target!r}.")
    if given is None:
        given = LIMITED[target] if limited else "".join(d for d in DOMAIN_NAMES if d not in target)
    sources = _letters("sources", given)
    shared = [letter for letter in sources if letter in target]
    if shared:
        raise ZooError(
            f"sources={sources!r} contains the target domain {shared[0]}: "
            "what is tested on must not be trained on."
        )
    return sources


def _check_keys(keys: Mapping[str, str] | None) -> dict[str, str]:
    keys = P_KEYS if keys is None else keys
    if set(keys) != set(MODALITIES):
        raise ZooError(
            f"p_keys names {', '.join(keys) or 'nothing'}: expected {', '.join(MODALITIES)}."
        )
    return dict(keys)

"""ECG records cut into segments of several beats."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, DistributedSampler

from zoo.ecg.beats import CLASSES, patient_of
from zoo.ecg.inputs import MIN_PEAKS, network_inputs
from zoo.ecg.peaks import RPeakTool
from zoo.ecg.records import SUFFIXES, Record, read_record, select
from zoo.ecg.strip import EDGE_S, FS, MAX_BEATS, Cut, cuts, take, usable_cuts
from zoo.ecg.vitaldb import read_vitaldb
from zoo.errors import ZooError, check_choice

from ..base import ZooDataModule
from .databases import DATABASES, database_patients, database_split
from .sources import (
    UNKNOWN,
    Recording,
    check_given,
    folder,
    mitdb_splits,
    sample,
    synthetic,
)

EMBEDDED = ("synthetic", "mitdb_sample")
SOURCES = (*EMBEDDED, "mitdb", *DATABASES, "wfdb")

Sample = dict[str, Any]


class Segments(Dataset[Sample]):
    """Segments of recordings.

    Args:
        recordings: To cut.
        size: Of a segment, samples.
        image_size: Height and width of the picture.
        training: One segment for each segment's length, begun anew at random with torch's global
            generator, all of whose beats have labels; else segments that overlap, each of whose
            beats is classified by one of them.

    Attributes:
        skipped: Segments left out since they are flat or hold NaN.
    """

    def __init__(
        self,
        recordings: Sequence[Recording],
        size: int,
        image_size: Sequence[int],
        training: bool,
    ) -> None:
        self.recordings, self.size, self.training = recordings, size, training
        self.height, self.width = image_size
        self.items: list[tuple[int, Cut]] = []
        self.skipped = 0
        for number, recording in enumerate(recordings):
            strip = recording.strip
            edge = 0 if training else int(EDGE_S * strip.fs)
            found = cuts(strip.signal.shape[1], size, edge)
            kept = list(usable_cuts(strip, found, size))
            self.skipped += len(found) - len(kept)
            self.items += [(number, cut) for cut in kept]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Sample:
        number, cut = self.items[index]
        recording = self.recordings[number]
        strip = recording.strip
        if self.training:
            cut = self._moved(recording, cut)
        segment = take(strip, recording.peaks, recording.rr, cut, self.size)
        mask, scored = segment.mask, segment.mask if self.training else segment.scored
        if mask.sum() < MIN_PEAKS:
            mask, scored = np.zeros_like(mask), np.zeros_like(scored)
        labels = np.where(scored, recording.labels[segment.index.clip(0)], UNKNOWN)
        inside = (recording.missed >= cut.low) & (recording.missed < cut.high)
        missed = np.bincount(recording.missed_labels[inside], minlength=len(CLASSES))
        if not mask.any():  # all that the reference has here is missed
            own = (recording.peaks >= cut.low) & (recording.peaks < cut.high)
            beats = recording.labels[own]
            missed += np.bincount(beats[beats < len(CLASSES)], minlength=len(CLASSES))
        original = np.zeros(MAX_BEATS, np.int64)
        there = segment.index >= 0
        original[there] = strip.to_original(recording.peaks[segment.index[there]])
        return {
            **network_inputs(strip, segment, mask, (self.height, self.width)),
            "label": torch.from_numpy(labels),
            "missed": torch.from_numpy(missed),
            "held_out": torch.tensor(recording.held_out),
            "sample": torch.from_numpy(original),
            "record": recording.strip.name,
        }

    def _moved(self, recording: Recording, cut: Cut) -> Cut:
        """The segment begun elsewhere, up to one length later; where it was, if that is no ECG."""
        room = min(self.size, recording.strip.signal.shape[1] - self.size - cut.start)
        start = cut.start + int(torch.rand(()) * (room + 1))
        moved = Cut(start, start, start + self.size)
        return next(usable_cuts(recording.strip, [moved], self.size), cut)


class StratifiedSampler(DistributedSampler[Any]):
    """Shuffles so that each batch holds its share of the patients who train the confidence head.

    The order depends on seed and epoch alone; each rank takes every ``num_replicas``-th sample.

    Args:
        dataset: Training segments.
        batch_size: Of one rank.
        num_replicas: Ranks.
        rank: This one.
        seed: Of the order.
    """

    def __init__(
        self, dataset: Segments, batch_size: int, num_replicas: int, rank: int, seed: int
    ) -> None:
        super().__init__(dataset, num_replicas, rank, seed=seed)
        held = torch.tensor([dataset.recordings[n].held_out for n, _ in dataset.items])
        self.groups = (held.logical_not().nonzero()[:, 0], held.nonzero()[:, 0])
        share = len(self.groups[1]) / len(held)
        self.held = min(max(round(share * batch_size), 1), batch_size - 1)
        self.of = batch_size

    def __iter__(self) -> Iterator[int]:
        rng = torch.Generator().manual_seed(self.seed + self.epoch)
        batches = -(-self.total_size // self.of)
        counts = (batches * (self.of - self.held), batches * self.held)
        drawn = []
        for group, count in zip(self.groups, counts, strict=True):
            rounds = -(-count // len(group))
            order = torch.cat([group[torch.randperm(len(group), generator=rng)]] * rounds)
            drawn.append(order[:count].view(batches, -1))
        # Batches of all ranks, one after the other: rank r takes each num_replicas-th of them.
        mixed = torch.cat(drawn, dim=1)[self.rank :: self.num_replicas]
        return iter(mixed.flatten().tolist()[: self.num_samples])


class RecordFiles(Dataset[Sample]):
    """Records to annotate, by path; they were read once at the door."""

    def __init__(self, paths: Sequence[str], fs: float | None) -> None:
        self.paths, self.fs = paths, fs

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Sample:
        path = self.paths[index]
        name = path.rpartition("/")[2].split(".")[0]
        return {"name": name, "path": path, "fs": self.fs or 0.0}


class EcgSegmentsDataModule(ZooDataModule):
    """ECG records cut into segments of several beats, with a class for each beat.

    A sample is a dict, with n = 32 places for beats and T samples:

    - ``signal``: float32, median 0, 98th percentile of the magnitude 1. Shape: (C, T).
    - ``image``: the segment on ECG paper, float32 in 0..1. Shape: (3, H, W).
    - ``peaks``: R peaks in the segment, int64. ``mask``: which are there, bool. Shape: (n,).
    - ``strip``: millivolts with a second on both sides, NaN beyond the record.
      Shape: (C, T + 2 fs).
    - ``rr``: intervals before and after each beat in the record, seconds, see
      :func:`zoo.ecg.strip.rr_context`. Shape: (n, 12).
    - ``label``: index into N, S, V, F, Q; 5 for a detection that is no beat; -1 for padding and, in
      validation and test, for beats that another segment classifies. Shape: (n,).
    - ``missed``: beats of each class that Tool 1 did not find. Shape: (5,).
    - ``held_out``: whether this patient only trains the confidence head. Shape: ().
    - ``sample``: positions in the record at its own rate. Shape: (n,). ``record``: its name.

    In ``predict`` a sample is the path of a record.

    Args:
        root: Folder with RECORD.hea, .dat and .atr, or with the CSV files of "vitaldb" (see
            :mod:`zoo.ecg.vitaldb`), for the sources that are not part of the package.
        source: "synthetic": generated patients. "mitdb_sample": real excerpts that come with the
            package. "mitdb": MIT-BIH, split by patients after de Chazal. "svdb" (each record counts
            as a patient), "incartdb" (patients by the comments of the headers) and "vitaldb" (by
            clinical_data.csv if it is there, else each case): of the patients 60 % train, 20 %
            validate and 20 % test, drawn by a hash of their names, see
            :func:`drawn_split`. "wfdb": any folder, with ``splits``.
        splits: Names of records for "train", "val" and "test".
        rpeaks: Tool 1: "annotation" for the reference positions (the field's protocol), or "xqrs"
            or "neurokit", which detect.
        lead: Names of the records' leads; ``None`` for MLII where there is one, else the first;
            of "incartdb" II, and V1 as the second.
        seconds: Of a segment.
        image_size: Height and width in pixels.
        patients: Generated patients of training, validation and test.
        segments: Of each generated patient.
        leads: How many, 1 or 2.
        same_person: Keep record 201 in training although 202, the same person, is tested on, as
            published.
        cache_dir: Folder for detected peaks; ``None`` for memory only.
        fs: Of CSV files in ``inputs``, samples a second.
        batch_size: Samples a step and device in training, at least 2.
        eval_batch_size: The same for validation and test.
        base: ``num_workers``, ``seed`` and ``inputs``: see `ZooDataModule`.

    Raises:
        ZooError: For an option that is unknown or does not go with the others.
    """

    def __init__(
        self,
        root: str | None = None,
        source: str = "synthetic",
        splits: dict[str, list[str]] | None = None,
        rpeaks: str = "annotation",
        lead: str | list[str] | None = None,
        seconds: float = 10.0,
        image_size: list[int] | None = None,
        patients: list[int] | None = None,
        segments: int = 8,
        leads: int = 1,
        same_person: bool = False,
        cache_dir: str | None = None,
        fs: float | None = None,
        batch_size: int = 32,
        eval_batch_size: int = 32,
        **base: Any,
    ) -> None:
        super().__init__(root=root, batch_size=batch_size, eval_batch_size=eval_batch_size, **base)
        check_choice("source", source, SOURCES)
        if (source in EMBEDDED) != (root is None):
            raise ZooError(
                f"source={source!r} and root={root!r} do not go together: {' and '.join(EMBEDDED)} "
                "come with the package, the others read a folder."
            )
        if (source == "wfdb") != (splits is not None):
            raise ZooError("splits goes with source='wfdb', and that needs it.")
        self.source, self.lead, self.seconds, self.leads = source, lead, seconds, leads
        self.tool = RPeakTool(rpeaks, cache_dir)
        self.same_person, self.fs = same_person, fs
        self.image_size = list(image_size or [224, 224])
        counts = patients or [40, 8, 16]
        if len(counts) != 3 or min(counts) < 1 or counts[0] < 5 or segments < 1:
            raise ZooError(
                f"patients={counts}, segments={segments}: expected three numbers (train at least "
                "5, val, test) and at least 1 segment."
            )
        self.patients = dict(zip(("train", "val", "test"), counts, strict=True))
        self.segments = segments
        if batch_size < 2:
            raise ZooError("batch_size must be at least 2: each batch has a held-out patient.")
        if seconds < 5 or leads not in (1, 2) or len(self.image_size) != 2:
            raise ZooError(
                f"seconds={seconds:g} must be at least 5, leads={leads} 1 or 2, and "
                f"image_size={self.image_size} height and width."
            )
        self.splits: Mapping[str, Sequence[str]] = {}
        if splits is not None:
            self.splits = check_given(splits)
        elif source == "mitdb":
            self.splits = mitdb_splits(same_person)

    def describe(self) -> dict[str, Any]:
        """Source and Tool 1, beside what the base class tells: they belong to any result."""
        name = {"mitdb": "MIT-BIH, inter-patient", "mitdb_sample": "MIT-BIH excerpts"}
        name |= {key: f"{database.title}, by patients" for key, database in DATABASES.items()}
        shown = f"{name.get(self.source, self.source)}, R peaks: {self.tool.method}"
        if self.source == "mitdb" and self.same_person:
            shown += ", 201 and 202 on both sides"
        return {
            **super().describe(),
            "embedded": self.source in EMBEDDED,
            "dataset": shown,
            "source": self.source,
            "rpeaks": self.tool.method,
        }

    def build(self, split: str) -> Dataset[Any]:
        """Returns the dataset of ``split``.

        Raises:
            ZooError: If a record is missing, unreadable, too short or wrong, or no segment of the
                split holds an ECG.
        """
        if split == "predict":
            return self._inputs()
        found = Segments(
            self._recordings(split), int(self.seconds * FS), self.image_size, split == "train"
        )
        if found.skipped:
            if not found.items:
                raise ZooError(
                    f"All {found.skipped} segments of the {split} split are flat or NaN."
                )
            warnings.warn(
                f"{found.skipped} segments of the {split} split are flat or hold NaN and are left "
                "out.",
                stacklevel=2,
            )
        return found

    def train_sampler(
        self, dataset: Dataset[Any], world: int, rank: int, seed: int
    ) -> DistributedSampler[Any]:
        """Each batch has its share of held-out patients."""
        assert isinstance(dataset, Segments)
        return StratifiedSampler(dataset, self.batch_size, world, rank, seed)

    def _recordings(self, split: str) -> list[Recording]:
        if self.source == "synthetic":
            seconds = self.segments * self.seconds
            if split != "train":  # so that segments which overlap are as many
                seconds -= 2 * EDGE_S * (self.segments - 1)
            return synthetic(
                split, self.patients[split], seconds, self.leads, self.seed, self.tool, FS
            )
        if self.source == "mitdb_sample":
            return sample(split, self.tool, FS, self.seconds)
        assert self.root is not None
        if not self.root.is_dir():
            raise ZooError(f"{self.root} is no folder: expected the records of {self.source}.")
        if self.source in DATABASES:
            known = database_patients(self.source, self.root)
            patients = {name: known[name] for name in database_split(self.source, known, split)}
        else:
            patients = {name: patient_of(name) for name in self.splits[split]}
        return folder(self._read, split, patients, self.tool, FS)

    def _read(self, name: str) -> Record:
        assert self.root is not None
        lead = self.lead
        if lead is None and self.source in DATABASES:
            usual = DATABASES[self.source].leads
            lead = list(usual[: self.leads]) if usual else None
        if self.source == "vitaldb":
            return select(read_vitaldb(self.root, name), lead, self.seconds, self.leads)
        return read_record(
            self.root / name, lead, annotated=True, min_seconds=self.seconds, count=self.leads
        )

    def _inputs(self) -> RecordFiles:
        paths = [str(path) for path in self.input_files(SUFFIXES)]
        for path in paths:
            read_record(path, self.lead, self.fs, min_seconds=self.seconds, count=self.leads)
        return RecordFiles(paths, self.fs)

"""Where captures come from: the renderer, or the files that an index names."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from zoo.errors import ZooError
from zoo.face_files import KINDS, MODALITIES, read_face, to_face

from ..faces import capture

DOMAIN_NAMES = "CPSW"  # CeFA, PADISI, SURF, WMCA; a sample's domain is the position in here
UNKNOWN_ATTACK = KINDS.index("attack")

Sample: TypeAlias = dict[str, Any]


class Source:
    """Captures by number, with the labels of all of them known without reading any."""

    labels: Tensor
    domains: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def __getitem__(self, index: int) -> Sample:
        """``rgb``, ``depth``, ``ir``, ``mask``, ``label``, ``kind``, ``domain``, ``name``."""


class RenderedFaces(Source):
    """Captures of one or more domains of the renderer, kept in memory.

    Args:
        domains: Their letters.
        split: "train", "val" or "test".
        count: Captures of each domain.
        size: Side in pixels.
        seed: Of the renderer.
    """

    def __init__(self, domains: str, split: str, count: int, size: int, seed: int) -> None:
        parts = [capture(domain, split, count, size, seed) for domain in domains]
        self.images = {m: torch.cat([getattr(part, m) for part in parts]) for m in MODALITIES}
        self.labels = torch.cat([part.label for part in parts])
        self.kinds = torch.cat([part.kind for part in parts])
        letters = [domain for domain in domains for _ in range(count)]
        self.domains = torch.tensor([DOMAIN_NAMES.index(letter) for letter in letters])
        self.names = [f"{letter}-{split}-{i % count:04d}" for i, letter in enumerate(letters)]

    def __getitem__(self, index: int) -> Sample:
        return {
            **{m: images[index] for m, images in self.images.items()},
            "mask": torch.ones(len(MODALITIES), dtype=torch.bool),
            "label": self.labels[index],
            "kind": self.kinds[index],
            "domain": self.domains[index],
            "name": self.names[index],
        }


@dataclass(frozen=True)
class Entry:
    """One line of an index.

    Attributes:
        name: Unique in its index.
        domain: Letter.
        label: 1 for live, 0 for an attack.
        files: Image of each modality, or of "npz" for all of them.
    """

    name: str
    domain: str
    label: int
    files: Mapping[str, Path]


class IndexedFaces(Source):
    """Captures in files, read anew each time.

    Args:
        entries: What to read.
        size: Images are resized to this side, in pixels.
        p_keys: Names of the arrays in ``.npz`` files, by modality.
    """

    def __init__(self, entries: Sequence[Entry], size: int, p_keys: Mapping[str, str]) -> None:
        self.entries = entries
        self.size = size
        self.p_keys = dict(p_keys)
        self.labels = torch.tensor([entry.label for entry in entries])
        self.domains = torch.tensor([DOMAIN_NAMES.index(entry.domain) for entry in entries])

    def __getitem__(self, index: int) -> Sample:
        entry = self.entries[index]
        if "npz" in entry.files:
            images = read_npz(entry.files["npz"], self.p_keys, self.size)
        else:
            images = {m: read_face(path, m, self.size) for m, path in entry.files.items()}
        return {
            **images,
            "mask": torch.ones(len(MODALITIES), dtype=torch.bool),
            "label": self.labels[index],
            "kind": torch.tensor(0 if entry.label else UNKNOWN_ATTACK),
            "domain": self.domains[index],
            "name": entry.name,
        }


def read_npz(path: Path, keys: Mapping[str, str], size: int) -> dict[str, Tensor]:
    """Reads the three sensors' arrays of one ``.npz`` file.

    Args:
        path: Of the file; it is never unpickled.
        keys: Name of each modality's array: (h, w), (h, w, c), or (frames, h, w, c), of which the
            first frame is taken.
        size: Side of the result, pixels.

    Raises:
        ZooError: If the file is unreadable or lacks an array; it names those there are.
    """
    images = {}
    try:
        with np.load(path, allow_pickle=False) as arrays:
            for modality, key in keys.items():
                if key not in arrays:
                    found = ", ".join(sorted(arrays)) or "nothing"
                    raise ZooError(
                        f"{path} has no array {key!r} for {modality}: it holds {found} (p_keys)."
                    )
                pixels = arrays[key]
                pixels = pixels[0] if pixels.ndim == 4 else pixels
                images[modality] = to_face(pixels, modality, size, f"{path}, array {key!r}")
    except (OSError, EOFError) as error:
        raise ZooError(f"{path} cannot be read, it may be truncated: {error}.") from error
    except ValueError as error:
        if isinstance(error, ZooError):
            raise
        raise ZooError(f"{path} is no .npz file of plain arrays: {error}.") from error
    return images

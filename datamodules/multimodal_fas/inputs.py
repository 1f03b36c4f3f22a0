"""A user's own captures: which files belong together, and which sensor took each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.utils.data import Dataset

from zoo.errors import ZooError
from zoo.face_files import CHANNELS, MODALITIES, read_face

from .sources import Sample

# How files and folders call their sensor.
WORDS = {
    "rgb": "rgb",
    "color": "rgb",
    "colour": "rgb",
    "profile": "rgb",
    "depth": "depth",
    "ir": "ir",
}


def sensor(path: Path) -> tuple[str, str]:
    """Modality of a file, and what the files of one capture have in common.

    ``a_rgb.png``, ``a_depth.png`` and ``a_ir.png`` belong together, and so do ``color/7.jpg``,
    ``depth/7.jpg`` and ``ir/7.jpg``.

    Raises:
        ZooError: If neither the file's name nor its folder's says which sensor it is of.
    """
    stem, _, word = path.stem.rpartition("_")
    if stem and word.lower() in WORDS:
        return WORDS[word.lower()], str(path.parent / stem)
    if path.parent.name.lower() in WORDS:
        return WORDS[path.parent.name.lower()], str(path.parent.parent / path.stem)
    raise ZooError(
        f"{path}: no telling which sensor this is of; expected a name such as face_rgb.png, "
        f"or a folder named after it ({', '.join(WORDS)})."
    )


def group_files(paths: Sequence[Path]) -> dict[str, dict[str, Path]]:
    """Captures by name, each with the file of each modality that there is.

    Raises:
        ZooError: If two files claim the same sensor of one capture.
    """
    captures: dict[str, dict[str, Path]] = {}
    for path in paths:
        modality, key = sensor(path)
        files = captures.setdefault(key, {})
        if modality in files:
            raise ZooError(f"{files[modality]} and {path} are both {modality} of one capture.")
        files[modality] = path
    stems = Counter(Path(key).name for key in captures)
    return {
        Path(key).name if stems[Path(key).name] == 1 else "_".join(Path(key).parts[-2:]): files
        for key, files in sorted(captures.items())
    }


class UserCaptures(Dataset[Sample]):
    """Captures without a label, read once at the door so that bad files stop no run half-way.

    Args:
        paths: Images of any of the sensors.
        size: Side that images are resized to, pixels.
    """

    def __init__(self, paths: Sequence[Path], size: int) -> None:
        self.captures = list(group_files(paths).items())
        self.size = size
        for index in range(len(self)):
            self[index]

    def __len__(self) -> int:
        return len(self.captures)

    def __getitem__(self, index: int) -> Sample:
        name, files = self.captures[index]
        images = {
            m: read_face(files[m], m, self.size)
            if m in files
            else torch.zeros(CHANNELS[m], self.size, self.size)
            for m in MODALITIES
        }
        mask = torch.tensor([m in files for m in MODALITIES])
        return {**images, "mask": mask, "name": name}

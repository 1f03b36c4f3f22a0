"""Faults that no training sees: what detection of novel inputs is tested on."""

from __future__ import annotations

import torch
from torch import Tensor

from zoo.face_files import CORRUPTIONS, MODALITIES

from .sources import Sample

GAIN = 3.0


def corrupt(sample: Sample, other: Sample) -> dict[str, Tensor]:
    """All of :data:`~zoo.face_files.CORRUPTIONS` of one capture.

    Depth upside down; infrared as a negative; depth and infrared of another capture; the lower
    half of each frame left from another capture; a gain of 3.

    Args:
        sample: ``rgb``, ``depth`` and ``ir``. Shape of each: (C, H, W).
        other: Another capture of the same size.

    Returns:
        By modality. Shape of each: (5, C, H, W).
    """
    half = sample["rgb"].shape[-2] // 2
    frozen = {m: torch.cat([sample[m][:, :half], other[m][:, half:]], dim=1) for m in MODALITIES}
    changes: dict[str, dict[str, Tensor]] = {
        "inverted_depth": {"depth": 1 - sample["depth"]},
        "inverted_ir": {"ir": 1 - sample["ir"]},
        "swapped": {"depth": other["depth"], "ir": other["ir"]},
        "frozen": frozen,
        "gain": {m: (GAIN * sample[m]).clamp_max(1) for m in MODALITIES},
    }
    return {
        m: torch.stack(
            [changes[name][m] if m in changes[name] else sample[m] for name in CORRUPTIONS]
        )
        for m in MODALITIES
    }

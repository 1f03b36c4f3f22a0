"""A segment as the tensors that a network and the tools take."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zoo.ecg.render import render_ecg
from zoo.ecg.strip import MARGIN_S, Segment, Strip

MIN_PEAKS = 2  # fewer in a segment, and no rhythm can be told


def network_inputs(
    strip: Strip, segment: Segment, mask: NDArray[np.bool_], image_size: Sequence[int]
) -> dict[str, Tensor]:
    """One sample.

    Args:
        strip: Of the record.
        segment: Cut out of it.
        mask: Which beats are there. Shape: (n,).
        image_size: Height and width.

    Returns:
        ``signal``, ``image``, ``peaks``, ``mask``, ``strip`` and ``rr``, as
        :class:`zoo.datamodules.EcgSegmentsDataModule` describes them.
    """
    margin = int(MARGIN_S * strip.fs)
    shown = segment.strip[:, margin : segment.strip.shape[1] - margin]
    picture = render_ecg(shown, segment.peaks[mask], strip.fs, *image_size)
    return {
        "signal": torch.from_numpy(segment.signal),
        "image": torch.from_numpy(picture).float() / 255,
        "peaks": torch.from_numpy(np.where(mask, segment.peaks, 0)),
        "mask": torch.from_numpy(mask),
        "strip": torch.from_numpy(segment.strip),
        "rr": torch.from_numpy(segment.rr),
    }

"""A picture of what the renderer makes: ``python -m zoo.datamodules.faces.sheet samples.png``."""

from __future__ import annotations

import sys

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure

from zoo.face_files import KINDS

from .captures import capture
from .domains import DOMAINS


def draw_sheet(per_kind: int = 3, size: int = 48, seed: int = 0) -> Figure:
    """Colour, depth and infrared of each kind of capture in each domain.

    Args:
        per_kind: Samples of each, one below the other.
        size: Side of a sample, pixels.
        seed: Of the captures.
    """
    figure = Figure(figsize=(14, 3.2 * len(DOMAINS)), layout="constrained")
    axes = figure.subplots(len(DOMAINS), len(KINDS) - 1)
    for row, domain in zip(axes, DOMAINS, strict=True):
        batch = capture(domain, "test", 50 * per_kind, size, seed)
        grey = [image.expand(-1, 3, -1, -1) for image in (batch.depth, batch.ir)]
        wide = F.pad(torch.cat([batch.rgb, *grey], dim=3), (0, 0, 0, 2), value=1.0)
        for number, (axis, kind) in enumerate(zip(row, KINDS, strict=False)):
            shown = wide[batch.kind == number][:per_kind]
            axis.imshow(torch.cat(list(shown), dim=1).permute(1, 2, 0).numpy())
            axis.set_title(f"domain {domain}, {kind}")
            axis.axis("off")
    return figure


if __name__ == "__main__":
    draw_sheet().savefig(sys.argv[1], dpi=100)

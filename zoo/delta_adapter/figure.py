"""Pictures of transfers: the exemplar, the query, its edits at growing strength, and the truth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from zoo.delta_adapter.metrics import l1

if TYPE_CHECKING:
    from zoo.delta_adapter.module import DeltaAdapter

STRENGTHS = (0.0, 0.5, 1.0, 1.5)
ROWS = 6


def draw(model: DeltaAdapter, batch: Mapping[str, Any]) -> dict[str, Figure]:
    """The first transfers of a batch, spread over it so that several groups are seen."""
    count = len(batch["query"])
    rows = torch.linspace(0, count - 1, min(ROWS, count)).round().long()
    chosen = {k: batch[k][rows] for k in ("before", "after", "query", "truth")}
    with torch.no_grad():
        edit = model.encode_edit(chosen["before"], chosen["after"])
        outputs = [model.sample(chosen["query"], edit.of(s)) for s in STRENGTHS]
    columns: list[tuple[str, Tensor]] = [
        ("exemplar, before", chosen["before"]),
        ("after", chosen["after"]),
        ("query", chosen["query"]),
        *((f"strength {s:g}", out) for s, out in zip(STRENGTHS, outputs, strict=True)),
        ("truth", chosen["truth"]),
    ]
    figure = Figure(figsize=(1.6 * len(columns), 1.75 * len(rows) + 0.3), layout="constrained")
    axes = figure.subplots(len(rows), len(columns), squeeze=False)
    for column, (title, pictures) in enumerate(columns):
        axes[0, column].set_title(title, fontsize=9)
        errors = l1(pictures, chosen["truth"]).tolist()
        for row, (axis, picture) in enumerate(zip(axes[:, column], pictures, strict=True)):
            axis.imshow(picture.clamp(0, 1).permute(1, 2, 0).float().cpu().numpy())
            if 2 <= column < len(columns) - 1:
                axis.set_xlabel(f"L1 {errors[row]:.3f}", fontsize=8)
    for axis, row in zip(axes[:, 0], rows.tolist(), strict=True):
        axis.set_ylabel(batch["name"][row].replace(" + ", "\n+ "), fontsize=8)
    for axis in np.ravel(axes):
        axis.set_xticks([])
        axis.set_yticks([])
    return {"transfer": figure}

"""DegBins as a graph: from the pixels of two files to metres."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from zoo.export import Exportable

if TYPE_CHECKING:
    from zoo.degbins.module import DegBins

SIDE = 32  # of the low-resolution map that the graph takes, pixels


class RawDegBins(nn.Module):
    """``predict`` on tensors: what a camera and a depth sensor give."""

    def __init__(self, model: DegBins) -> None:
        super().__init__()
        self.model = model

    def forward(self, rgb: Tensor, depth: Tensor) -> dict[str, Tensor]:
        """Super-resolves one depth map.

        Args:
            rgb: Photograph, uint8. Shape: (H, W, 3).
            depth: Metres, float32, 0 or NaN where unknown. Shape: (h, w).

        Returns:
            ``depth`` and ``std`` in metres. Shape of each: (H, W).
        """
        guide = rgb.permute(2, 0, 1)[None].float() / 255  # (1, 3, H, W)
        out = self.model(depth.nan_to_num()[None, None], guide)
        return {"depth": out["depth"][0, 0], "std": out["std"][0, 0]}


def exportable(model: DegBins) -> Exportable:
    """A graph for maps of 32 by 32 pixels, and a scene with unknown pixels to compare on."""
    generator = torch.Generator().manual_seed(0)
    side = SIDE * model.scale
    rgb = torch.randint(0, 256, (side, side, 3), generator=generator, dtype=torch.uint8)
    depth = torch.linspace(1, 3, SIDE**2).view(SIDE, SIDE).contiguous()
    depth[8:20, 8:16] = 0.8
    depth[24, 20] = 0
    depth[0, :3] = 0
    expected = model.predict(rgb.numpy(), depth.numpy(), depth_unit="m")
    return Exportable(
        RawDegBins(model),
        {"rgb": rgb, "depth": depth},
        {
            "depth": torch.from_numpy(expected.depth),
            "std": torch.from_numpy(expected.std),
        },
    )

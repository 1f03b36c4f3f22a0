"""SEM-FAS as a graph: from the pixels of three cameras to the decision and its reasons."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from zoo.export import Exportable
from zoo.face_files import MODALITIES, minmax

if TYPE_CHECKING:
    from zoo.sem_fas.module import SemFas

EFFECTS = ("p_live", "phi_main", "phi_pair", "u_amb", "u_mix", "u_cov")


class FixedMeasurement(nn.Module):
    """The class effects as a constant: no graph format has a complex Cholesky factor."""

    def __init__(self, projection: Tensor) -> None:
        super().__init__()
        self.register_buffer("matrix", projection.clone())

    def projection(self) -> Tensor:
        """As :meth:`zoo.sem_fas.head.Measurement.projection`."""
        matrix: Tensor = self.get_buffer("matrix")
        return matrix


class RawSemFas(nn.Module):
    """``predict`` on tensors with all sensors there, for images of the size that it resizes to."""

    def __init__(self, model: SemFas) -> None:
        super().__init__()
        self.encoders = copy.deepcopy(model.encoders)
        self.head = copy.deepcopy(model.head)
        with torch.no_grad():
            self.head.measurement = FixedMeasurement(model.head.measurement.projection())  # type: ignore[assignment]

    def forward(self, rgb: Tensor, depth: Tensor, ir: Tensor) -> dict[str, Tensor]:
        """Decides on one capture.

        Args:
            rgb: uint8. Shape: (S, S, 3).
            depth: Any unit, float32, 0 in holes. Shape: (S, S).
            ir: Any unit, float32. Shape: (S, S).

        Returns:
            ``p_live`` and the uncertainties, (1,); ``phi_main`` and ``phi_pair``, (1, 3).
        """
        images = {
            "rgb": rgb.permute(2, 0, 1)[None].float() / 255,
            "depth": minmax(depth[None, None]),
            "ir": minmax(ir[None, None]),
        }
        features: Tensor = self.encoders(images)
        there = torch.ones(1, len(MODALITIES), dtype=torch.bool, device=features.device)
        out = self.head.measure(self.head.states(features, there))
        return {name: getattr(out, name) for name in EFFECTS}


def exportable(model: SemFas) -> Exportable:
    """A graph for captures of the model's size, and a capture to compare on."""
    rng = torch.Generator().manual_seed(0)
    size = model.image_size
    rgb = torch.randint(0, 256, (size, size, 3), generator=rng, dtype=torch.uint8)
    depth = 400 + 600 * torch.rand(size, size, generator=rng)
    depth[:4, :7] = 0
    ir = 4000 * torch.rand(size, size, generator=rng)
    found = model.predict(rgb.numpy(), depth.numpy(), ir.numpy())
    expected = {
        "p_live": torch.tensor([found.p_live]),
        "phi_main": torch.tensor([list(found.phi_main.values())]),
        "phi_pair": torch.tensor([list(found.phi_pair.values())]),
        **{name: torch.tensor([value]) for name, value in found.uncertainty.items()},
    }
    return Exportable(RawSemFas(model), {"rgb": rgb, "depth": depth, "ir": ir}, expected)

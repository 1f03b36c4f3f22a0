"""The heads of DegBins: S stages of bins around the former estimate, and the additive baseline.

The degradation is embedded by cells of 4x4 pixels, the backbone's own: blur and noise vary slowly,
a cell's 16 estimates and 16 upsampled depths say more of them than one pixel's, and embeddings of
single pixels took three quarters of the network's time. Ranges and kernels are interpolated back to
pixels; the modulation of features is constant within a cell, the features are not.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.degbins.backbone import PATCH, Pointwise, channels_last, conv3x3
from zoo.degbins.bins import (
    StageBins,
    adaptive_centers,
    deviation,
    expected_residual,
    uniform_centers,
)
from zoo.degbins.moments import local_moments

KERNEL_SIZE = 5  # side of the predicted blur kernels, pixels


class DegBinsOutput(NamedTuple):
    """What the network returns, in the unit of its input.

    Attributes:
        residuals: R_1 .. R_S, float32; the estimate is D_up + R_S. Shape of each: (B, 1, H, W).
        std: Standard deviation of the last stage's distribution, float32; ``None`` with the
            additive head, which has no distribution. Shape: (B, 1, H, W).
        widening: Width of the last stage's range over the one that the degradation would leave as
            it is, float32; ``None`` with the additive head. Shape: (B, 1, H, W).
        bins: One :class:`StageBins` a stage, on request; empty with the additive head.
        embedding: e_S, on request, where there is one. Shape: (B, E, H/4, W/4), rounded up.
        kernels: Logits of the blur kernels that should turn D_S into D_up, on request, if the
            network predicts them. Shape: (B, 25, H, W).
    """

    residuals: list[Tensor]
    std: Tensor | None = None
    widening: Tensor | None = None
    bins: list[StageBins] = []  # noqa: RUF012 (a NamedTuple's default; never mutated)
    embedding: Tensor | None = None
    kernels: Tensor | None = None


def to_cells(x: Tensor) -> Tensor:
    """The pixels of each cell as its channels. Shape: (B, C, H, W) to (B, 16 C, H/4, W/4)."""
    return channels_last(F.pixel_unshuffle(x, PATCH))


def to_pixels(x: Tensor) -> Tensor:
    """Cells interpolated to pixels. Shape: (B, C, H/4, W/4) to (B, C, H, W)."""
    return F.interpolate(x, scale_factor=PATCH, mode="bilinear", align_corners=False)


class DegradationEmbedding(nn.Module):
    """Relation between the current estimate and the low-resolution depth, E channels a cell.

    e_hr = GELU(conv([F, D_{s-1}])), e_lr = GELU(conv([D_up, its local mean and std])),
    e_s = conv1x1([e_hr - e_lr, e_hr * e_lr]): what the estimate would have to lose to become the
    low-resolution depth. All stages share the weights. What doesn't change from stage to stage is
    computed once, in :meth:`prepare`: e_lr, and of the convolution over [F, D_{s-1}] the part on F.
    """

    def __init__(self, channels: int, embed_channels: int) -> None:
        super().__init__()
        self.on_features = nn.Conv2d(channels, embed_channels, PATCH, stride=PATCH)
        nn.init.kaiming_normal_(self.on_features.weight, nonlinearity="relu")
        assert self.on_features.bias is not None
        nn.init.zeros_(self.on_features.bias)
        self.on_estimate = conv3x3(PATCH**2, embed_channels, bias=False)
        self.on_lr = conv3x3(3 * PATCH**2, embed_channels)
        self.on_difference = Pointwise(embed_channels, embed_channels)
        self.on_product = Pointwise(embed_channels, embed_channels, bias=False)

    def prepare(self, features: Tensor, d_up: Tensor) -> tuple[Tensor, Tensor]:
        """conv(F) and e_lr. Shape of each: (B, E, H/4, W/4)."""
        lr = torch.cat([d_up, *local_moments(d_up, radius=1, min_std=1e-4)], dim=1)  # (B, 3, H, W)
        return self.on_features(features), F.gelu(self.on_lr(to_cells(lr)))

    def forward(self, from_features: Tensor, e_lr: Tensor, estimate: Tensor) -> Tensor:
        """e_s from what :meth:`prepare` gave and D_{s-1}. Shape: (B, E, H/4, W/4)."""
        estimate = to_cells(estimate).to(from_features.dtype)
        e_hr = F.gelu(from_features + self.on_estimate(estimate))
        embedding: Tensor = self.on_difference(e_hr - e_lr) + self.on_product(e_hr * e_lr)
        return embedding


class RangeAdjustment(nn.Module):
    """Half-widths l_s, h_s = rho_s * exp(kappa * tanh(u)) with u = conv1x1(e_s)."""

    def __init__(self, embed_channels: int, half_width: float, range_kappa: float) -> None:
        super().__init__()
        self.u = Pointwise(embed_channels, 2, zero=True)
        self.half_width = half_width
        self.range_kappa = range_kappa

    def forward(self, embedding: Tensor) -> tuple[Tensor, Tensor]:
        """l_s and h_s, positive and bounded, float32. Shape of each: (B, 1, H, W)."""
        u = to_pixels(self.u(embedding).float())
        low, high = (self.half_width * (self.range_kappa * u.tanh()).exp()).chunk(2, dim=1)
        return low, high


class FiLM(nn.Module):
    """Features modulated by the degradation of their cell: F * (1 + g) + b, g, b = conv1x1(e_s)."""

    def __init__(self, embed_channels: int, channels: int) -> None:
        super().__init__()
        self.gain = Pointwise(embed_channels, channels)
        self.shift = Pointwise(embed_channels, channels)

    def forward(self, features: Tensor, embedding: Tensor) -> Tensor:
        """Shape: (B, C, H, W) and (B, E, H/4, W/4) to (B, C, H, W)."""
        batch, channels, height, width = features.shape
        # A view with the pixels of a cell on axes of their own, where the cell's values broadcast:
        # (B, H/4, 4, W/4, 4, C).
        pixels = features.permute(0, 2, 3, 1).reshape(
            batch, height // PATCH, PATCH, width // PATCH, PATCH, channels
        )
        gain, shift = (
            y.permute(0, 2, 3, 1)[:, :, None, :, None]
            for y in (1 + self.gain(embedding), self.shift(embedding))
        )
        modulated = torch.addcmul(shift, pixels, gain)
        return modulated.reshape(batch, height, width, channels).permute(0, 3, 1, 2)


class BinStage(nn.Module):
    """One stage: range, centres and probabilities of the bins around the former estimate.

    Logits are conv1x1(SiLU(FiLM(conv1x1(F)) + w R_{s-1})). The modulation stands behind the first
    convolution, where there are half as many maps; SiLU, since on a processor GELU takes three
    times as long and took a third of the network's time.

    Args:
        channels: Of the projected features.
        bins: K.
        half_width: rho_s, half the range where the degradation doesn't change it.
        range_kappa: kappa; half-widths stay within rho_s * exp(-kappa) .. rho_s * exp(kappa).
        embed_channels: E, or 0 for a stage that isn't conditioned on the degradation.
        adaptive: Predict the widths of the bins from the embedding.
        first: The first stage, whose former residual is zero.
    """

    def __init__(
        self,
        channels: int,
        bins: int,
        half_width: float,
        range_kappa: float,
        embed_channels: int,
        adaptive: bool,
        first: bool,
    ) -> None:
        super().__init__()
        self.bins = bins
        self.half_width = half_width
        adapt = embed_channels > 0
        self.range = RangeAdjustment(embed_channels, half_width, range_kappa) if adapt else None
        self.film = FiLM(embed_channels, channels) if adapt else None
        self.widths = Pointwise(embed_channels, bins, zero=True) if adaptive else None
        self.on_residual = None if first else Pointwise(1, channels, bias=False)
        self.logits = Pointwise(channels, bins, zero=True)

    def forward(self, projected: Tensor, embedding: Tensor | None, residual: Tensor) -> StageBins:
        """The bins around R_{s-1}, given conv1x1(F) and, where the stage is conditioned, e_s."""
        low = high = torch.full_like(residual, self.half_width)
        centers = uniform_centers(self.bins, residual.device)
        if self.range is not None:
            low, high = self.range(embedding)
        if self.film is not None:
            projected = self.film(projected, embedding)
        if self.widths is not None:
            centers = adaptive_centers(to_pixels(self.widths(embedding).float()))
        if self.on_residual is not None:
            projected = projected + self.on_residual(residual.to(projected.dtype))
        return StageBins(self.logits(F.silu(projected)), residual - low, residual + high, centers)


class BinsHead(nn.Module):
    """S stages of bins, from features to residuals."""

    def __init__(
        self,
        channels: int,
        stages: int,
        bins: int,
        range_init: float,
        range_ratio: float,
        range_kappa: float,
        adaptive: bool,
        deg_adapt: bool,
        embed_channels: int,
        predict_kernels: bool,
    ) -> None:
        super().__init__()
        self.deg_adapt = deg_adapt
        self.half_widths = [range_init * range_ratio**s for s in range(stages)]  # rho_s
        embedded = deg_adapt or predict_kernels
        self.embed = DegradationEmbedding(channels, embed_channels) if embedded else None
        self.kernels = Pointwise(embed_channels, KERNEL_SIZE**2) if predict_kernels else None
        hidden = max(channels // 2, 1)
        self.project = Pointwise(channels, hidden * stages)  # one product for all stages
        self.stages = nn.ModuleList(
            BinStage(
                hidden,
                bins,
                half_width,
                range_kappa,
                embed_channels if deg_adapt else 0,
                adaptive,
                first=s == 0,
            )
            for s, half_width in enumerate(self.half_widths)
        )

    def forward(self, features: Tensor, d_up: Tensor, return_aux: bool) -> DegBinsOutput:
        """From F (B, C, H, W) and D_up (B, 1, H, W) to R_1 .. R_S; H, W multiples of 4."""
        # Without conditioning, only the kernels' loss needs an embedding, that of the last stage.
        embed = self.embed if self.deg_adapt or return_aux else None
        prepared = embed.prepare(features, d_up) if embed is not None else ()
        residuals = [torch.zeros_like(d_up, dtype=torch.float32)]
        stages: list[StageBins] = []
        embedding = None
        projected = self.project(features).chunk(len(self.stages), dim=1)
        for s, stage in enumerate(self.stages, start=1):
            if embed is not None and (self.deg_adapt or s == len(self.stages)):
                embedding = embed(*prepared, d_up + residuals[-1])
            bins = stage(projected[s - 1], embedding, residuals[-1])
            residuals.append(expected_residual(bins))
            if return_aux:
                stages.append(bins)
        std, widening = deviation(bins), (bins.high - bins.low) / (2 * self.half_widths[-1])
        if not return_aux:
            return DegBinsOutput(residuals[1:], std, widening)
        kernels = to_pixels(self.kernels(embedding)) if self.kernels is not None else None
        return DegBinsOutput(residuals[1:], std, widening, stages, embedding, kernels)


class AdditiveHead(nn.Module):
    """The baseline: residuals regressed and added, without bins and without degradation.

    R_s = R_{s-1} + conv1x1(GELU(conv3x3([F, D_{s-1}]))).

    Args:
        channels: C.
        stages: S.
        parameters: Size to match; the hidden width is the one that comes nearest to it.
    """

    def __init__(self, channels: int, stages: int, parameters: int) -> None:
        super().__init__()
        per_hidden = 9 * (channels + 1) + 1 + 1  # weights of both convolutions, and a bias
        hidden = max(1, round((parameters / stages - 1) / per_hidden))
        self.stages = nn.ModuleList(
            nn.Sequential(
                conv3x3(channels + 1, hidden),
                nn.GELU(),
                Pointwise(hidden, 1, zero=True),
            )
            for _ in range(stages)
        )

    def forward(self, features: Tensor, d_up: Tensor, return_aux: bool) -> DegBinsOutput:
        """From F (B, C, H, W) and D_up (B, 1, H, W) to R_1 .. R_S; there is nothing auxiliary."""
        residuals = [torch.zeros_like(d_up, dtype=torch.float32)]
        for stage in self.stages:
            estimate = channels_last(d_up + residuals[-1]).to(features.dtype)
            step = stage(torch.cat([features, estimate], dim=1))
            residuals.append(residuals[-1] + step.float())
        return DegBinsOutput(residuals[1:])

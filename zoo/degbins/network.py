"""Network of DegBins: guided depth super-resolution by degradation-driven residual binning.

The residual between the upsampled depth and the true one is not regressed but expected: at each
pixel it is the mean of a distribution over K bins, whose range and probabilities follow an
embedding of the local degradation. S stages repeat this, each with narrower bins around the
estimate of the stage before.

Notation:
    D_up  upsampled low-resolution depth           R_s  residual after stage s, R_0 = 0
    F     features of the backbone, C channels     D_s  = D_up + R_s
    e_s   degradation embedding, E channels        l_s, h_s  half-widths of the bins' range

Inside, depth is relative to its surroundings: less their mean and divided by four times their
standard deviation, so about -1/2..1/2. Depth normalised by the range of the whole image, as is
usual, leaves blur and noise a few hundredths wide, and training stays at plain upsampling for
hundreds of steps; and a crop has another range than its image.

Reference:
    The paper's abstract names the parts; its full text was not at hand. The rest follows DORNet
    (degradation learning, https://arxiv.org/abs/2410.11666), AdaBins (adaptive bins,
    https://arxiv.org/abs/2011.14141) and IEBins (ranges that shrink from stage to stage,
    https://arxiv.org/abs/2309.14137).
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.degbins.backbone import Backbone, Pointwise, channels_last, conv3x3
from zoo.degbins.bins import StageBins, adaptive_centers, expected_residual, uniform_centers
from zoo.errors import ZooError, did_you_mean

WINDOW = 16  # radius of a pixel's surroundings, pixels
MIN_STD = 0.02  # added to their standard deviation in quadrature, of the image's range
KERNEL_SIZE = 5  # side of the predicted blur kernels, pixels
HEADS = ("bins", "additive")
BIN_WIDTHS = ("uniform", "adaptive")


class DegBinsOutput(NamedTuple):
    """What the network returns, in the unit of its input.

    Attributes:
        residuals: R_1 .. R_S, float32; the estimate is D_up + R_S. Shape of each: (B, 1, H, W).
        std: Standard deviation of the last stage's distribution, float32; ``None`` with the
            additive head, which has no distribution. Shape: (B, 1, H, W).
        bins: One :class:`StageBins` a stage, on request; empty with the additive head.
        embedding: e_S, on request, where there is one. Shape: (B, E, H, W).
        kernels: Logits of the blur kernels that should turn D_S into D_up, on request, if the
            network predicts them. Shape: (B, 25, H, W).
    """

    residuals: list[Tensor]
    std: Tensor | None = None
    bins: list[StageBins] = []  # noqa: RUF012 (a NamedTuple's default; never mutated)
    embedding: Tensor | None = None
    kernels: Tensor | None = None


def local_moments(x: Tensor, radius: int, min_std: float) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation over a square window, at borders over the part inside.

    Args:
        x: Shape: (B, C, H, W).
        radius: Of the window, pixels.
        min_std: Added in quadrature to the standard deviation.

    Returns:
        Both, the latter positive. Shape of each: (B, C, H, W).
    """
    side = 2 * radius + 1
    moments = torch.cat([x, x.square()], dim=1)
    for size, padding in (((side, 1), (radius, 0)), ((1, side), (0, radius))):
        moments = F.avg_pool2d(moments, size, stride=1, padding=padding, count_include_pad=False)
    mean, square = moments.chunk(2, dim=1)
    return mean, ((square - mean.square()).clamp_min(0) + min_std**2).sqrt()


class DegradationEmbedding(nn.Module):
    """Relation between the current estimate and the low-resolution depth, in E channels.

    e_hr = GELU(conv3x3([F, D_{s-1}])), e_lr = GELU(conv3x3([D_up, its local mean and std])),
    e_s = conv1x1([e_hr - e_lr, e_hr * e_lr]): what the estimate would have to lose to become the
    low-resolution depth. All stages share the weights. What doesn't change from stage to stage is
    computed once, in :meth:`prepare`: e_lr, and of the convolution over [F, D_{s-1}] the part on F.
    """

    def __init__(self, channels: int, embed_channels: int) -> None:
        super().__init__()
        self.on_features = conv3x3(channels, embed_channels)
        self.on_estimate = conv3x3(1, embed_channels, bias=False)
        self.on_lr = conv3x3(3, embed_channels)
        self.on_difference = Pointwise(embed_channels, embed_channels)
        self.on_product = Pointwise(embed_channels, embed_channels, bias=False)

    def prepare(self, features: Tensor, d_up: Tensor) -> tuple[Tensor, Tensor]:
        """conv3x3(F) and e_lr. Shape of each: (B, E, H, W)."""
        lr = torch.cat([d_up, *local_moments(d_up, radius=1, min_std=1e-4)], dim=1)  # (B, 3, H, W)
        return self.on_features(features), F.gelu(self.on_lr(channels_last(lr)))

    def forward(self, from_features: Tensor, e_lr: Tensor, estimate: Tensor) -> Tensor:
        """e_s from what :meth:`prepare` gave and D_{s-1}. Shape: (B, E, H, W)."""
        estimate = channels_last(estimate).to(from_features.dtype)
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
        u = self.u(embedding).float()
        low, high = (self.half_width * (self.range_kappa * u.tanh()).exp()).chunk(2, dim=1)
        return low, high


class FiLM(nn.Module):
    """Features modulated by the degradation: F * (1 + g) + b with g, b = conv1x1(e_s)."""

    def __init__(self, embed_channels: int, channels: int) -> None:
        super().__init__()
        self.gain = Pointwise(embed_channels, channels)
        self.shift = Pointwise(embed_channels, channels)

    def forward(self, features: Tensor, embedding: Tensor) -> Tensor:
        """Shape: (B, C, H, W) and (B, E, H, W) to (B, C, H, W)."""
        return torch.addcmul(features + self.shift(embedding), features, self.gain(embedding))


class BinStage(nn.Module):
    """One stage: range, centres and probabilities of the bins around the former estimate.

    Args:
        channels: C.
        bins: K.
        half_width: rho_s, half the range where the degradation doesn't change it.
        range_kappa: kappa; half-widths stay within rho_s * exp(-kappa) .. rho_s * exp(kappa).
        embed_channels: E, or 0 for a stage that isn't conditioned on the degradation.
        adaptive: Predict the widths of the bins from the embedding.
    """

    def __init__(
        self,
        channels: int,
        bins: int,
        half_width: float,
        range_kappa: float,
        embed_channels: int,
        adaptive: bool,
    ) -> None:
        super().__init__()
        self.bins = bins
        self.half_width = half_width
        adapt = embed_channels > 0
        self.range = RangeAdjustment(embed_channels, half_width, range_kappa) if adapt else None
        self.film = FiLM(embed_channels, channels) if adapt else None
        self.widths = Pointwise(embed_channels, bins, zero=True) if adaptive else None
        self.hidden = Pointwise(channels + 1, channels)
        self.logits = Pointwise(channels, bins, zero=True)

    def forward(self, features: Tensor, embedding: Tensor | None, residual: Tensor) -> StageBins:
        """The bins around R_{s-1}, given F and, where the stage is conditioned, e_s."""
        low = high = torch.full_like(residual, self.half_width)
        centers = uniform_centers(self.bins, residual.device)
        if self.range is not None:
            low, high = self.range(embedding)
        if self.film is not None:
            features = self.film(features, embedding)
        if self.widths is not None:
            centers = adaptive_centers(self.widths(embedding).float())
        former = channels_last(residual).to(features.dtype)
        z = F.gelu(self.hidden(torch.cat([features, former], dim=1)))
        return StageBins(self.logits(z), residual - low, residual + high, centers)


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
        embedded = deg_adapt or predict_kernels
        self.embed = DegradationEmbedding(channels, embed_channels) if embedded else None
        self.kernels = Pointwise(embed_channels, KERNEL_SIZE**2) if predict_kernels else None
        self.stages = nn.ModuleList(
            BinStage(
                channels,
                bins,
                range_init * range_ratio**s,
                range_kappa,
                embed_channels if deg_adapt else 0,
                adaptive,
            )
            for s in range(stages)
        )

    def forward(self, features: Tensor, d_up: Tensor, return_aux: bool) -> DegBinsOutput:
        """From F (B, C, H, W) and D_up (B, 1, H, W) to R_1 .. R_S."""
        # Without conditioning, only the kernels' loss needs an embedding, that of the last stage.
        embed = self.embed if self.deg_adapt or return_aux else None
        prepared = embed.prepare(features, d_up) if embed is not None else ()
        residuals = [torch.zeros_like(d_up, dtype=torch.float32)]
        stages: list[StageBins] = []
        embedding = std = None
        for s, stage in enumerate(self.stages, start=1):
            if embed is not None and (self.deg_adapt or s == len(self.stages)):
                embedding = embed(*prepared, d_up + residuals[-1])
            bins = stage(features, embedding, residuals[-1])
            residual, std = expected_residual(bins)
            residuals.append(residual)
            if return_aux:
                stages.append(bins)
        if not return_aux:
            return DegBinsOutput(residuals[1:], std)
        kernels = self.kernels(embedding) if self.kernels is not None else None
        return DegBinsOutput(residuals[1:], std, stages, embedding, kernels)


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


class DegBinsNet(nn.Module):
    """Backbone and head of DegBins.

    Args:
        channels: C, of the full-resolution features.
        width: W, of the backbone's blocks.
        blocks: N, residual blocks.
        stages: S.
        bins: K of each stage.
        range_init: rho_1, half-width of the first stage's range in units of relative depth.
        range_ratio: q, factor of the half-width from stage to stage.
        range_kappa: kappa, the degradation scales half-widths by exp(-kappa) .. exp(kappa).
        head: "bins", or "additive" for a plain regression of the same size, the baseline.
        bin_widths: "uniform", or "adaptive" for widths predicted per pixel.
        deg_adapt: Let the degradation embedding set ranges and modulate probabilities.
        guide: Use the colour image.
        embed_channels: E; ``None`` for C.
        attention: Channel attention in the backbone's blocks, for large models.
        predict_kernels: Predict the blur kernels that the degradation loss needs.
    """

    def __init__(
        self,
        channels: int = 24,
        width: int = 48,
        blocks: int = 4,
        stages: int = 3,
        bins: int = 8,
        range_init: float = 0.3,
        range_ratio: float = 0.4,
        range_kappa: float = 1.5,
        head: str = "bins",
        bin_widths: str = "uniform",
        deg_adapt: bool = True,
        guide: bool = True,
        embed_channels: int | None = None,
        attention: bool = False,
        predict_kernels: bool = True,
    ) -> None:
        super().__init__()
        for name, value, allowed in (("head", head, HEADS), ("bin_widths", bin_widths, BIN_WIDTHS)):
            if value not in allowed:
                hint = did_you_mean(value, allowed)
                raise ZooError(f"{name} is {value!r}, not one of {', '.join(allowed)}.{hint}")
        if bin_widths == "adaptive" and not deg_adapt:
            raise ZooError(
                "bin_widths='adaptive' is predicted from the degradation embedding, "
                "so it needs deg_adapt=True."
            )

        def bins_head() -> BinsHead:
            return BinsHead(
                channels,
                stages,
                bins,
                range_init,
                range_ratio,
                range_kappa,
                bin_widths == "adaptive",
                deg_adapt,
                embed_channels or channels,
                predict_kernels,
            )

        self.backbone = Backbone(channels, width, blocks, guide, attention)
        self.head: BinsHead | AdditiveHead
        if head == "bins":
            self.head = bins_head()
        else:
            with torch.device("meta"):  # only to count
                size = sum(p.numel() for p in bins_head().parameters())
            self.head = AdditiveHead(channels, stages, size)

    def forward(
        self, d_up: Tensor, guide: Tensor | None, return_aux: bool = False
    ) -> DegBinsOutput:
        """Residuals of the upsampled depth.

        Args:
            d_up: Upsampled depth, normalised to about 0..1. Shape: (B, 1, H, W), any H, W >= 4.
            guide: Colour image in 0..1; not used if built without a guide. Shape: (B, 3, H, W).
            return_aux: Also return what the losses need beside the residuals.

        Returns:
            See :class:`DegBinsOutput`.
        """
        mean, std = local_moments(d_up, WINDOW, MIN_STD)
        unit = 4 * std
        relative = (d_up - mean) / unit
        features = self.backbone(4 * relative, guide)  # variance 1, as initial weights expect
        out: DegBinsOutput = self.head(features, relative, return_aux)
        return out._replace(
            residuals=[unit * residual for residual in out.residuals],
            std=unit * out.std if out.std is not None else None,
            bins=[bins._replace(low=unit * bins.low, high=unit * bins.high) for bins in out.bins],
        )

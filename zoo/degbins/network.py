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

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.degbins.backbone import PATCH, Backbone
from zoo.degbins.bins import StageBins
from zoo.degbins.head import AdditiveHead, BinsHead, DegBinsOutput
from zoo.degbins.moments import local_moments
from zoo.errors import ZooError, did_you_mean

WINDOW = 16  # radius of a pixel's surroundings, pixels
MIN_STD = 0.02  # added to their standard deviation in quadrature, of the image's range
BACKBONE_GAIN = 2.0  # of 1, 2 and 4, on validation, for both heads: near the guide's amplitude
HEADS = ("bins", "additive")
BIN_WIDTHS = ("uniform", "adaptive")


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
        height, width = d_up.shape[-2:]
        padding = (0, -width % PATCH, 0, -height % PATCH)
        d_up = F.pad(d_up, padding, mode="reflect")
        if guide is not None:
            guide = F.pad(guide, padding, mode="reflect")
        mean, std = local_moments(d_up, WINDOW, MIN_STD)
        unit = 4 * std
        relative = (d_up - mean) / unit
        features = self.backbone(BACKBONE_GAIN * relative, guide)
        out: DegBinsOutput = self.head(features, relative, return_aux)

        def finish(y: Tensor, factor: Tensor | float = 1.0) -> Tensor:
            return (factor * y)[..., :height, :width]

        return out._replace(
            residuals=[finish(residual, unit) for residual in out.residuals],
            std=finish(out.std, unit) if out.std is not None else None,
            widening=finish(out.widening) if out.widening is not None else None,
            bins=[
                StageBins(
                    finish(bins.logits),
                    finish(bins.low, unit),
                    finish(bins.high, unit),
                    finish(bins.centers) if bins.centers.shape[-1] > 1 else bins.centers,
                )
                for bins in out.bins
            ],
            kernels=finish(out.kernels) if out.kernels is not None else None,
        )

"""Metrics that two or more methods use, as torchmetrics classes."""

from zoo.metrics.error_rates import (
    AUROC,
    HTER,
    EqualErrorRate,
    EqualErrorThreshold,
    equal_error_point,
)
from zoo.metrics.pu21 import PU21PSNR, PU21SSIM, pu21_encode
from zoo.metrics.rank_correlation import ImageRankCorrelation, RankCorrelation

__all__ = [
    "AUROC",
    "HTER",
    "PU21PSNR",
    "PU21SSIM",
    "EqualErrorRate",
    "EqualErrorThreshold",
    "ImageRankCorrelation",
    "RankCorrelation",
    "equal_error_point",
    "pu21_encode",
]

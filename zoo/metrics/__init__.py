"""Metrics that two or more methods use."""

from zoo.metrics.error_rates import (
    AUROC,
    HTER,
    EqualErrorRate,
    EqualErrorThreshold,
    equal_error_point,
)
from zoo.metrics.rank_correlation import ImageRankCorrelation, RankCorrelation

__all__ = [
    "AUROC",
    "HTER",
    "EqualErrorRate",
    "EqualErrorThreshold",
    "ImageRankCorrelation",
    "RankCorrelation",
    "equal_error_point",
]

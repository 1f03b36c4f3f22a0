"""Metrics that two or more methods use."""

from zoo.metrics.error_rates import (
    AUROC,
    HTER,
    EqualErrorRate,
    EqualErrorThreshold,
    equal_error_point,
)

__all__ = ["AUROC", "HTER", "EqualErrorRate", "EqualErrorThreshold", "equal_error_point"]
